"""Pruning of Dagster's history: runs that ended long ago go, what the UI shows of them stays.

A run stays while it holds the newest materialization, attempt, observation or check of any
partition of any asset: statuses of partitions and checks are the same before and after. Only
methods of the storage are used, so that it works on SQLite and on Postgres.
"""

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from corpus_platform.defs.failures import ENDED

__all__ = ["Pruned", "prune"]

PAGE = 200  # runs, or events, that are in memory at once
MADE, SEEN = dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION
CHECKED = {
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
}

JUDGED = ("SUCCEEDED", "FAILED")  # of a check; what was only planned is neither


@dataclass(frozen=True)
class Pruned:
    """How many of the old runs were removed, and how many kept."""

    removed: int
    kept: int


def prune(
    instance: dg.DagsterInstance,
    before: datetime.datetime,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pruned:
    """Remove runs that ended before a time; `progress` hears of runs looked at, of all old ones.

    Runs go one by one: whoever stops it, stops it between two.
    """
    old = dg.RunsFilter(statuses=list(ENDED), updated_before=before)
    total, newest = instance.get_runs_count(old), _Newest(instance)
    removed = kept = 0
    for run_id in _run_ids(instance, old):
        if newest.is_in(run_id):
            kept += 1
        else:
            _remove(instance, run_id)
            removed += 1
        progress(removed + kept, total)
    return Pruned(removed, kept)


def _run_ids(instance: dg.DagsterInstance, old: dg.RunsFilter) -> Iterator[str]:
    """Yield run ids, oldest first. A page is asked for before the last run of the one before it is
    removed, which says where it begins."""
    page = instance.get_run_records(old, limit=PAGE, ascending=True)
    while page:
        last = page[-1].dagster_run.run_id
        following = instance.get_run_records(old, limit=PAGE, ascending=True, cursor=last)
        yield from (record.dagster_run.run_id for record in page)
        page = following


def _remove(instance: dg.DagsterInstance, run_id: str) -> None:
    """Remove a run with its events and its captured output."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    # SQLite has a file per run, which Dagster empties and leaves there.
    path_of = getattr(instance.event_log_storage, "path_for_shard", None)
    if path_of is not None:
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(path_of(run_id) + end).unlink()


class _Newest:
    """The runs that hold what is newest of something. What it remembers grows with partitions, not
    with the history."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance, self._events = instance, instance.event_log_storage
        self._checks: set[dg.AssetCheckKey] = set()
        self._runs: set[str] = set()
        for asset in instance.get_asset_keys():
            self._runs.update(self._of_asset(asset))

    def is_in(self, run_id: str) -> bool:
        """Tell whether a run holds anything newest."""
        if run_id in self._runs:
            return True
        for check in self._checks_of(run_id) - self._checks:  # no storage lists all checks
            self._checks.add(check)
            self._runs.update(self._of_check(check))
        return run_id in self._runs

    def _of_asset(self, asset: dg.AssetKey) -> Iterator[str]:
        for record in self._instance.get_asset_records([asset]):
            entry = record.asset_entry
            for event in (entry.last_materialization_record, entry.last_observation_record):
                if event is not None:
                    yield event.run_id
            if entry.last_run_id is not None:
                yield entry.last_run_id
        planned = self._events.get_latest_planned_materialization_info(asset)
        if planned is not None:
            yield planned.run_id
        # An attempt that made nothing shows as failed.
        attempts = self._events.get_latest_asset_partition_materialization_attempts_without_materializations
        yield from (run_id for run_id, _ in attempts(asset).values())
        yield from self._of_partitions(asset, MADE)
        yield from self._of_partitions(asset, SEEN)

    def _of_partitions(self, asset: dg.AssetKey, kind: dg.DagsterEventType) -> Iterator[str]:
        latest = self._events.get_latest_storage_id_by_partition(asset, kind)
        fetch = (
            self._events.fetch_materializations if kind == MADE else self._events.fetch_observations
        )
        for ids in _pages(sorted(latest.values())):
            wanted = dg.AssetRecordsFilter(asset, storage_ids=ids)
            yield from (record.run_id for record in fetch(wanted, limit=len(ids)).records)

    def _checks_of(self, run_id: str) -> set[dg.AssetCheckKey]:
        records = self._instance.get_records_for_run(run_id, of_type=CHECKED).records
        events = [r.event_log_entry.get_dagster_event() for r in records]
        return {
            e.asset_check_evaluation_data.asset_check_key
            if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
            else e.asset_check_planned_data.asset_check_key
            for e in events
        }

    def _of_check(self, check: dg.AssetCheckKey) -> Iterator[str]:
        never_judged: set[str | None] = set()
        for info in self._events.get_asset_check_partition_info([check]):
            yield info.latest_planned_run_id
            if info.latest_execution_status.value not in JUDGED:
                never_judged.add(info.partition_key)
        yield from self._last_judged(check, never_judged)

    def _last_judged(self, check: dg.AssetCheckKey, partitions: set[str | None]) -> Iterator[str]:
        """Yield the runs of the last result of partitions whose last run never got to one."""
        cursor = None
        while partitions:
            page = self._events.get_asset_check_execution_history(check, PAGE, cursor)
            if not page:
                return
            for record in page:
                if record.partition in partitions and record.status.value in JUDGED:
                    partitions.remove(record.partition)
                    yield record.run_id
            cursor = page[-1].id


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(ids), PAGE):
        yield ids[first : first + PAGE]
