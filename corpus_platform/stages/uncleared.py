"""Which shards an all-shard stage may read, and whether it may go on without the others."""

from collections.abc import Collection
from dataclasses import dataclass

from corpus_platform.errors import Uncleared
from corpus_platform.stages.project import Project

__all__ = ["Included", "included_shards"]

ASSET = "dedup_clusters"
CHAIN = ("raw_shards", "cleaned_documents", "minhash_signatures")


@dataclass(frozen=True)
class Included:
    """The shards that are cleared, in key order, and the reason of each that is not."""

    shards: tuple[str, ...]
    excluded: dict[str, str]


def included_shards(project: Project, *, pending: Collection[str | None] = ()) -> Included:
    """Return the shards whose artifacts up to the signatures may be read.

    `pending` ones are still to be made and count as cleared. Raises Uncleared (gate `uncleared`)
    when too many shards are left out: any under `checks.uncleared: refuse`, more than the share
    `checks.max_uncleared_share` in any case.
    """
    shards, excluded = [], {}
    for shard in project.shards():
        reason = None if shard in pending else _refusal(project, shard)
        if reason is None:
            shards.append(shard)
        else:
            excluded[shard] = reason
    _judge(project, len(shards), excluded)
    return Included(tuple(shards), excluded)


def _refusal(project: Project, shard: str) -> str | None:
    try:
        for asset in CHAIN:
            project.require(asset, shard)
    except Uncleared as refusal:
        return str(refusal)
    return None


def _judge(project: Project, included: int, excluded: dict[str, str]) -> None:
    checks = project.settings.checks
    if not included:
        first = next(iter(excluded.values()), "no shard is registered")
        raise Uncleared(ASSET, None, gate="uncleared", reason=f"no shard is cleared: {first}")
    share = len(excluded) / (included + len(excluded))
    limit = 0.0 if checks.uncleared == "refuse" else checks.max_uncleared_share
    if share > limit:
        names = "; ".join(list(excluded.values())[:5])
        reason = (
            f"{len(excluded)} of {included + len(excluded)} shards are not cleared"
            f" ({share:.3f}, limit {limit}): {names}"
        )
        raise Uncleared(ASSET, None, gate="uncleared", reason=reason)
