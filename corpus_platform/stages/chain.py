"""The chain: all stages by asset, in the order in which they run; a project is opened on it."""

from collections.abc import Callable, Iterable, Mapping

from corpus_platform.config import Settings, Waiver
from corpus_platform.errors import SettingsError
from corpus_platform.gates import GATES
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
from corpus_platform.storage.remote import Connect

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

# Refusals that no numbers decide: nothing could rightly be read. With the way out of each.
UNWAIVABLE = {
    "source_unchanged": "restore the source, or take its bytes: corpus lock --accept SHARD",
    "source_present": "restore the source",
    "expected": "correct the listing, or restore the file",
    "missing": "restore the sources, or name the shards under checks.allow_missing",
    "lock": "restore the locked bytes, or take the present ones: corpus lock --accept SHARD",
    "intact": "corpus run makes it again",
    "current": "corpus run makes it",
    "frozen": "restore the file that the refusal names, or remove its folder",
}


def open_project(
    settings: Settings,
    *,
    shards: Mapping[str, Shard] | None = None,
    read_only: bool = False,
    waiting: Callable[[str], None] | None = None,
    connect: Connect | None = None,
) -> Project:
    """Return the project of some settings; `shards` stands in for the registry.

    `connect` makes the client for S3; without it boto3 does.

    Raises SettingsError when a waiver names a gate that is none, or holds for nothing.
    """
    _check_waivers(settings.waivers)
    return Project(
        settings, CHAIN, shards=shards, read_only=read_only, waiting=waiting, connect=connect
    )


def _check_waivers(waivers: Iterable[Waiver]) -> None:
    names = {gate.name for gates in GATES.values() for gate in gates}
    full = {f"{asset}/{gate.name}" for asset, gates in GATES.items() for gate in gates}
    for number, waiver in enumerate(waivers):
        where, last = f"waivers.{number}.gate", waiver.gate.rpartition("/")[2]
        if waiver.gate in names or waiver.gate in full:
            _check_reach(f"waivers.{number}.partition", waiver)
            continue
        if last in UNWAIVABLE:
            raise SettingsError(
                f"{where}: {waiver.gate!r} is not judged by numbers and cannot be waived;"
                f" {UNWAIVABLE[last]}"
            )
        raise SettingsError(
            f"{where}: no gate {waiver.gate!r}; gates are {', '.join(sorted(names))},"
            " each also as asset/gate"
        )


def _check_reach(where: str, waiver: Waiver) -> None:
    """Refuse a waiver that holds for nothing: of one shard where all are judged, or the reverse."""
    judged = [
        CHAIN[asset].per_shard
        for asset, gates in GATES.items()
        for gate in gates
        if waiver.gate in (gate.name, f"{asset}/{gate.name}")
    ]
    if waiver.partition is None and all(judged):
        raise SettingsError(
            f"{where}: {waiver.gate} is a gate of single shards: name the one it is for, as"
            " `corpus status` does"
        )
    if waiver.partition is not None and not any(judged):
        raise SettingsError(
            f"{where}: {waiver.gate} is a gate over the whole corpus, not of a shard: leave"
            f" {waiver.partition!r} out"
        )
