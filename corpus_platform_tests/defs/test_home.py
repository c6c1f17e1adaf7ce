"""Where the instance of a corpus lies, and whose runs are whose where several share one."""

from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.config import Settings
from corpus_platform.defs.home import prepare_home
from corpus_platform.defs.worker import TASK_TAG
from corpus_platform.defs.workers import fail_unfinished
from corpus_platform_tests.instances import in_memory


def _settings(base: Path) -> Settings:
    source = {"glob": "in/*", "crawl": "c"}
    return Settings.model_validate({"sources": [source], "base": base})


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORPUS_CONFIG", "DAGSTER_HOME", "DAGSTER_DISABLE_TELEMETRY", "PYTHONSAFEPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_without_dagster_home_each_corpus_has_an_instance_in_its_storage(tmp_path: Path) -> None:
    home = prepare_home(_settings(tmp_path), tmp_path / "corpus.yaml")
    assert home == tmp_path / "data" / ".dagster"
    assert (home / "dagster.yaml").exists()


def test_dagster_home_counts_where_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert prepare_home(_settings(tmp_path), tmp_path / "corpus.yaml") == tmp_path / "home"


def test_only_the_unfinished_runs_of_this_corpus_are_reported_failed() -> None:
    @dg.op
    def nothing() -> None:
        """Do nothing."""

    @dg.job
    def some() -> None:
        nothing()

    with in_memory() as instance:
        runs = {
            task: instance.create_run_for_job(
                some, status=dg.DagsterRunStatus.STARTED, tags={TASK_TAG: task}
            ).run_id
            for task in ("mine/1", "other/1")
        }
        fail_unfinished(instance, "it was killed", tasks="mine/")
        found = {task: instance.get_run_by_id(run) for task, run in runs.items()}
    statuses = {task: run.status for task, run in found.items() if run is not None}
    assert statuses == {
        "mine/1": dg.DagsterRunStatus.FAILURE,
        "other/1": dg.DagsterRunStatus.STARTED,
    }
