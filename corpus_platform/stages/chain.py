"""The chain: all stages by asset, in the order in which they run."""

from collections.abc import Callable, Mapping

from corpus_platform.config import Settings
from corpus_platform.stages import (
    cleaned_documents,
    dedup_clusters,
    dedup_verdicts,
    minhash_signatures,
    packed_bins,
    raw_shards,
    shuffled_bins,
    tokenizer,
)
from corpus_platform.stages.project import Project
from corpus_platform.storage.registry import Shard

__all__ = ["CHAIN", "open_project"]

CHAIN = {
    module.STAGE.asset: module.STAGE
    for module in (
        raw_shards,
        cleaned_documents,
        minhash_signatures,
        dedup_clusters,
        dedup_verdicts,
        tokenizer,
        packed_bins,
        shuffled_bins,
    )
}


def open_project(
    settings: Settings,
    *,
    shards: Mapping[str, Shard] | None = None,
    read_only: bool = False,
    waiting: Callable[[str], None] | None = None,
) -> Project:
    """Return the project of some settings; `shards` stands in for the registry."""
    return Project(settings, CHAIN, shards=shards, read_only=read_only, waiting=waiting)
