"""A corpus with the real `corpus ui` over it: code server, web server and daemon at work by themselves.

What they do is read from outside: from Dagster's instance, the folder, and the pages' own GraphQL.
Everything is waited for by looking again, and nothing outlives the `with` block.
"""

import contextlib
import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    TypeVar,
)  # Any: values of JSON, and ticks, which Dagster gives no public name

import dagster as dg
import psutil

from corpus_platform_tests.e2e.command import Corpus, Started
from corpus_platform_tests.slack_server import SlackServer

__all__ = ["EVERY_MINUTE", "Live", "live", "prepare"]

EVERY_MINUTE = "* * * * *"
WITHIN = 420.0  # a busy machine takes several times what an idle one does
TOKEN = "xoxb-of-the-tests"
Found = TypeVar("Found")
SELECTOR = {"repositoryLocationName": "corpus_platform", "repositoryName": "__repository__"}
LAUNCH = """mutation($run: ExecutionParams!) { launchPipelineExecution(executionParams: $run) {
    __typename ... on LaunchRunSuccess { run { runId } } } }"""
BACKFILL = """mutation($backfill: LaunchBackfillParams!) {
    launchPartitionBackfill(backfillParams: $backfill) {
        __typename ... on LaunchBackfillSuccess { backfillId } } }"""
RELOAD = """mutation { reloadRepositoryLocation(repositoryLocationName: "corpus_platform") {
    __typename ... on WorkspaceLocationEntry { loadStatus } } }"""


def prepare(corpus: Corpus, slack: SlackServer | None, **sections: object) -> None:
    """Write a night a minute, the stand-in for Slack, and other sections into the settings."""
    alerts = {} if slack is None else {"slack": {"channel": "#corpus", "base_url": slack.base_url}}
    corpus.set(**{"schedule": {"cron": EVERY_MINUTE}, "alerts": alerts, **sections})


@contextlib.contextmanager
def live(
    corpus: Corpus, *, token: str = TOKEN, fault: Mapping[str, object] | None = None
) -> Generator["Live"]:
    """Serve a corpus by `corpus ui` while the block runs; an empty token is none."""
    environment = {"SLACK_BOT_TOKEN": token} if token else {}
    home = str(corpus.data / ".dagster")
    ui = corpus.start("ui", "--port", "0", environment=environment, fault=fault)
    try:
        url = _address(ui)
        with dg.DagsterInstance.from_config(home) as instance:
            yield Live(corpus, ui, url, instance)
    finally:
        ui.kill()


def _cause(error: Any) -> str:  # of a tick
    """Return the words of the error behind an error; nothing where there is none."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else error.message


def _address(ui: Started) -> str:
    until = time.monotonic() + 180
    while (said := re.search(r"web UI: (http://127\.0\.0\.1:\d+)", ui.printed())) is None:
        assert ui.process.poll() is None, ui.printed()
        assert time.monotonic() < until, ui.printed()
        time.sleep(0.1)
    return said[1]


@dataclass(frozen=True)
class Live:
    """A corpus that is being served."""

    corpus: Corpus
    ui: Started
    url: str
    instance: dg.DagsterInstance

    def wait_for(
        self, what: str, look: Callable[[], Found | None], *, within: float = WITHIN
    ) -> Found:
        """Look until something is found, and return it; fail where it never comes."""
        until = time.monotonic() + within
        while not (found := look()):
            assert self.ui.process.poll() is None, f"corpus ui ended:\n{self.ui.printed()}"
            assert time.monotonic() < until, f"it never came: {what}\n{self.story()}"
            time.sleep(0.3)
        return found

    def story(self) -> str:
        """Return what the runs and ticks were, for whoever reads why a test failed."""
        runs = [
            f"{r.create_timestamp:%X} {r.dagster_run.job_name}"
            f" {r.dagster_run.tags.get('dagster/partition', '')} {r.dagster_run.status.value}"
            for r in reversed(self.instance.get_run_records(limit=40))
        ]
        names = ("nightly", "carry_on", "slack_alerts")
        ticks = [f"{name}: {said}" for name in names for said in self.said(name, limit=8)]
        return "\n".join([*runs, *ticks])

    def said(self, name: str, *, limit: int = 200) -> list[str]:
        """Return what the latest ticks of a schedule or sensor said, the latest first.

        That is their reason to skip, the runs asked for, or the error.
        """
        return [
            tick.skip_reason or _cause(tick.error) or f"{tick.status.value} {len(tick.run_ids)}"
            for tick in self._ticks(name, limit)
        ]

    def statuses(self, name: str) -> list[str]:
        """Return how the latest ticks of a schedule or sensor ended, the latest first."""
        return [tick.status.value for tick in self._ticks(name, 200)]

    def _ticks(self, name: str, limit: int) -> list[Any]:
        """Return the latest ticks that have ended: besides them one may be at work."""
        found = [
            tick
            for state in self.instance.all_instigator_state()
            if state.instigator_name == name
            for tick in self.instance.get_ticks(
                state.instigator_origin_id, state.selector_id, limit=limit + 1
            )
        ]
        return [tick for tick in found if tick.is_completed][:limit]

    def runs(self, job: str, partition: str | None = None) -> list[dg.DagsterRun]:
        """Return the runs of a job, the latest first."""
        tags = {} if partition is None else {"dagster/partition": partition}
        return list(self.instance.get_runs(dg.RunsFilter(job_name=job, tags=tags)))

    def ended(self, run_id: str) -> dg.DagsterRun:
        """Return a run when it has ended."""

        def look() -> dg.DagsterRun | None:
            run = self.instance.get_run_by_id(run_id)
            return run if run is not None and run.is_finished else None

        return self.wait_for(f"the end of run {run_id}", look)

    def first_ended(self, job: str, partition: str | None = None) -> dg.DagsterRun:
        """Return a run of a job when there is one and it has ended."""

        def look() -> dg.DagsterRun | None:
            return next((run for run in self.runs(job, partition) if run.is_finished), None)

        return self.wait_for(f"the end of a run of {job} for {partition}", look)

    def steps(self, run: dg.DagsterRun, kind: dg.DagsterEventType) -> set[str]:
        """Return the steps of a run of which there is an event of a kind."""
        records = self.instance.get_records_for_run(run.run_id, of_type={kind}).records
        return {r.event_log_entry.step_key or "" for r in records}

    def materialized(self, asset: str) -> Counter[str]:
        """Return how often each partition of an asset was materialized."""
        found = self.instance.fetch_materializations(dg.AssetKey(asset), limit=1000).records
        return Counter(record.partition_key or "" for record in found)

    def in_force(self) -> str:
        """Return the id of the release that is in force."""
        return json.loads((self.corpus.data / "releases" / "current.json").read_bytes())["id"]

    def releases(self) -> set[str]:
        """Return the ids of all releases."""
        return {p.parent.name for p in self.corpus.data.glob("releases/*/manifest.json")}

    def logs(self) -> str:
        """Return what code server, web server and daemon have logged."""
        folder = self.corpus.data / ".dagster" / "logs"
        return "\n".join(p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.log")))

    def process_of(self, module: str) -> psutil.Process:
        """Return the process of `corpus ui` that runs a Dagster module on its leash."""
        for process in self.ui.members():
            with contextlib.suppress(psutil.Error):
                if {"corpus_platform.defs.leashed", module} <= set(process.cmdline()):
                    return process
        raise AssertionError(f"{module} does not run")

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """Ask the web server as its pages do; return its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            said = json.load(answer)
        assert said.get("errors") is None, said
        return said["data"]

    def launch(self, asset: str, shard: str) -> str:
        """Launch one partition of one asset as a person would; return the id of the run."""
        run = {
            "selector": {
                **SELECTOR,
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": [asset]}],
            },
            "runConfigData": "{}",
            "mode": "default",
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": shard}]},
        }
        return self.ask(LAUNCH, run=run)["launchPipelineExecution"]["run"]["runId"]

    def backfill(self, assets: Sequence[str], shards: Sequence[str]) -> str:
        """Launch a backfill of assets as a person would; return its id."""
        backfill = {
            "selector": None,
            "assetSelection": [{"path": [asset]} for asset in assets],
            "partitionNames": list(shards),
        }
        said = self.ask(BACKFILL, backfill=backfill)["launchPartitionBackfill"]
        return said["backfillId"]

    def reload(self) -> None:
        """Load the settings anew, as the button of the Deployment page does."""
        said = self.ask(RELOAD)["reloadRepositoryLocation"]
        assert said["__typename"] == "WorkspaceLocationEntry", said
