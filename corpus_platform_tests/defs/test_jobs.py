"""What each job executes, in which order, what is tried again, and what waits for what.

Every run is a real one, of the real definitions over the small corpus.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest
import yaml

from corpus_platform.defs.home import packaged
from corpus_platform.defs.jobs import INGEST, JOB_OF
from corpus_platform.defs.location import build_definitions
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import members
from corpus_platform.stages.chain import open_project
from corpus_platform.storage.files import copy_hashed
from corpus_platform_tests.faults import FAULTS, plant
from corpus_platform_tests.instances import QUIET
from corpus_platform_tests.small import SHARDS, register

CLUSTERS = ("dedup_clusters", "dedup_clusters_gates")
TOKENIZER = ("tokenizer", "tokenizer_gates")


def _run(
    instance: dg.DagsterInstance,
    config: Path,
    job: str,
    partition: str | None = None,
    assets: Sequence[str] = (),
) -> dg.ExecuteInProcessResult:
    return (
        build_definitions(config)
        .resolve_job_def(job)
        .execute_in_process(
            instance=instance,
            partition_key=partition,
            asset_selection=[dg.AssetKey(asset) for asset in assets] or None,
            run_config=QUIET,
            raise_on_error=False,
        )
    )


def _steps(result: dg.ExecuteInProcessResult, event: str = "STEP_START") -> list[str]:
    return [e.step_key or "" for e in result.all_events if e.event_type_value == event]


def _reason(result: dg.ExecuteInProcessResult, step: str) -> str:
    (failure,) = [e for e in result.get_step_failure_events() if e.step_key == step]
    given = failure.step_failure_data.user_failure_data
    return str(given.description) if given is not None else ""


def _forget(config: Path, asset: str, partition: str | None = None) -> None:
    """Remove what is stored of an artifact."""
    shutil.rmtree(open_project(load_settings(config)).store.folder(asset, partition))


def _before_any_tokenizer(config: Path) -> None:
    """Remove clusters, tokenizer and the copy of it that is kept for good."""
    _forget(config, "dedup_clusters")
    _forget(config, "tokenizer")
    shutil.rmtree(load_settings(config).storage_path / "frozen")


def _content(config: Path, asset: str) -> str | None:
    artifact = open_project(load_settings(config)).artifact(asset, None)
    return None if artifact is None else artifact.content


def test_a_shard_is_made_and_checked_step_by_step_and_the_status_comes_last(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    result = _run(instance, finished, "ingest_shard", SHARDS[2])
    assert result.success
    each = [step for asset in INGEST for step in (asset, f"{asset}_gates")]
    assert _steps(result) == [*each, "corpus_status"]


def test_assets_chosen_of_a_job_are_checked_and_nothing_else_is_done(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    result = _run(instance, finished, "ingest_shard", SHARDS[2], INGEST)
    assert result.success
    assert "corpus_status" not in _steps(result)
    assert {f"{asset}_gates" for asset in INGEST} < set(_steps(result))
    assert len(result.get_asset_check_evaluations()) > len(INGEST)
    result = _run(instance, finished, "build_corpus", None, ["dedup_clusters"])
    assert _steps(result) == [*CLUSTERS]


def test_the_tokenizer_is_trained_after_the_clusters(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    _before_any_tokenizer(finished)
    result = _run(instance, finished, "build_corpus")
    assert result.success
    assert _steps(result) == [*CLUSTERS, *TOKENIZER, "corpus_status"]
    assert _content(finished, "tokenizer") is not None


@pytest.mark.slow
def test_the_tokenizer_stays_when_other_documents_are_kept(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    trained, kept = (_content(finished, asset) for asset in ("tokenizer", "dedup_clusters"))
    with finished.open("a", encoding="utf-8") as file:
        file.write("dedup: {threshold: 0.7}\n")
    assert _run(instance, finished, "build_corpus").success
    assert _content(finished, "dedup_clusters") != kept
    assert _content(finished, "tokenizer") == trained


def test_no_tokenizer_is_trained_when_a_gate_refuses_the_clusters(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before_any_tokenizer(finished)
    plant(
        monkeypatch, "dedup_clusters", next(f for f in FAULTS if f.asset == "dedup_clusters").plant
    )
    result = _run(instance, finished, "build_corpus")
    assert not result.success
    assert set(_steps(result, "STEP_FAILURE")) == {"dedup_clusters_gates", "tokenizer"}
    assert _reason(result, "tokenizer").startswith("dedup_clusters: ")
    assert _content(finished, "tokenizer") is None
    assert _steps(result)[-1] == "corpus_status"


def test_no_tokenizer_is_trained_when_the_clusters_fall(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before_any_tokenizer(finished)

    def fall(folder: Path) -> None:
        raise ZeroDivisionError("as planted")

    plant(monkeypatch, "dedup_clusters", fall)
    result = _run(instance, finished, "build_corpus")
    assert set(_steps(result, "STEP_FAILURE")) == {"dedup_clusters", "tokenizer"}
    assert _reason(result, "dedup_clusters") == "ZeroDivisionError: as planted"
    assert _reason(result, "tokenizer").startswith("dedup_clusters: ")
    assert _content(finished, "tokenizer") is None


def test_only_what_works_over_all_shards_is_in_the_pool_that_runs_one_at_a_time(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    definitions = build_definitions(finished)
    pools = {}
    for job in sorted(set(JOB_OF.values())):
        run = instance.create_run_for_job(definitions.resolve_job_def(job))
        pools[job] = run.run_op_concurrency.root_key_counts if run.run_op_concurrency else {}
    assert pools == {
        "ingest_shard": {},
        "build_corpus": {"heavy": 2},  # steps; in the queue a run counts once
        "pack_shard": {},
        "publish_release": {"heavy": 1},
    }


def test_an_instance_with_the_shipped_settings_lets_a_pool_have_one_run(tmp_path: Path) -> None:
    shipped = packaged("dagster.yaml")
    assert yaml.safe_load(shipped.read_bytes())["concurrency"]["pools"] == {
        "granularity": "run",
        "default_limit": 1,
    }
    shutil.copy(shipped, tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        found = instance.get_concurrency_config()
    assert found.pool_config.pool_granularity is not None
    assert found.pool_config.pool_granularity.value == "run"
    assert found.pool_config.default_pool_limit == 1
    assert found.run_queue_config is not None
    assert found.run_queue_config.max_concurrent_runs == 2


def _fetching(
    instance: dg.DagsterInstance, config: Path, monkeypatch: pytest.MonkeyPatch, copy: object
) -> dg.ExecuteInProcessResult:
    """Run `raw_shards` alone for a shard of which nothing is stored, with another way to copy."""
    register(open_project(load_settings(config)))  # the sources of this copy
    _forget(config, "raw_shards", SHARDS[2])
    monkeypatch.setattr(members, "copy_hashed", copy)
    return _run(instance, config, "ingest_shard", SHARDS[2], ["raw_shards"])


def _restarts(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> int:
    kind = dg.DagsterEventType.STEP_RESTARTED
    return len(instance.get_records_for_run(result.run_id, of_type=kind).records)


class _Changing:
    """Copies a file that somebody else writes to meanwhile, so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, source: Path, target: Path, **options: object) -> tuple[int, str]:
        copied = copy_hashed(source, target)
        if self.times:
            self.times -= 1
            os.utime(source, ns=(self.times, self.times))
        return copied


def test_a_source_that_could_not_be_read_is_read_again(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _fetching(instance, finished, monkeypatch, _Changing(1))
    assert result.success
    assert _restarts(instance, result) == 1


@pytest.mark.slow
def test_a_source_that_never_can_be_read_is_given_up_after_the_third_time(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _fetching(instance, finished, monkeypatch, _Changing(9))
    assert not result.success
    assert _restarts(instance, result) == 2
    assert "changed while it was read" in _reason(result, "raw_shards")


def test_a_fault_of_the_code_is_met_once(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(source: Path, target: Path, **options: object) -> tuple[int, str]:
        raise ZeroDivisionError("as planted")

    result = _fetching(instance, finished, monkeypatch, fall)
    assert not result.success
    assert _restarts(instance, result) == 0
    assert _reason(result, "raw_shards") == "ZeroDivisionError: as planted"


def test_a_refusal_is_met_once(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(open_project(load_settings(finished)))
    crawl, name = SHARDS[2].split("/")
    (finished.parent / "source" / f"crawl={crawl}" / name).unlink()
    result = _fetching(instance, finished, monkeypatch, copy_hashed)
    assert not result.success
    assert _restarts(instance, result) == 0
    assert "is not there any more" in _reason(result, "raw_shards")
