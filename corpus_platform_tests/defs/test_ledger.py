"""Tests of the ledger: what it keeps, for how long, and what it knows of what was told."""

from dataclasses import replace
from pathlib import Path

import dagster as dg

from corpus_platform.defs.ledger import Ledger, cause_of, recall
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.messages import CrashedCheck, FailedRun, GateFailure, Heartbeat
from corpus_platform_tests.instances import in_folder, in_memory

DAY = 24 * 3600.0
GATE = GateFailure("raw_shards", "2026-40/a", "sha256", "differs", "c1", "run", 1.0)
RUN = FailedRun("ingest_shard", "raw_shards", "2026-40/a", "disk full", "run", 1.0)


def memory(instance: dg.DagsterInstance) -> Memory:
    """Return the memory of a corpus."""
    return Memory(instance, "abcdef01")


def test_a_ledger_comes_back_as_it_was_saved_in_another_process(tmp_path: Path) -> None:
    ledger = Ledger(since=5.0, upto=6.0, done={"r1": 7.5}, pause=8.0, warned="no token")
    ledger.note([GATE, RUN, Heartbeat("n", "all well", 1.0)], now=10.0)
    with in_folder(tmp_path / "instance") as instance:
        ledger.save(memory(instance), now=10.0)
    with in_folder(tmp_path / "instance") as anew:
        assert recall(memory(anew)) == ledger


def test_before_anything_was_saved_the_ledger_is_empty() -> None:
    with in_memory() as instance:
        assert recall(memory(instance)) == Ledger()


def test_what_was_told_leaves_after_thirty_days_and_runs_when_all_before_are_done() -> None:
    ledger = Ledger(upto=7.0, done={"old": 6.0, "new": 8.0})
    ledger.note([GATE], now=DAY)
    ledger.note([RUN], now=2 * DAY)
    with in_memory() as instance:
        ledger.save(memory(instance), now=31.5 * DAY)
        kept = recall(memory(instance))
    assert list(kept.told) == [RUN.key]
    assert kept.done == {"new": 8.0}


def test_what_stops_a_shard_may_be_why_something_is_missing_and_a_warning_not() -> None:
    crash = CrashedCheck("raw_shards", "2026-40/a", "raw_shards_gates", "KeyError", "run", 1.0)
    where = ("raw_shards", "2026-40/a")
    assert [cause_of(fact) for fact in (GATE, RUN, crash)] == [where, where, where]
    assert cause_of(replace(GATE, severity="WARN")) is None
    assert cause_of(replace(RUN, asset=None)) is None
    assert cause_of(Heartbeat("n", "all well", 1.0)) is None
