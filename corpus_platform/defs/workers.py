"""The pool of worker processes that a driving command runs partitions in.

Each worker executes one run at a time on the shared instance. A worker that dies takes its run
with it: the run is reported failed here, and a fresh worker takes the next task.
"""

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

import dagster as dg

from corpus_platform.defs.worker import TASK_TAG
from corpus_platform.errors import StageFailed

__all__ = ["Outcome", "Progressed", "Task", "Workers"]


@dataclass(frozen=True)
class Task:
    """A job to execute, for one partition where it has partitions."""

    job: str
    partition: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a task. `refused`: a gate or an uncleared input stopped it, no fault."""

    task: Task
    success: bool
    refused: bool = False
    reasons: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


Progressed = Callable[[Task, str, int, int | None], None]  # task, asset, done, total


class Workers:
    """At most `count` worker processes, started when first needed and kept."""

    def __init__(self, instance: dg.DagsterInstance, count: int, log_folder: Path) -> None:
        self._instance, self._count, self._logs = instance, count, log_folder
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, tasks: Sequence[Task], progressed: Progressed) -> Iterator[Outcome]:
        """Execute tasks side by side; yield outcomes as they come."""
        with ThreadPoolExecutor(max(1, min(self._count, len(tasks)))) as pool:
            futures = [pool.submit(self._execute, task, progressed) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.stop()
                raise

    def stop(self) -> None:
        """End all workers at once."""
        with self._lock:
            for worker in self._all:
                worker.stop()
            self._all.clear()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _execute(self, task: Task, progressed: Progressed) -> Outcome:
        worker = self._take()
        outcome = worker.execute(task, progressed)
        if outcome is None:
            self._bury(worker)
            return Outcome(task, success=False, reasons=(worker.obituary(self._instance),))
        self._idle.put(worker)
        return outcome

    def _take(self) -> "_Worker":
        if not self._idle.empty():
            return self._idle.get()
        with self._lock:
            worker = _Worker(self._logs / f"worker-{len(self._all)}.log")
            self._all.append(worker)
        return worker

    def _bury(self, worker: "_Worker") -> None:
        worker.stop()
        with self._lock:
            if worker in self._all:
                self._all.remove(worker)


class _Worker:
    """One child process; its standard error goes to a log file."""

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._task_id = ""
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

    def execute(self, task: Task, progressed: Progressed) -> Outcome | None:
        """Return the outcome of a task, None when the process died on it."""
        self._task_id = uuid.uuid4().hex
        message = {"job": task.job, "id": self._task_id}
        if task.partition is not None:
            message["partition"] = task.partition
        try:
            self._pipe_in.write(json.dumps(message) + "\n")
            self._pipe_in.flush()
        except (BrokenPipeError, ValueError):
            return None
        for line in self._pipe_out:
            answer = json.loads(line)
            if answer["event"] == "progress":
                progressed(task, answer["asset"], answer["done"], answer["total"])
            elif answer["event"] == "done":
                return _outcome(task, answer)
        return None

    def obituary(self, instance: dg.DagsterInstance) -> str:
        """Report the run that died with the process as failed; return what happened, in words."""
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        words = f"the worker process ended by {how}; its log is {self._log}"
        unfinished = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING]
        filters = dg.RunsFilter(tags={TASK_TAG: self._task_id}, statuses=unfinished)
        for run in instance.get_runs(filters):
            instance.report_run_failed(run, words)
        return words

    def stop(self) -> None:
        """Kill the process and whatever it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

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


def _outcome(task: Task, answer: dict) -> Outcome:
    failures = answer["failures"]
    return Outcome(
        task,
        success=answer["success"],
        refused=bool(failures) and all(f["refused"] == "True" for f in failures),
        reasons=tuple(f["reason"] for f in failures),
        seconds=answer["seconds"],
    )
