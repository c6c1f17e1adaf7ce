"""The jobs: what runs together in one process."""

from collections.abc import Sequence

import dagster as dg

from corpus_platform.defs.partitions import SHARDS

__all__ = ["JOB_OF", "build_jobs"]

INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")

# The job that makes an asset.
JOB_OF = {
    **dict.fromkeys(INGEST, "ingest_shard"),
    "dedup_clusters": "build_corpus",
    "tokenizer": "train_tokenizer",
    "packed_bins": "pack_shard",
    "shuffled_bins": "publish_release",
}


def build_jobs() -> Sequence[dg.UnresolvedAssetJobDefinition]:
    """Return the jobs, each with the checks of its assets."""
    return [
        _job("ingest_shard", INGEST, "One shard: raw, cleaned, signed.", partitioned=True),
        _job("build_corpus", ["dedup_clusters"], "Decide over all shards what is kept."),
        _job("train_tokenizer", ["tokenizer"], "Train the tokenizer, where there is none."),
        _job("pack_shard", ["packed_bins"], "One shard's tokens.", partitioned=True),
        _job("publish_release", ["shuffled_bins"], "Shuffle all packed shards to a release."),
    ]


def _job(
    name: str, assets: Sequence[str], description: str, *, partitioned: bool = False
) -> dg.UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        name,
        selection=dg.AssetSelection.assets(*assets),
        partitions_def=SHARDS if partitioned else None,
        executor_def=dg.in_process_executor,
        description=description,
    )
