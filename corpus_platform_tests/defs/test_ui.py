"""Tests of `corpus ui` before and around its programs: addresses, what it says and registers at the
start, a second one, runs that were cut."""

import contextlib
import fcntl
import http.client
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import psutil
import pytest

from corpus_platform.config import Settings
from corpus_platform.defs import ui
from corpus_platform.defs.home import open_instance, prepare_home
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.workers import TASK_TAG
from corpus_platform.errors import Busy, StageFailed, UsageError
from corpus_platform.settings_file import load_settings

pytestmark = pytest.mark.xdist_group("served")  # the real daemon is started once
SOURCES = "sources: [{glob: 'source/{crawl}/*'}]\n"
# A web server that answers, and knows nothing of Dagster; it ends when that is asked of it.
PAGE = """
import http.server, os, sys

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(7)
        self.send_response(200)
        self.end_headers()

_, _, host, _, port, *_ = sys.argv
kind = type("Server", (http.server.HTTPServer,), {"address_family": 10 if ":" in host else 2})
kind((host, int(port)), Page).serve_forever()
"""


def _empty_corpus(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write settings of an empty corpus; what serving sets in the environment is undone."""
    for name in (
        "CORPUS_CONFIG",
        "CORPUS_UI_URL",
        "DAGSTER_HOME",
        "DAGSTER_DISABLE_TELEMETRY",
        "PYTHONSAFEPATH",
        "SLACK_BOT_TOKEN",
    ):
        patch.setenv(name, "")
        patch.delenv(name)
    path = folder / "corpus.yaml"
    path.write_text(SOURCES, encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of an empty corpus."""
    return _empty_corpus(tmp_path, monkeypatch)


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


@pytest.mark.slow
def test_a_program_that_ends_at_once_ends_the_command_with_its_log_named(
    config: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(config.parent))
    (config.parent / "dagster_webserver.py").write_text("raise SystemExit(7)", encoding="utf-8")
    with pytest.raises(StageFailed, match=r"web server ended with exit code 7.*web\.log"):
        ui.serve(settings, config, port=0, say=lambda _: None)


@dataclass
class Served:
    """What `corpus ui` said until its page was up, and how its daemon was started."""

    code: int = -1
    said: list[str] = field(default_factory=list)
    link: str = ""
    listening: set[tuple[str, int]] = field(default_factory=set)

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.said if line.startswith("warning: ")]


Serve = Callable[..., Served]


def _with_small_web_server(config: Path, patch: pytest.MonkeyPatch) -> None:
    (config.parent / "dagster_webserver.py").write_text(PAGE, encoding="utf-8")
    patch.setenv("PYTHONPATH", str(config.parent))


@dataclass
class Ended:
    """A `corpus ui` whose web server ended: what it said, why it ended, and what was there after it."""

    served: Served
    fault: str
    partitions: list[str]
    said_of_a_late_shard: list[str]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """`corpus ui` over a new corpus of two shards, with the real daemon, behind a proxy."""
    with pytest.MonkeyPatch.context() as patch:
        config = _empty_corpus(tmp_path_factory.mktemp("ui"), patch)
        for shard in ("2026-44/b.jsonl", "2026-40/a.jsonl"):
            path = config.parent / "source" / shard
            path.parent.mkdir(parents=True)
            path.write_text("{}\n", encoding="utf-8")
        _with_small_web_server(config, patch)
        found, settings = Served(), load_settings(config)

        def say(line: str) -> None:
            found.said.append(line)
            if line.startswith("web UI: "):
                _look_at_children(found)
                with contextlib.suppress(http.client.HTTPException):
                    urllib.request.urlopen(f"{found.link}end", timeout=60)

        with pytest.raises(StageFailed) as fault:
            ui.serve(settings, config, port=0, say=say, host="0.0.0.0", behind_a_proxy=True)
        with open_instance() as instance:
            partitions = instance.get_dynamic_partitions(SHARDS_NAME)
        (config.parent / "source" / "2026-40" / "late.jsonl").touch()
        late = list(ui._registered(settings))
    return Ended(found, str(fault.value), sorted(partitions), late)


@pytest.fixture
def serve(config: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A function that serves until the page is up, with the real daemon and a small web server."""
    _with_small_web_server(config, monkeypatch)

    def until_up(*, host: str = "127.0.0.1", behind_a_proxy: bool = False) -> Served:
        found = Served()

        def say(line: str) -> None:
            found.said.append(line)
            if line.startswith("web UI: "):
                _look_at_children(found)
                raise KeyboardInterrupt

        settings = load_settings(config)
        proxy = behind_a_proxy
        found.code = ui.serve(settings, config, port=0, say=say, host=host, behind_a_proxy=proxy)
        return found

    return until_up


def _look_at_children(found: Served) -> None:
    for process in psutil.Process().children():
        if "dagster._daemon" in process.cmdline():
            found.link = process.environ()["CORPUS_UI_URL"]
        elif "dagster_webserver" in process.cmdline():
            found.listening = {tuple(c.laddr) for c in process.net_connections() if not c.raddr}


@pytest.mark.slow
def test_links_in_alerts_lead_to_the_page_that_is_served(serve: Serve) -> None:
    served = serve()
    ((ip, port),) = served.listening
    assert (served.code, ip, served.link) == (0, "127.0.0.1", f"http://127.0.0.1:{port}/")
    assert served.said[-2].startswith(f"web UI: http://127.0.0.1:{port} (instance ")


@pytest.mark.slow
def test_links_in_alerts_lead_where_the_settings_say(config: Path, serve: Serve) -> None:
    config.write_text(f"{SOURCES}alerts: {{ui_url: 'https://corpus.example/'}}", encoding="utf-8")
    assert serve().link == "https://corpus.example/"


@pytest.mark.slow
def test_links_in_alerts_lead_where_the_environment_says(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_UI_URL", "https://corpus.example/ui")
    assert serve().link == "https://corpus.example/ui/"


def test_an_address_that_others_reach_is_refused_before_anything_is_made(
    config: Path, settings: Settings
) -> None:
    with pytest.raises(UsageError, match=r"not loopback.*no login.*--i-have-an-auth") as error:
        ui.serve(settings, config, port=0, say=print, host="0.0.0.0")
    assert error.value.exit_code == 2
    assert [p.name for p in config.parent.iterdir()] == ["corpus.yaml"]


def test_an_address_that_others_reach_is_served_with_a_warning_behind_a_proxy(ended: Ended) -> None:
    ((ip, port),) = ended.served.listening
    assert (ip, ended.served.link) == ("0.0.0.0", f"http://127.0.0.1:{port}/")
    (warning, *_) = ended.served.warnings
    assert warning.startswith("warning: 0.0.0.0 can be reached from other machines, and Dagster")


@pytest.mark.slow
def test_the_word_of_a_proxy_alone_opens_nothing(serve: Serve) -> None:
    served = serve(behind_a_proxy=True)
    assert {ip for ip, _ in served.listening} == {"127.0.0.1"}
    assert [w for w in served.warnings if "reached" in w] == []


def test_the_shards_of_a_new_corpus_are_partitions_at_once(ended: Ended) -> None:
    assert "2 shards are registered" in ended.served.said
    assert ended.partitions == ["2026-40/a.jsonl", "2026-44/b.jsonl"]
    assert ended.said_of_a_late_shard == []


def test_a_web_server_that_ends_ends_the_command_with_its_log_named(ended: Ended) -> None:
    assert re.search(r"web server ended with exit code 7.*web\.log", ended.fault)


@pytest.mark.slow
def test_registered_shards_are_partitions_of_a_new_instance_too(config: Path, serve: Serve) -> None:
    path = config.parent / "source" / "2026-40" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    serve()
    with open_instance() as instance:
        instance.delete_dynamic_partition(SHARDS_NAME, "2026-40/a.jsonl")
    serve()
    with open_instance() as instance:
        assert instance.get_dynamic_partitions(SHARDS_NAME) == ["2026-40/a.jsonl"]


@pytest.mark.slow
def test_a_corpus_without_a_source_file_is_served_with_one_warning(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    (warning,) = serve().warnings
    assert warning.startswith(
        "warning: no shard is registered: sources: there is no shard: no file"
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_sources_that_cannot_be_listed_are_served_with_one_warning(
    config: Path, serve: Serve
) -> None:
    (config.parent / "source").touch()
    (warning,) = serve().warnings
    assert "no shard is registered: sources: " in warning
    assert "/source: cannot be listed: Not a directory" in warning


@pytest.mark.slow
def test_alerts_without_a_token_are_told_of(
    config: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(f"{SOURCES}alerts: {{slack: {{}}}}", encoding="utf-8")
    wanted = "warning: alerts.slack is set and SLACK_BOT_TOKEN is not in the environment"
    assert [w.startswith(wanted) for w in serve().warnings] == [True, False]
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    assert [w.startswith(wanted) for w in serve().warnings] == [False]


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
