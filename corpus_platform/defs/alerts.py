"""The sensor that tells in Slack what failed, which night was missed, and the nights' heartbeats.

Each once, in order of time: after every post the ledger is written, since a sensor's cursor is not
saved before its tick ends. What cannot be posted stays waiting; nothing of it holds up a run.
"""

import datetime
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # values of JSON
from zoneinfo import ZoneInfo

import dagster as dg
from cronsim import CronSim

from corpus_platform.config import ScheduleSettings
from corpus_platform.defs.failures import ENDED, failures_of, is_retried
from corpus_platform.defs.ledger import FORGET_SECONDS, Cause, Ledger, cause_of, recall
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.messages import (
    Fact,
    FailedNight,
    GateFailure,
    Heartbeat,
    MissedNight,
    messages,
)
from corpus_platform.defs.resources import TASK_TAG, Corpus
from corpus_platform.defs.slack import Slack, connect, is_wanted
from corpus_platform.errors import MissingExtra, SettingsError
from corpus_platform.gates import repeats
from corpus_platform.stages.chain import CHAIN

__all__ = ["build_alerts", "tell"]

UI_URL = "CORPUS_UI_URL"
MAX_RUNS = 200  # read in one tick
MAX_RUNNING = 20  # looked into in each tick; what they say is read again when they ended
LATE_SECONDS = 600.0  # a run's last change may be seen so long after the time that it bears
RETRY_SECONDS = 3600.0  # a retry that Dagster announced and did not begin by then never comes
GRACE_SECONDS = 3600.0  # for the night to start
POSTING_SECONDS = 30.0  # of a tick, of which Dagster allows 60
JUST_BEFORE = 1e-3


@dataclass(frozen=True)
class _Read:
    """A run that was read: its last change, what failed in it, and whether that was all."""

    run_id: str
    changed: float
    facts: Sequence[Fact]
    complete: bool


def build_alerts(corpus: Corpus) -> Sequence[dg.SensorDefinition]:
    """Return the sensor, on from the start; none where no channel was ever named."""
    if not is_wanted(corpus.settings, os.environ):
        return []

    @dg.sensor(
        name="slack_alerts",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells in Slack, once each: failed checks, failed runs, missed nights, heartbeats.",
    )
    def slack_alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return dg.SkipReason(tell(context.instance, corpus, now=time.time()))

    return [slack_alerts]


def tell(instance: dg.DagsterInstance, corpus: Corpus, *, now: float) -> str:
    """Tell what waits to be told; return in words what came of it.

    Raises SettingsError or MissingExtra where nothing can be told, in the first tick that finds so.
    """
    memory = Memory(instance, corpus.name)
    ledger = recall(memory)
    if ledger.upto > now:
        _follow_the_clock(ledger, now)
        ledger.save(memory, now)
    try:
        slack = connect(corpus.settings, os.environ)
    except (SettingsError, MissingExtra) as error:
        if ledger.warned == str(error):
            return ledger.warned
        ledger.warned = str(error)
        ledger.save(memory, now)
        raise
    if not ledger.since or ledger.warned:
        ledger.since, ledger.upto = ledger.since or now, ledger.upto or now
        ledger.warned = ""
        ledger.save(memory, now)
    if now < ledger.pause:
        return f"Slack asked to wait: nothing is sent for {ledger.pause - now:.0f} s more"
    return _Tick(instance, corpus, memory, ledger, now).run(slack)


def _follow_the_clock(ledger: Ledger, now: float) -> None:
    """Go back with a clock that was set back: else nothing is told until it is there again.

    What is read again for its sake is known as told.
    """
    ledger.upto = now - LATE_SECONDS
    ledger.since, ledger.pause = min(ledger.since, ledger.upto), 0.0


class _Tick:
    """One tick that may post."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        corpus: Corpus,
        memory: Memory,
        ledger: Ledger,
        now: float,
    ) -> None:
        self._instance, self._corpus, self._memory = instance, corpus, memory
        self._ledger, self._now = ledger, now

    def run(self, slack: Slack) -> str:
        """Find what is waiting, post it, and note how far all is done with."""
        reads, more = self._read_runs()
        found = [fact for read in [*reads, *self._running()] for fact in read.facts]
        waiting, silent = self._sorted_out([*found, *self._nights()])
        self._ledger.note(silent, self._now)
        words = self._post(slack, waiting)
        if self._advance(reads, more=more) or waiting or silent:
            self._ledger.save(self._memory, self._now)
        return words

    def _post(self, slack: Slack, waiting: Sequence[Fact]) -> str:
        if not waiting:
            return "nothing new to tell"
        told, began = 0, time.monotonic()
        for text, facts in messages(waiting, _ui_url(self._corpus)):
            if time.monotonic() - began > POSTING_SECONDS:
                return f"told {told} of {len(waiting)}; Slack is slow: the others in the next tick"
            failed = slack.post(text)
            if failed is not None:
                self._ledger.pause = self._now + failed.wait_seconds if failed.wait_seconds else 0.0
                return f"{failed.reason}; {len(waiting) - told} of {len(waiting)} are kept waiting"
            told += len(facts)
            self._ledger.note(facts, self._now)
            self._ledger.save(self._memory, self._now)
        return f"told {told}"

    def _sorted_out(self, found: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
        """Return what is to be told, in order of time and each once, and what only follows from it."""
        oldest = max(self._ledger.since, self._now - FORGET_SECONDS)
        fresh: dict[str, Fact] = {}
        for fact in sorted(found, key=lambda f: f.at):
            if fact.at >= oldest and fact.key not in self._ledger.told:
                fresh.setdefault(fact.key, fact)
        causes = {told.cause for told in self._ledger.told.values() if told.cause}
        causes |= {cause for f in fresh.values() if not _misses(f) and (cause := cause_of(f))}
        silent = [f for f in fresh.values() if _follows(f, causes)]
        return [f for f in fresh.values() if f not in silent], silent

    def _read_runs(self) -> tuple[list[_Read], bool]:
        """Return the runs to be done with, by the time of their last change, and whether more wait."""
        ledger = self._ledger
        records = self._instance.get_run_records(
            dg.RunsFilter(statuses=list(ENDED), updated_after=_utc(ledger.upto)),
            limit=MAX_RUNS + len(ledger.done),
            order_by="update_timestamp",
            ascending=True,
        )
        reads = []
        for record in records:
            run, changed = record.dagster_run, record.update_timestamp.timestamp()
            if ledger.done.get(run.run_id) != changed:
                reads.append(self._read(run, changed))
        return reads, len(records) == MAX_RUNS + len(ledger.done)

    def _running(self) -> list[_Read]:
        """Return the newest runs that are still at work, for what gates have said in them."""
        started = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        runs = self._instance.get_runs(started, limit=MAX_RUNNING)
        return [self._read(run, self._now) for run in runs]

    def _read(self, run: dg.DagsterRun, changed: float) -> _Read:
        task = run.tags.get(TASK_TAG, "")
        if task and not task.startswith(f"{self._corpus.name}/"):
            return _Read(run.run_id, changed, (), complete=True)  # its own sensor tells
        retried = is_retried(self._instance, run)
        awaited = retried is None and self._now - changed < RETRY_SECONDS
        facts = failures_of(self._instance, run, retried=bool(retried) or awaited)
        return _Read(run.run_id, changed, facts, complete=not awaited)

    def _advance(self, reads: Sequence[_Read], *, more: bool) -> bool:
        """Note how far all runs are done with; return whether that is worth being saved."""
        ledger, oldest = self._ledger, max(self._ledger.since, self._now - FORGET_SECONDS)
        open_from, changed = self._now - LATE_SECONDS, False
        for read in reads:
            untold = [f for f in read.facts if f.at >= oldest and f.key not in ledger.told]
            if untold or not read.complete:
                open_from = min(open_from, read.changed - JUST_BEFORE)
            if untold:
                break  # those after it are read again: else they pile up while Slack is down
            if read.complete:
                ledger.done[read.run_id] = read.changed
                changed = True
        if more and reads:
            open_from = min(open_from, reads[-1].changed - JUST_BEFORE)
        stale = open_from - ledger.upto > LATE_SECONDS
        ledger.upto = max(ledger.upto, open_from)
        return changed or stale

    def _nights(self) -> Iterator[Fact]:
        """Yield what the nights say, and that one is missing."""
        for beat in self._memory.get("heartbeats") or []:
            yield Heartbeat(beat["night"], beat["text"], beat["at"])
        night = self._memory.get("night")
        if night is not None and (trouble := self._trouble(night)):
            yield FailedNight(night["scheduled"], trouble, night["at"])
        # Of nights less than an hour apart, the last one is never late.
        expected = _last_expected(self._corpus.settings.schedule, self._now - GRACE_SECONDS)
        last = None if night is None else str(night["scheduled"])
        late = expected.timestamp() + GRACE_SECONDS
        if not self._ledger.since < expected.timestamp() or self._now < late:
            return
        started = 0.0 if last is None else datetime.datetime.fromisoformat(last).timestamp()
        if started < expected.timestamp():
            yield MissedNight(expected.isoformat(), last, late, self._corpus.outdated())

    def _trouble(self, night: Mapping[str, Any]) -> str:
        """Say why a night did not list what to make, or came to no runs; nothing where it did."""
        if not night.get("begun", True) and self._now - night["at"] > GRACE_SECONDS:
            return "it was begun and came to no runs: the tick of the schedule says why"
        return str(night.get("trouble", ""))


def _follows(fact: Fact, causes: Iterable[Cause]) -> bool:
    """Tell whether a gate failed only because others did, which are told or were.

    That is so of gates that say again which shards are left out; and of a stage that was refused
    what is not there, where making that, or something before it, failed.
    """
    if not isinstance(fact, GateFailure):
        return False
    if repeats(fact.gate) or not _misses(fact):
        return repeats(fact.gate)
    partitions = {fact.partition, fact.refused_in or None, None}
    order = list(CHAIN)
    before = order[: order.index(fact.asset) + 1] if fact.asset in order else [fact.asset]
    return any(asset in before and partition in partitions for asset, partition in causes)


def _misses(fact: Fact) -> bool:
    """Tell whether a stage was refused because what it reads is not there."""
    return isinstance(fact, GateFailure) and fact.refused_in is not None and fact.gate == "current"


def _last_expected(schedule: ScheduleSettings, now: float) -> datetime.datetime:
    """Return when the schedule was last to start a night."""
    here = datetime.datetime.fromtimestamp(now, tz=ZoneInfo(schedule.timezone))
    # Of an hour that comes twice, Dagster's schedules take the later one.
    return next(CronSim(schedule.cron, here, reverse=True)).replace(fold=1)


def _ui_url(corpus: Corpus) -> str:
    return os.environ.get(UI_URL, "").strip() or corpus.settings.alerts.ui_url


def _utc(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC)
