"""`corpus run`: brings everything up to date, phase by phase, through runs on the instance.

Each phase surveys anew what is due, so that what one made decides what the next has to make.
"""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import psutil
from sqlalchemy.exc import SQLAlchemyError

from corpus_platform.config import Settings
from corpus_platform.defs.home import open_instance, prepare_home
from corpus_platform.defs.jobs import JOB_OF
from corpus_platform.defs.registering import register
from corpus_platform.defs.resources import Corpus
from corpus_platform.defs.status import report_status
from corpus_platform.defs.workers import (
    Progressed,
    Task,
    Workers,
    cause_of,
    fail_unfinished,
    no_room,
)
from corpus_platform.errors import StageFailed, StorageError, place
from corpus_platform.planner import Blocked, Survey, survey
from corpus_platform.stages.project import Project
from corpus_platform.stages.source_manifest import write_source_manifest
from corpus_platform.storage import lease

__all__ = ["RunResult", "Watcher", "run_everything"]

PHASES = (
    ("raw_shards", "cleaned_documents", "minhash_signatures"),
    ("dedup_clusters",),
    ("tokenizer",),
    ("packed_bins",),
    ("shuffled_bins",),
)


@dataclass
class RunResult:
    """What a run did: the last survey, what failed for reasons of code or machine, what gates
    refused, and costs."""

    survey: Survey
    failed: list[str] = field(default_factory=list)
    refused: list[Blocked] = field(default_factory=list)
    restored: tuple[str, ...] = ()  # shards whose partition keys somebody had deleted
    executed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0


@dataclass(frozen=True)
class Watcher:
    """Who hears what happens: phases with their tasks, progress, ended tasks, waiting."""

    phase: Callable[[str, Sequence[Task]], None]
    progressed: Progressed
    ended: Callable[[Task, bool, Sequence[str]], None]
    waiting: Callable[[str], None]


def run_everything(settings: Settings, config_file: Path, watcher: Watcher) -> RunResult:
    """Discover shards, and execute all that is due; return how everything stands.

    Raises StageFailed when the Dagster instance cannot be read or written.
    """
    home = prepare_home(settings, config_file)
    try:
        return _run(settings, config_file, home, watcher)
    except SQLAlchemyError as error:
        words = f"the Dagster instance in {home} failed: {cause_of(error)}{no_room(home / 'logs')}"
        raise StageFailed(words) from error


def _run(settings: Settings, config_file: Path, home: Path, watcher: Watcher) -> RunResult:
    run_lease = settings.storage_path / "leases" / "run.lease"
    with (
        _interruptible(),
        _PeakMemory() as peak,
        lease.hold(run_lease, waiting=watcher.waiting),
        open_instance() as instance,
    ):
        corpus = Corpus(settings, config_file, sha256="")  # whether the file changes is no matter
        words = "the command that drove this run was killed"
        fail_unfinished(instance, words, tasks=f"{corpus.name}/")
        project = corpus.project()
        restored, failed = _register(project, instance)
        result = RunResult(survey(project), failed=failed, restored=restored)
        seconds: Counter[str] = Counter()
        with Workers(instance, project.workers, home / "logs", corpus=corpus.name) as workers:
            for assets in PHASES:
                _run_phase(project, assets, workers, watcher, result, seconds)
        write_source_manifest(project)
        _judge_what_is_left(result)
        report_status(instance, corpus, result.survey, always=True)
        result.seconds = {name: round(value, 3) for name, value in seconds.items()}
    result.peak_rss_bytes = peak.bytes
    return result


def _register(project: Project, instance: dg.DagsterInstance) -> tuple[tuple[str, ...], list[str]]:
    """Register what the sources list; return keys that were deleted, and why the sources cannot be
    listed.

    What is registered already goes on then: a host that is down keeps no stored shard waiting.
    """
    failed = []
    try:
        restored = register(project, instance).restored
    except StorageError as error:
        if not project.registry.keys():
            raise
        restored = register(project, instance, listed=[]).restored
        failed = [f"the sources cannot be listed: {error}"]
    if restored:  # those that `corpus fetch` registered were never there
        known = instance.get_materialized_partitions(dg.AssetKey("raw_shards"))
        restored = tuple(key for key in restored if key in known)
    return restored, failed


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Have Ctrl-C and SIGTERM end the block at once, so that workers and their runs end with it.

    polars puts a handler of its own before Python's, after which the system goes on with an
    interrupted wait: Ctrl-C would be seen when the last task has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    for kind, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup and shells set it
            signal.signal(kind, signal.default_int_handler)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _run_phase(
    project: Project,
    assets: Sequence[str],
    workers: Workers,
    watcher: Watcher,
    result: RunResult,
    seconds: Counter[str],
) -> None:
    tasks = _tasks(assets, result.survey)
    if not tasks:
        return
    watcher.phase(assets[0] if len(assets) == 1 else "ingest", tasks)
    for outcome in workers.run(tasks, watcher.progressed):
        result.executed += 1
        seconds.update(outcome.seconds)
        result.refused += outcome.refusals
        if not outcome.success and not outcome.refusals:
            name = outcome.task.partition or outcome.task.job
            result.failed.append(f"{name}: {'; '.join(outcome.reasons)}")
        watcher.ended(outcome.task, outcome.success, outcome.reasons)
    result.survey = survey(project)


def _tasks(assets: Sequence[str], found: Survey) -> list[Task]:
    """Return the tasks of a phase: once per job and partition."""
    wanted = [s for s in found.states if s.due and s.asset in assets]
    ready = [s for s in wanted if assets == PHASES[0] or not s.waits]  # one job does that phase
    chosen = tuple(assets)  # none else of the job: the status is reported once, at the end
    return list(dict.fromkeys(Task(JOB_OF[s.asset], s.partition, chosen) for s in ready))


def _judge_what_is_left(result: RunResult) -> None:
    """Keep the refusals that no survey shows; what is due still, for no reason told, has failed."""
    known = {(b.asset, b.partition, b.gate) for b in result.survey.blocked}
    told = [r for r in result.refused if (r.asset, r.partition, r.gate) not in known]
    left = result.survey.due
    result.refused = list(dict.fromkeys(told)) if left else []
    if left and not (result.refused or result.failed):
        where = place(left[0].asset, left[0].partition)
        result.failed.append(f"{where} is still due: {left[0].reason}; run again")


class _PeakMemory:
    """The highest resident memory of this process and its children, sampled twice a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.5):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:  # it has just ended
                    continue
            self.bytes = max(self.bytes, total)
