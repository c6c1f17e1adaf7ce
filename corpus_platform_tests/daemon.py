"""The daemon's part, played in this process: ticks, and the runs they ask for.

Run keys count as in Dagster: one run for each, whatever becomes of it. What a killed daemon leaves
behind is made by stopping between the steps. The real daemon is in the tests of the web UI.
"""

import datetime
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from corpus_platform.defs.location import build_definitions
from corpus_platform_tests.instances import QUIET, in_folder

__all__ = ["Daemon", "Tick"]

RUN_KEY = "dagster/run_key"


@dataclass(frozen=True)
class Tick:
    """What an evaluation asked for, or why for nothing."""

    requests: list[dg.RunRequest]
    said: str = ""

    @property
    def shards(self) -> list[str | None]:
        """The partitions asked for."""
        return [request.partition_key for request in self.requests]


class _Night(dg.ScheduleEvaluationContext):
    """The context of an evaluation; the one that Dagster builds has no instance that is in memory."""

    def __init__(self, instance: dg.DagsterInstance, when: datetime.datetime) -> None:
        super().__init__(instance_ref=None, scheduled_execution_time=when)
        self._open = instance

    @property
    def instance(self) -> dg.DagsterInstance:
        return self._open


class Daemon:
    """A daemon over one settings file; `reload` loads its definitions anew.

    `home` is the folder of its instance, or an instance that is open.
    """

    def __init__(self, config: Path, home: Path | dg.DagsterInstance) -> None:
        self.config, self._home = config, home
        self.cursor: str | None = None
        self.reload()

    def reload(self) -> None:
        """Load the code location."""
        self._repository = build_definitions(self.config).get_repository_def()

    @contextmanager
    def instance(self) -> Generator[dg.DagsterInstance]:
        """Open its instance, as every process does for itself, where it lies in a folder."""
        if isinstance(self._home, dg.DagsterInstance):
            yield self._home
            return
        with in_folder(self._home) as instance:
            yield instance

    def night(self, when: datetime.datetime) -> Tick:
        """Evaluate the schedule."""
        schedule = self._repository.get_schedule_def("nightly")
        with self.instance() as instance, _Night(instance, when) as context:
            said = schedule(context)
        if isinstance(said, dg.SkipReason):
            return Tick([], said.skip_message or "")
        assert isinstance(said, list)
        return Tick([r for r in said if isinstance(r, dg.RunRequest)])

    def look(self) -> Tick:
        """Evaluate the sensor `carry_on`."""
        sensor = self._repository.get_sensor_def("carry_on")
        with (
            self.instance() as instance,
            dg.build_sensor_context(instance=instance, cursor=self.cursor) as context,
        ):
            said = sensor(context)
        if isinstance(said, dg.SkipReason):
            return Tick([], said.skip_message or "")
        assert isinstance(said, dg.SensorResult)
        self.cursor = said.cursor if said.cursor is not None else self.cursor
        words = said.skip_reason.skip_message if said.skip_reason is not None else None
        return Tick(list(said.run_requests or ()), words or "")

    def run(self, tick: Tick) -> list[tuple[str, str, bool]]:
        """Execute what was asked for and not yet run; return job, partition and success of each."""
        return list(self._run(tick.requests))

    def begin(self, instance: dg.DagsterInstance, request: dg.RunRequest) -> dg.DagsterRun:
        """Make the run of a request without executing it."""
        return instance.create_run_for_job(
            self._repository.get_job(request.job_name or "ingest_shard"),
            tags={
                **request.tags,
                RUN_KEY: request.run_key or "",
                "dagster/partition": request.partition_key or "",
            },
        )

    def _run(self, requests: Iterable[dg.RunRequest]) -> Iterator[tuple[str, str, bool]]:
        for request in requests:
            with self.instance() as instance:
                known = dg.RunsFilter(tags={RUN_KEY: request.run_key or ""})
                if request.run_key is not None and instance.get_runs(known, limit=1):
                    continue
                name = request.job_name or "ingest_shard"
                result = self._repository.get_job(name).execute_in_process(
                    instance=instance,
                    partition_key=request.partition_key,
                    tags={**request.tags, RUN_KEY: request.run_key or ""},
                    run_config=QUIET,
                    raise_on_error=False,
                )
            yield name, request.partition_key or "", result.success

    def settle(self, *, ticks: int = 20) -> list[tuple[str, str, bool]]:
        """Tick and run until nothing is asked for; return what was run."""
        done: list[tuple[str, str, bool]] = []
        for _ in range(ticks):
            tick = self.look()
            if not tick.requests:
                return done
            done += self.run(tick)
        raise AssertionError(f"it never settles: {done}")
