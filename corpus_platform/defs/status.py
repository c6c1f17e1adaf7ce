"""The asset `corpus_status`: how everything stands, since Dagster's own view cannot tell.

A partition whose blocking check failed stays green in the UI; here its shard is named with gate and
reason. One survey becomes counts, two tables and a data version. The numbers are looked at by the
last step of each job, by `corpus run` and by the nightly sensor; what is due is `planner`'s to say.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from corpus_platform.defs.launchpad import NOTHING_TO_SET
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.resources import Corpus
from corpus_platform.defs.since import remember
from corpus_platform.errors import CorpusError
from corpus_platform.planner import INGEST, Blocked, Survey, survey
from corpus_platform.reports.markdown import cell, table
from corpus_platform.storage.files import text_sha256

__all__ = ["SCOPE", "STATES", "STATUS", "build_status", "report_status", "status_metadata"]

STATUS = "corpus_status"
SCOPE = "corpus/scope"  # tag of every asset: made shard by shard, or once for all of them
STATES = ("current", "stale", "missing", "blocked")
STAGES = (*INGEST, "dedup_clusters", "tokenizer", "packed_bins", "shuffled_bins")
SHOWN = 50  # rows: each event is a row of the event log
LENIENCE = 20  # a job may leave the survey out for so many times as long as the last one took
MEMORY = "status"  # {"at": when, "seconds": how long the survey took, "version": what it showed}
LAST = {"dagster/priority": "-10"}  # after all other steps of its run, whether they failed or not


@dataclass(frozen=True)
class _Last:
    """The last refresh."""

    at: float = 0.0
    seconds: float = 0.0
    version: str = ""


def build_status(corpus: Corpus) -> dg.AssetsDefinition:
    """Return the asset; it depends on nothing, so that no failure keeps it from being made."""

    @dg.asset(
        name=STATUS,
        group_name="corpus",
        kinds={"markdown"},
        owners=list(corpus.settings.owners),
        tags={SCOPE: "corpus"},
        op_tags=LAST,
        output_required=False,
        config_schema=NOTHING_TO_SET,
    )
    def corpus_status(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        """How many partitions of each stage are current, stale, missing and blocked; which shards
        are refused, by which gate, why and since when."""
        alone = len(list(context.job_def.nodes)) == 1
        if not alone and (reason := _too_soon(context.instance, corpus)):
            context.log.info(reason)
            return
        yield _look(context.instance, corpus)

    return corpus_status


def report_status(
    instance: dg.DagsterInstance, corpus: Corpus, found: Survey, *, always: bool = False
) -> None:
    """Report a survey without a run; nothing where all is as last reported, unless `always`."""
    last, version = _last(instance, corpus), _version(found)
    known = instance.get_latest_materialization_event(dg.AssetKey(STATUS)) is not None
    if known and version == last.version and not always:
        return
    metadata = status_metadata(corpus, found)
    tags = {"dagster/data_version": version}
    instance.report_runless_asset_event(
        dg.AssetMaterialization(STATUS, metadata=metadata, tags=tags)
    )
    _remember(instance, corpus, _Last(time.time(), last.seconds, version))


def status_metadata(corpus: Corpus, found: Survey) -> dict[str, dg.MetadataValue | str | float]:
    """Return the numbers under names that never change, and the tables."""
    uncleared = _uncleared(found)
    since = remember(corpus.settings.storage_path / "uncleared.json", [_key(b) for b in uncleared])
    counts = _counts(found)
    return {
        "shards": sum(counts[f"{INGEST[0]}/{state}"] for state in STATES),
        "uncleared_shards": len({b.partition for b in uncleared if b.partition is not None}),
        "due": len(found.due),
        "blocked": len(found.blocked),
        "states": dg.MetadataValue.md(_states_table(counts)),
        "uncleared": dg.MetadataValue.md(_uncleared_table(uncleared, since, time.time())),
        **counts,
    }


def _look(instance: dg.DagsterInstance, corpus: Corpus) -> dg.MaterializeResult:
    began = time.monotonic()
    try:
        found = survey(corpus.project())
        metadata = status_metadata(corpus, found)
    except CorpusError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    seconds, version = time.monotonic() - began, _version(found)
    _remember(instance, corpus, _Last(time.time(), seconds, version))
    metadata["survey_seconds"] = seconds
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(version))


def _too_soon(instance: dg.DagsterInstance, corpus: Corpus) -> str:
    """Say why a job need not look now, nothing where it should: many runs are short, and many."""
    last = _last(instance, corpus)
    age, keeps = time.time() - last.at, LENIENCE * last.seconds
    if not 0 <= age < keeps:  # a clock that was set back hides nothing
        return ""
    return (
        f"left out: it was refreshed {age:.1f} s ago, and counts for {keeps:.1f} s, {LENIENCE}"
        f" times what that took; materialize {STATUS} alone to see it at once"
    )


def _last(instance: dg.DagsterInstance, corpus: Corpus) -> _Last:
    value = Memory(instance, corpus.name).get(MEMORY)
    return _Last() if value is None else _Last(value["at"], value["seconds"], value["version"])


def _remember(instance: dg.DagsterInstance, corpus: Corpus, last: _Last) -> None:
    value = {"at": last.at, "seconds": last.seconds, "version": last.version}
    Memory(instance, corpus.name).set(MEMORY, value)


def _version(found: Survey) -> str:
    blocked = [[b.asset, b.partition, b.gate, b.reason] for b in _uncleared(found)]
    return text_sha256(json.dumps([_counts(found), len(found.due), blocked], sort_keys=True))


def _counts(found: Survey) -> dict[str, int]:
    """Return every stage and state with its count; zeros too, so that no plot has a gap."""
    counted = Counter(f"{s.asset}/{s.state}" for s in found.states)
    return {f"{a}/{state}": counted[f"{a}/{state}"] for a in STAGES for state in STATES}


def _uncleared(found: Survey) -> list[Blocked]:
    """Return what gates refuse: by place in the chain, then by key."""
    return sorted(found.blocked, key=lambda b: STAGES.index(b.asset))  # a survey is in key order


def _key(blocked: Blocked) -> str:
    """Return what it is remembered by: no shard has the name of an asset, as it has a `/`."""
    return blocked.partition or blocked.asset


def _states_table(counts: Mapping[str, int]) -> str:
    rows = [[a, *(f"{counts[f'{a}/{state}']:,}" for state in STATES)] for a in STAGES]
    return table(("stage", *STATES), rows)


def _uncleared_table(uncleared: Sequence[Blocked], since: Mapping[str, float], now: float) -> str:
    if not uncleared:
        return "No gate refuses anything."
    rows = [
        [b.partition or "all shards", f"{b.asset}: {b.gate}", b.reason, _age(since[_key(b)], now)]
        for b in uncleared[:SHOWN]
    ]
    more = len(uncleared) - len(rows)
    heading = ("shard", "refused by", "reason", "since")  # the fewer, the more of a reason shows
    note = f"\n\n{more:,} more: `corpus status` lists all." if more else ""
    return table(heading, [[cell(text) for text in row] for row in rows]) + note


def _age(since: float, now: float) -> str:
    hours = max(0, int(now - since)) // 3600
    how_long = f"{hours // 24} days" if hours >= 48 else f"{hours} h"
    return f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(since))} ({how_long})"
