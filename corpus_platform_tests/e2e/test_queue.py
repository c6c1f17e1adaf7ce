"""The command and the daemon's queue: who tells the status, and that heavy runs go one by one."""

import itertools
import json
import re
import time
import urllib.request
from typing import Any

import dagster as dg
import pytest

from corpus_platform_tests.e2e.command import Corpus, Started
from corpus_platform_tests.small import SHARDS

STATUS = dg.AssetKey("corpus_status")
LAUNCH = """mutation($run: ExecutionParams!) { launchPipelineExecution(executionParams: $run) {
    __typename ... on LaunchRunSuccess { run { runId } } } }"""
WITHIN = 240.0


def _told(corpus: Corpus) -> list[dg.EventLogRecord]:
    with dg.DagsterInstance.from_config(str(corpus.data / ".dagster")) as instance:
        return list(instance.fetch_materializations(STATUS, limit=100, ascending=True).records)


def test_the_command_tells_the_status_once_at_its_end_and_its_workers_do_not(made: Corpus) -> None:
    assert made.run()[0].code == 0  # nothing is due
    events = _told(made)
    assert len(events) == 2  # one of the run that made everything
    assert {e.run_id for e in events} == {""}
    assert [_number(e, "packed_bins/current") for e in events] == [3, 3]
    assert [_number(e, "due") for e in events] == [0, 0]


def test_the_command_tells_what_it_could_not_do(made: Corpus) -> None:
    made.set(checks={"max_drop_share": {"char_repeat": 0.0001}})
    assert made.run()[0].code == 1
    assert _number(_told(made)[-1], "cleaned_documents/blocked") >= 1


def _number(record: dg.EventLogRecord, name: str) -> int:
    assert record.asset_materialization is not None
    value = record.asset_materialization.metadata[name].value
    assert isinstance(value, int)
    return value


@pytest.mark.slow
@pytest.mark.xdist_group("ui")
def test_of_queued_runs_over_all_shards_one_runs_at_a_time(made: Corpus) -> None:
    known = {run.run_id for run in made.dagster_runs()}
    ui = made.start("ui", "--port", "0")
    try:
        url = _address(ui)
        for job in ("build_corpus", "publish_release", "build_corpus"):
            _launch(url, job)
        _launch(url, "ingest_shard", SHARDS[2])
        runs = _succeeded(made, known, count=4)
    finally:
        ui.kill()
    heavy = [r for r in runs if r.dagster_run.job_name != "ingest_shard"]
    spans = sorted((r.start_time or 0.0, r.end_time or 0.0) for r in heavy)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert end <= start


def _address(ui: Started) -> str:
    until = time.monotonic() + 120
    while (said := re.search(r"web UI: (http://127\.0\.0\.1:\d+)", ui.printed())) is None:
        assert ui.process.poll() is None, ui.printed()
        assert time.monotonic() < until, ui.printed()
        time.sleep(0.1)
    return said[1]


def _launch(url: str, job: str, partition: str = "") -> None:
    """Queue a job as the UI does."""
    run = {
        "selector": {
            "repositoryLocationName": "corpus_platform",
            "repositoryName": "__repository__",
            "pipelineName": job,
        },
        "runConfigData": "{}",
        "mode": "default",
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": partition}]}
        if partition
        else {},
    }
    data: dict[str, Any] = {"query": LAUNCH, "variables": {"run": run}}
    request = urllib.request.Request(
        f"{url}/graphql", json.dumps(data).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        launched = json.load(answer)["data"]["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched


def _succeeded(corpus: Corpus, known: set[str], *, count: int) -> list[dg.RunRecord]:
    """Return the new runs when so many have succeeded."""
    until = time.monotonic() + WITHIN
    while True:
        with dg.DagsterInstance.from_config(str(corpus.data / ".dagster")) as instance:
            found = instance.get_run_records()
        new = [r for r in found if r.dagster_run.run_id not in known]
        if len(new) == count and all(r.dagster_run.is_finished for r in new):
            assert all(r.dagster_run.is_success for r in new)
            return new
        assert time.monotonic() < until, [r.dagster_run.status for r in new]
        time.sleep(0.5)
