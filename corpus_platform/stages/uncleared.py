"""Which shards an all-shard stage may read, and whether it may go on without the others."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from corpus_platform.errors import Uncleared
from corpus_platform.stages.project import Project

__all__ = [
    "Included",
    "allowed_missing",
    "check_share_left_out",
    "included_shards",
    "left_out_inputs",
    "may_be_left_out",
]

ASSET = "dedup_clusters"
RAW = "raw_shards"
CHAIN = (RAW, "cleaned_documents", "minhash_signatures")


@dataclass(frozen=True)
class Included:
    """The shards that are cleared, in key order, and why each other one is not."""

    shards: tuple[str, ...]
    refusals: dict[str, Uncleared]

    @property
    def excluded(self) -> list[str]:
        """The shards left out, in key order: all that a ledger says of them.

        A reason changes with the limits of the day, and must make nothing due.
        """
        return list(self.refusals)

    @property
    def reasons(self) -> dict[str, str]:
        """Asset and gate by shard left out, free of paths and hosts."""
        return {shard: f"{r.asset}: {r.gate}" for shard, r in self.refusals.items()}


def included_shards(project: Project, *, pending: Collection[str | None] = ()) -> Included:
    """Return the shards whose artifacts up to the signatures may be read.

    `pending` ones are still to be made and count as cleared; missing ones that
    `checks.allow_missing` names are none of the corpus. Raises Uncleared: gate `missing` where
    another is missing, gate `uncleared` when too many shards are left out: any under
    `checks.uncleared: refuse`, more than the share `checks.max_uncleared_share` in any case.
    """
    shards, refusals, missing = [], {}, {}
    for shard in project.shards():
        refusal = None if shard in pending else project.refusal(CHAIN, shard)
        if refusal is None:
            shards.append(shard)
        elif _is_missing(project, refusal, shard):
            missing[shard] = refusal
        else:
            refusals[shard] = refusal
    _refuse_missing(project, missing)
    left_out = {s: str(r) for s, r in (refusals | missing).items()}
    check_share_left_out(project, ASSET, len(shards), left_out)
    return Included(tuple(shards), refusals)


def allowed_missing(project: Project, shard: str) -> bool:
    """Tell whether the settings name a shard that may be missing."""
    return any(fnmatchcase(shard, p) for p in project.settings.checks.allow_missing)


def may_be_left_out(project: Project, shard: str) -> bool:
    """Tell whether a shard is missing, and the settings let it."""
    if not allowed_missing(project, shard) or shard not in project.shards():
        return False
    refusal = project.refusal(CHAIN, shard)
    return refusal is not None and _is_missing(project, refusal, shard)


def _is_missing(project: Project, refusal: Uncleared, shard: str) -> bool:
    """Tell whether a shard is refused since there is no copy of it, and not for what it holds."""
    if refusal.asset != RAW or refusal.gate not in ("current", "intact", "source_present"):
        return False
    ready = project.chain[RAW].ready
    try:
        if ready is not None:
            ready(project, shard)  # it is there, and refused for its bytes
    except Uncleared as reason:
        return reason.gate == "source_present"
    return True


def _refuse_missing(project: Project, missing: Collection[str]) -> None:
    """Raise Uncleared (gate `missing`) when shards are missing that are not named as allowed."""
    unnamed = [shard for shard in missing if not allowed_missing(project, shard)]
    if unnamed:
        told = [f"{s}: {project.failures.reason(s) or 'not fetched yet'}" for s in unnamed[:3]]
        more = f"; and {len(unnamed) - 3} more" if len(unnamed) > 3 else ""
        reason = (
            f"{len(unnamed)} shards are missing: {'; '.join(told)}{more}; fetch them, or name them"
            " under checks.allow_missing"
        )
        raise Uncleared(ASSET, None, gate="missing", reason=reason)


def check_share_left_out(
    project: Project, asset: str, included: int, left_out: Mapping[str, str]
) -> None:
    """Raise Uncleared (gate `uncleared`) when an asset would leave out more than it may.

    `left_out` gives the reason for each shard.
    """
    checks = project.settings.checks
    if not included:
        first = next(iter(left_out.values()), "no shard is registered")
        raise Uncleared(asset, None, gate="uncleared", reason=f"no shard is cleared: {first}")
    share = len(left_out) / (included + len(left_out))
    limit = 0.0 if checks.uncleared == "refuse" else checks.max_uncleared_share
    if share > limit:
        names = "; ".join(list(left_out.values())[:5])
        reason = (
            f"{len(left_out)} of {included + len(left_out)} shards are not cleared"
            f" ({share:.3f}, limit {limit}): {names}"
        )
        raise Uncleared(asset, None, gate="uncleared", reason=reason)


def left_out_inputs(shards: Iterable[str]) -> dict[str, str]:
    """Return the inputs that say which shards are left out, without the reasons."""
    return {f"left_out[{shard}]": "left out" for shard in shards}
