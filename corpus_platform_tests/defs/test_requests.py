"""What is at work, and what failed last, on a real instance."""

from collections.abc import Iterator

import dagster as dg
import pytest

from corpus_platform.defs.requests import at_work, last_failed
from corpus_platform_tests.instances import in_memory


@dg.op
def nothing() -> None: ...


@dg.job
def ingest_shard() -> None:
    nothing()


@dg.job
def of_another_project() -> None:
    nothing()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An empty instance."""
    with in_memory() as opened:
        yield opened


def _begin(
    instance: dg.DagsterInstance, shard: str, job: dg.JobDefinition = ingest_shard
) -> dg.DagsterRun:
    return instance.create_run_for_job(job, tags={"dagster/partition": shard})


def _fail(instance: dg.DagsterInstance, shard: str) -> dg.DagsterRun:
    run = _begin(instance, shard)
    instance.report_run_failed(run)
    return run


@pytest.mark.slow
def test_of_hundreds_of_shards_those_whose_last_run_failed_are_found_longest_ago_first(
    instance: dg.DagsterInstance,
) -> None:
    shards = [f"2026-44/{number:03}" for number in range(250)]
    for shard in reversed(shards):
        _fail(instance, shard)
    instance.report_run_canceled(_begin(instance, shards[249]))  # now the one of least age
    _begin(instance, shards[0])  # tried again, and not yet failed
    found = last_failed(instance, [*shards, "2026-44/never"])
    assert found == [*reversed(shards[1:249]), shards[249]]


def test_runs_of_other_projects_are_not_ours(instance: dg.DagsterInstance) -> None:
    _begin(instance, "2026-44/a", of_another_project)
    instance.report_run_failed(_begin(instance, "2026-44/b", of_another_project))
    assert at_work(instance) == []
    assert last_failed(instance, ["2026-44/a", "2026-44/b"]) == []


def test_a_run_that_dagster_said_it_would_make_anew_is_at_work_until_it_did(
    instance: dg.DagsterInstance,
) -> None:
    died = _fail(instance, "2026-44/a")
    assert at_work(instance) == []
    instance.add_run_tags(died.run_id, {"dagster/will_retry": "true"})
    assert [run.run_id for run in at_work(instance)] == [died.run_id]
    again = instance.create_run_for_job(ingest_shard, tags={"dagster/parent_run_id": died.run_id})
    instance.report_run_failed(again)
    assert at_work(instance) == []
