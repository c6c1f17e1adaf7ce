"""Tests of `corpus ui` before and around its programs: ports, a second one, runs that were cut."""

import fcntl
import socket
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.config import Settings
from corpus_platform.defs import ui
from corpus_platform.defs.home import open_instance, prepare_home
from corpus_platform.defs.workers import TASK_TAG
from corpus_platform.errors import Busy, StageFailed, UsageError
from corpus_platform.settings_file import load_settings


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of an empty corpus; what serving sets in the environment is undone."""
    for name in ("CORPUS_CONFIG", "DAGSTER_HOME", "DAGSTER_DISABLE_TELEMETRY", "PYTHONSAFEPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    path = tmp_path / "corpus.yaml"
    path.write_text("sources: [{glob: 'source/{crawl}/*'}]\n", encoding="utf-8")
    return path


@pytest.fixture
def settings(config: Path) -> Settings:
    return load_settings(config)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use_is_refused_with_a_way_out(
    config: Path, settings: Settings, taken: int
) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match=rf"port {taken} .*in use.*--port") as error:
        ui.serve(settings, config, port=taken, say=said.append)
    assert (error.value.exit_code, said) == (2, [])


def test_a_port_that_this_user_may_not_have_is_refused(
    config: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match=r"port 80 .*Permission denied"):
        ui.serve(settings, config, port=80, say=print)


def test_a_second_ui_on_the_same_instance_is_refused(config: Path, settings: Settings) -> None:
    home = prepare_home(settings, config)
    with (home / "ui.lease").open("w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another corpus ui serves this instance"):
            ui.serve(settings, config, port=0, say=print)


def test_a_program_that_ends_ends_the_command_with_its_log_named(
    config: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(config.parent))
    (config.parent / "dagster_webserver.py").write_text("raise SystemExit(7)", encoding="utf-8")
    with pytest.raises(StageFailed, match=r"web server ended with exit code 7.*web\.log"):
        ui.serve(settings, config, port=0, say=lambda _: None)


def _run(instance: dg.DagsterInstance, *, begun: bool = True, task: str | None = None) -> str:
    @dg.job
    def nothing() -> None: ...

    tags = {} if task is None else {TASK_TAG: task}
    run = instance.create_run_for_job(nothing, tags=tags)
    if begun:
        kind = dg.DagsterEventType.RUN_START.value
        event = dg.DagsterEvent(event_type_value=kind, job_name="nothing")
        instance.report_dagster_event(event, run.run_id)
    return run.run_id


def test_a_run_that_no_process_works_on_any_more_is_reported_failed(
    config: Path, settings: Settings
) -> None:
    prepare_home(settings, config)
    with open_instance() as instance:
        cut = _run(instance)
        waiting = _run(instance, begun=False)
        of_a_command = _run(instance, task="1")
    ui.fail_left_over("its process is gone")
    with open_instance() as instance:
        runs = {run.run_id: run.status for run in instance.get_runs()}
        last = instance.all_logs(cut, of_type=dg.DagsterEventType.RUN_FAILURE)[-1]
    assert runs == {
        cut: dg.DagsterRunStatus.FAILURE,
        waiting: dg.DagsterRunStatus.NOT_STARTED,
        of_a_command: dg.DagsterRunStatus.STARTED,
    }
    assert "its process is gone" in str(last)
