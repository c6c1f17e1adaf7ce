"""Pruning removes runs that ended long ago, and nothing that the UI shows of a partition or check."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.pruning import Pruned, prune
from corpus_platform_tests.instances import QUIET, in_folder, in_memory

SHARDS = dg.DynamicPartitionsDefinition(name="shards")
KEYS = ("a/1", "a/2", "b/1")
MADE, CHECKED, WHOLE, WATCHED = (
    dg.AssetKey(name) for name in ("made", "other", "whole", "watched")
)
TOMORROW = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)


@dg.asset(partitions_def=SHARDS, config_schema={"fault": dg.Field(str, default_value="")})
def made(context: dg.AssetExecutionContext) -> None:
    """Made per shard."""
    print("captured")  # noqa: T201 - the output of a step is what is kept in files
    if context.op_execution_context.op_config["fault"] == "step":
        raise dg.Failure("as asked for", allow_retries=False)


@dg.asset
def whole() -> None:
    """Made of everything."""


@dg.multi_asset_check(
    name="gates",
    specs=[dg.AssetCheckSpec("gate", asset="made", partitions_def=SHARDS)],
    config_schema={"fault": dg.Field(str, default_value="")},
)
def gates(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
    """Passes, fails, or falls."""
    fault = context.op_execution_context.op_config["fault"]
    if fault == "fall":
        raise dg.Failure("as asked for", allow_retries=False)
    yield dg.AssetCheckResult(asset_key="made", check_name="gate", passed=fault != "fail")


@dg.multi_asset_check(name="audit", specs=[dg.AssetCheckSpec("sound", asset="whole")])
def audit() -> Iterator[dg.AssetCheckResult]:
    """Passes."""
    yield dg.AssetCheckResult(asset_key="whole", check_name="sound", passed=True)


@dg.op
def watch(context: dg.OpExecutionContext) -> None:
    """Observe an asset that nobody makes."""
    context.log_event(dg.AssetObservation("watched", partition="a/1"))


@dg.job(executor_def=dg.in_process_executor)
def watching() -> None:
    """Observe."""
    watch()


SELECTED = {
    "per_shard": dg.AssetSelection.assets("made"),
    "alone": dg.AssetSelection.checks_for_assets("made"),
    "over_all": dg.AssetSelection.assets("whole"),
}
JOBS = [dg.define_asset_job(name, selection=chosen) for name, chosen in SELECTED.items()]
DEFS = dg.Definitions(
    assets=[made, whole],
    asset_checks=[gates, audit],
    jobs=[*JOBS, watching],
    executor=dg.in_process_executor,
)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance in files, in which each run has its own."""
    with in_folder(tmp_path) as found:
        found.add_dynamic_partitions("shards", list(KEYS))
        yield found


@pytest.fixture
def quick() -> Iterator[dg.DagsterInstance]:
    """An instance in memory, for what is not about files."""
    with in_memory() as found:
        found.add_dynamic_partitions("shards", list(KEYS))
        yield found


def _run(
    instance: dg.DagsterInstance,
    job: str,
    key: str | None = None,
    *,
    step: str = "",
    check: str = "",
) -> str:
    ops = {"made": {"config": {"fault": step}}, "gates": {"config": {"fault": check}}}
    wanted = {"per_shard": ops, "alone": {"gates": ops["gates"]}}.get(job, {})
    result = DEFS.resolve_job_def(job).execute_in_process(
        instance=instance,
        tags={"dagster/partition": key} if key else None,
        run_config={**QUIET, "ops": wanted},
        raise_on_error=False,
    )
    return result.run_id


def _there(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


def _shown(instance: dg.DagsterInstance) -> dict[str, object]:
    """Return what the UI shows of partitions, assets and checks."""
    events = instance.event_log_storage
    gate, sound = dg.AssetCheckKey(MADE, "gate"), dg.AssetCheckKey(WHOLE, "sound")
    summaries = events.get_asset_check_summary_records([gate, sound])
    records = instance.get_asset_records([MADE, WHOLE, WATCHED])
    return {
        "partitions": instance.get_status_by_partition(MADE, KEYS, SHARDS),
        "materialized": events.get_latest_storage_id_by_partition(
            MADE, dg.DagsterEventType.ASSET_MATERIALIZATION
        ),
        "observed": events.get_latest_storage_id_by_partition(
            WATCHED, dg.DagsterEventType.ASSET_OBSERVATION
        ),
        "latest": [instance.get_latest_materialization_event(key) for key in (MADE, WHOLE)],
        "assets": {
            r.asset_entry.asset_key: (r.asset_entry.last_run_id, r.asset_entry.last_materialization)
            for r in records
        },
        "checks": events.get_asset_check_partition_info([gate, sound]),
        "completed": {
            key: found.last_completed_check_execution_record for key, found in summaries.items()
        },
    }


def test_only_runs_go_of_which_nothing_is_the_newest(instance: dg.DagsterInstance) -> None:
    repeated = [_run(instance, "per_shard", "a/1") for _ in range(3)]
    once = _run(instance, "per_shard", "a/2")
    wholes = [_run(instance, "over_all") for _ in range(2)]
    before = _shown(instance)
    assert prune(instance, TOMORROW) == Pruned(removed=3, kept=3)
    assert _there(instance) == {repeated[2], once, wholes[1]}
    assert _shown(instance) == before


@pytest.mark.slow
def test_failed_attempts_and_checks_and_observations_stay_as_they_are_shown(
    instance: dg.DagsterInstance,
) -> None:
    for key in KEYS:
        _run(instance, "per_shard", key)
    _run(instance, "per_shard", "a/1", step="step")  # made once; the last attempt failed
    _run(instance, "per_shard", "a/1", step="step")
    _run(instance, "per_shard", "a/2", check="fail")
    _run(instance, "per_shard", "b/1", check="fall")  # was planned and never evaluated
    _run(instance, "alone", "a/2", check="fail")  # the check alone, of an older materialization
    _run(instance, "watching")
    watched = _run(instance, "watching")
    before, runs = _shown(instance), _there(instance)
    statuses = instance.get_status_by_partition(MADE, KEYS, SHARDS) or {}
    assert {key: status.value for key, status in statuses.items() if status} == {
        "a/1": "FAILED",
        "a/2": "MATERIALIZED",
        "b/1": "MATERIALIZED",
    }
    done = prune(instance, TOMORROW)
    # The first of a/2, an attempt of a/1, a look. The first of b/1 has its last result of a check.
    assert done.removed == 3
    assert done.kept == len(_there(instance)) == len(runs) - 3
    assert watched in _there(instance)
    assert _shown(instance) == before
    assert prune(instance, TOMORROW) == Pruned(removed=0, kept=done.kept)


def test_runs_younger_than_asked_for_and_unfinished_ones_stay(quick: dg.DagsterInstance) -> None:
    for _ in range(2):
        _run(quick, "over_all")
    yesterday = TOMORROW - datetime.timedelta(days=2)
    assert prune(quick, yesterday) == Pruned(removed=0, kept=0)
    waiting = quick.create_run_for_job(DEFS.resolve_job_def("over_all"))
    assert prune(quick, TOMORROW) == Pruned(removed=1, kept=1)
    assert waiting.run_id in _there(quick)


def test_a_removed_run_leaves_no_file(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    first, second = (_run(instance, "per_shard", "a/1") for _ in range(2))
    assert list(tmp_path.rglob(f"*{first}*")) != []
    prune(instance, TOMORROW)
    assert list(tmp_path.rglob(f"*{first}*")) == []
    assert instance.all_logs(second) != []
    assert instance.get_run_by_id(first) is None


def test_it_goes_page_by_page_and_tells_how_far_it_is(
    quick: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpus_platform.defs.pruning.PAGE", 2)
    runs = [_run(quick, "over_all") for _ in range(4)]
    told: list[tuple[int, int]] = []
    done = prune(quick, TOMORROW, progress=lambda done, total: told.append((done, total)))
    assert done == Pruned(removed=3, kept=1)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert _there(quick) == {runs[3]}


def test_stopped_in_the_middle_it_has_removed_whole_runs_and_goes_on_the_next_time(
    quick: dg.DagsterInstance,
) -> None:
    runs = [_run(quick, "over_all") for _ in range(3)]

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(quick, TOMORROW, progress=stop)
    assert _there(quick) == set(runs[1:])
    assert prune(quick, TOMORROW) == Pruned(removed=1, kept=1)
