"""What the tests of alerts share: an instance and a server for Slack, and tiny definitions that fail.

Everything is real: an instance, runs in process, HTTP on loopback.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from corpus_platform.defs.alerts import tell
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.resources import Corpus
from corpus_platform_tests.instances import QUIET
from corpus_platform_tests.slack_server import SlackServer

__all__ = [
    "TOKEN",
    "Check",
    "Scene",
    "checked",
    "crashing",
    "failing",
    "raising",
    "refusing",
]

TOKEN = "xoxb-1234-secret"
THINGS = dg.DynamicPartitionsDefinition(name="things")
Check = Callable[[], dg.AssetCheckResult]


@dataclass
class Scene:
    """An instance, a corpus whose alerts go to a server, and what is run and told there."""

    folder: Path
    instance: dg.DagsterInstance
    corpus: Corpus
    server: SlackServer
    words: list[str] = field(default_factory=list)

    def tick(self, *, later: float = 0.0) -> str:
        """Run one tick, `later` seconds from now; return its words."""
        self.words.append(tell(self.instance, self.corpus, now=time.time() + later))
        return self.words[-1]

    @property
    def memory(self) -> Memory:
        """What ticks know of earlier ones."""
        return Memory(self.instance, self.corpus.name)

    def run(
        self,
        definitions: dg.Definitions,
        *assets: str,
        partition: str = "2026-40/a",
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run assets with their checks for a partition, whatever becomes of it."""
        self.instance.add_dynamic_partitions("things", [partition])
        job = dg.define_asset_job("things_job", selection=dg.AssetSelection.assets(*assets))
        whole = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
        return whole.resolve_job_def("things_job").execute_in_process(
            instance=self.instance,
            partition_key=partition,
            tags=tags,
            run_config=QUIET,
            raise_on_error=False,
        )


def failing(
    *,
    gate: str = "fits",
    content: str = "c1",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    reason: str = "too much of it",
) -> Check:
    """Return what a failing check says."""
    metadata = {"value": 0.6, "limit": 0.5, "reason": reason, "content": content}
    return lambda: dg.AssetCheckResult(
        asset_key="thing", check_name=gate, passed=False, severity=severity, metadata=metadata
    )


def crashing() -> dg.AssetCheckResult:
    """Raise instead of saying anything."""
    raise ZeroDivisionError("no documents to divide by")


def checked(
    *checks: tuple[str, Check], blocking: bool = True, then: Callable[[], object] = bool
) -> dg.Definitions:
    """Return an asset `thing` with checks, and `next_thing` after it; both may be retried twice.

    `then` is called by `next_thing`.
    """
    retry = dg.RetryPolicy(max_retries=2)

    @dg.asset(partitions_def=THINGS, retry_policy=retry)
    def thing() -> None: ...

    @dg.asset(partitions_def=THINGS, deps=[thing], retry_policy=retry)
    def next_thing() -> None:
        then()

    specs = [
        dg.AssetCheckSpec(name, asset="thing", blocking=blocking, partitions_def=THINGS)
        for name, _ in checks
    ]

    @dg.multi_asset_check(name="thing_gates", specs=specs)
    def thing_gates() -> Iterator[dg.AssetCheckResult]:
        for _, check in checks:
            yield check()

    return dg.Definitions(
        assets=[thing, next_thing], asset_checks=[thing_gates], executor=dg.in_process_executor
    )


def raising(error: Callable[[], Exception], *, retries: int = 0) -> dg.Definitions:
    """Return an asset `thing` that raises."""

    @dg.asset(partitions_def=THINGS, retry_policy=dg.RetryPolicy(max_retries=retries))
    def thing() -> None:
        raise error()

    return dg.Definitions(assets=[thing], executor=dg.in_process_executor)


def refusing(
    *,
    asset: str = "thing",
    gate: str = "fits",
    content: str = "c1",
    reason: str = "too much of it",
    partition: str = "2026-40/a",
) -> dg.Definitions:
    """Return an asset `thing` that refuses to read an artifact for a gate of its."""
    metadata = {
        "asset": asset,
        "partition": partition,
        "gate": gate,
        "reason": reason,
        "content": content,
    }
    words = f"{asset}: {gate}: {reason}"
    return raising(lambda: dg.Failure(words, metadata=metadata, allow_retries=False))
