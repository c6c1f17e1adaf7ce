"""The pool of worker processes that a driving command runs partitions in.

Each worker executes one run at a time on the shared instance. A worker that dies takes its run
with it: the run is reported failed here, and a fresh worker takes the next task.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from corpus_platform.defs.resources import TASK_TAG
from corpus_platform.errors import StageFailed
from corpus_platform.planner import Blocked

__all__ = [
    "Outcome",
    "Progressed",
    "Task",
    "Workers",
    "cause_of",
    "fail_unfinished",
    "is_driven",
    "no_room",
]

FEW_BYTES = 1 << 24  # SQLite calls a full disk an I/O error: what is left tells
UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
)


@dataclass(frozen=True)
class Task:
    """Assets of a job to execute, for one partition where it has partitions."""

    job: str
    partition: str | None = None
    assets: tuple[str, ...] = ()  # none: all of the job


@dataclass(frozen=True)
class Outcome:
    """What became of a task. `refusals`: the gates that stopped it, where no fault did."""

    task: Task
    success: bool
    refusals: tuple[Blocked, ...] = ()
    reasons: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


Progressed = Callable[[Task, str, int, int | None], None]  # task, asset, done, total


class Workers:
    """At most `count` worker processes, started when first needed and kept.

    `corpus` begins the names of their tasks.
    """

    def __init__(
        self, instance: dg.DagsterInstance, count: int, log_folder: Path, *, corpus: str
    ) -> None:
        self._instance, self._count, self._logs = instance, count, log_folder
        self._corpus = corpus
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._started = 0

    def run(self, tasks: Sequence[Task], progressed: Progressed) -> Iterator[Outcome]:
        """Execute tasks side by side; yield outcomes as they come."""
        self._retire(keep=len(tasks))
        with ThreadPoolExecutor(max(1, min(self._count, len(tasks)))) as pool:
            futures = [pool.submit(self._execute, task, progressed) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.stop()  # the threads see their workers' ends, so that the pool's comes soon
                raise

    def _retire(self, *, keep: int) -> None:
        """End idle workers that no task needs: each holds 0.3 GB that an all-shard stage may want."""
        while self._idle.qsize() > keep:
            self._bury(self._idle.get_nowait())

    def stop(self) -> None:
        """Kill all workers at once, and start no more."""
        with self._lock:
            self._stopped = True
            for worker in self._all:
                worker.kill()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        for worker in self._all:
            worker.close()

    def _execute(self, task: Task, progressed: Progressed) -> Outcome:
        worker = self._take()
        while not worker.is_alive():  # it died while it was idle, and this task is none of its
            self._bury(worker)
            worker = self._take()
        outcome = worker.execute(task, progressed)
        if outcome is None:
            self._bury(worker)
            return Outcome(task, success=False, reasons=(worker.obituary(self._instance),))
        self._idle.put(worker)
        return outcome

    def _take(self) -> "_Worker":
        with contextlib.suppress(Empty):
            return self._idle.get_nowait()
        with self._lock:
            if self._stopped:
                raise StageFailed("the command is ending: no more work is begun")
            worker = _Worker(self._logs / f"worker-{self._started}.log", self._corpus)
            self._all.append(worker)
            self._started += 1
        return worker

    def _bury(self, worker: "_Worker") -> None:
        worker.kill()
        worker.close()
        with self._lock:
            if worker in self._all:
                self._all.remove(worker)


class _Worker:
    """One child process; its standard error goes to a log file."""

    def __init__(self, log: Path, corpus: str) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log, self._corpus = log, corpus
        self._task_id = self._last_words = ""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "corpus_platform.defs.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # an interrupt of the terminal is ours to pass on
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def is_alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._process.poll() is None

    def execute(self, task: Task, progressed: Progressed) -> Outcome | None:
        """Return the outcome of a task, None when the process died on it."""
        self._task_id = f"{self._corpus}/{uuid.uuid4().hex[:12]}"
        message: dict[str, object] = {"job": task.job, "id": self._task_id}
        message["assets"] = list(task.assets)
        if task.partition is not None:
            message["partition"] = task.partition
        try:
            self._pipe_in.write(json.dumps(message) + "\n")
            self._pipe_in.flush()
        except (BrokenPipeError, ValueError):
            return None
        for line in self._pipe_out:
            try:
                answer = json.loads(line)
            except ValueError:  # cut by the end of the process
                return None
            if answer["event"] == "progress":
                progressed(task, answer["asset"], answer["done"], answer["total"])
            elif answer["event"] == "done":
                return _outcome(task, answer)
            elif answer["event"] == "fell":
                self._last_words = answer["reason"]
        return None

    def obituary(self, instance: dg.DagsterInstance) -> str:
        """Report the run that died with the process as failed; return what happened, in words."""
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        why = f": {self._last_words}" if self._last_words else ""
        words = (
            f"the worker process ended by {how}{why}; its log is {self._log}{no_room(self._log)}"
        )
        try:
            fail_unfinished(instance, words, tasks=self._task_id)
        except SQLAlchemyError as error:  # the next command does it
            words += f"; its run could not be reported failed: {cause_of(error)}"
        return words

    def kill(self) -> None:
        """Kill the process and whatever it started."""
        if self._process.returncode is None:  # not reaped, so that the group's number is still its
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Close the pipes to a dead process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    @property
    def _pipe_in(self):
        if self._process.stdin is None:
            raise StageFailed("a worker has no standard input")
        return self._process.stdin

    @property
    def _pipe_out(self):
        if self._process.stdout is None:
            raise StageFailed("a worker has no standard output")
        return self._process.stdout


def cause_of(error: SQLAlchemyError) -> str:
    """Return what the database said, without the statement that it said it to."""
    return str(getattr(error, "orig", None) or error).strip()


def no_room(path: Path) -> str:
    """Return in words that the disk of a file is nearly full, nothing where it is not."""
    free = shutil.disk_usage(path.parent).free
    return f"; only {free:,} bytes are free on its disk" if free < FEW_BYTES else ""


def fail_unfinished(instance: dg.DagsterInstance, words: str, *, tasks: str) -> None:
    """Report runs of workers that are dead as failed: those whose task begins with `tasks`.

    A task begins with its corpus, since several may share an instance.
    """
    for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED))):
        if is_driven(run) and run.tags[TASK_TAG].startswith(tasks):
            instance.report_run_failed(run, words)


def is_driven(run: dg.DagsterRun) -> bool:
    """Tell whether a command's worker executes a run, and not the daemon.

    A run that was started anew in the UI bears its parent's tags, and is no worker's.
    """
    return TASK_TAG in run.tags and run.parent_run_id is None


def _outcome(task: Task, answer: dict) -> Outcome:
    failures = answer["failures"]
    faults = [f for f in failures if f["refusal"] is None]
    return Outcome(
        task,
        success=answer["success"],
        refusals=() if faults else tuple(Blocked(**f["refusal"]) for f in failures),
        reasons=tuple(f["reason"] for f in failures),
        seconds=answer["seconds"],
    )
