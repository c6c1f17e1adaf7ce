"""`corpus ui`: the Dagster web server and daemon over the instance of a corpus, on loopback.

Both are held on a leash, so that they and the runs they started end with this process however it
ends. One `corpus ui` at a time serves an instance: two daemons would launch everything twice.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from corpus_platform.config import Settings
from corpus_platform.defs.home import open_instance, packaged, prepare_home
from corpus_platform.defs.leashed import GRACE_SECONDS
from corpus_platform.defs.workers import is_driven
from corpus_platform.errors import Busy, StageFailed, UsageError
from corpus_platform.storage import lease

__all__ = ["fail_left_over", "serve"]

HOST = "127.0.0.1"
BEGUN = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def serve(settings: Settings, config_file: Path, *, port: int, say: Callable[[str], None]) -> int:
    """Run web server and daemon until interrupted; return an exit code.

    Port 0 takes a free one. Raises UsageError when the port is in use, Busy when the instance is
    served already.
    """
    home = prepare_home(settings, config_file)
    with _interrupted_by_signals(), _sole(home):
        port = _free_port(port)
        fail_left_over("the web UI that ran it ended before it did")
        programs: list[_Program] = []
        try:
            say("starting the Dagster web server and daemon ...")
            programs += _start(home, port)
            _await_page(port, programs)
            say(f"web UI: http://{HOST}:{port} (instance {home}); stop with Ctrl-C")
            while True:
                _all_alive(programs)
                time.sleep(0.3)
        except KeyboardInterrupt:
            say("stopping ...")
        finally:
            _stop(programs)
    return 0


def fail_left_over(words: str) -> None:
    """Report runs as failed that a web UI launched and that no process works on any more.

    Dagster would show them as running for ever, and take their places in the queue as used.
    """
    with open_instance() as instance:
        if isinstance(instance.run_launcher, dg.DefaultRunLauncher):  # else they run elsewhere
            for run in instance.get_runs(dg.RunsFilter(statuses=list(BEGUN))):
                if not is_driven(run):
                    instance.report_run_failed(run, words)


@contextlib.contextmanager
def _interrupted_by_signals() -> Generator[None]:
    """Have SIGTERM, SIGHUP and SIGINT (which a shell's & has set to be ignored) end the block."""
    kinds = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {kind: signal.signal(kind, signal.default_int_handler) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextlib.contextmanager
def _sole(home: Path) -> Generator[None]:
    def refuse(holder: str) -> None:
        raise Busy(f"{home}: another corpus ui serves this instance ({holder}); stop that first")

    with lease.hold(home / "ui.lease", waiting=refuse):
        yield


def _free_port(port: int) -> int:
    """Return the port, or a free one for 0; raise UsageError when another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"port {port} on {HOST} cannot be used: {why}; name another with --port"
            ) from error
        return probe.getsockname()[1]


@dataclass(frozen=True)
class _Program:
    name: str
    log: Path
    process: subprocess.Popen[bytes]


def _start(home: Path, port: int) -> list[_Program]:
    target = ["-w", str(packaged("workspace.yaml"))]
    web = ["dagster_webserver", "-h", HOST, "-p", str(port), *target]
    daemon = ["dagster._daemon", "run", *target]
    logs = home / "logs"
    return [
        _leash("web server", logs / "web.log", web),
        _leash("daemon", logs / "daemon.log", daemon),
    ]


def _leash(name: str, log: Path, arguments: list[str]) -> _Program:
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "corpus_platform.defs.leashed", *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
        )
    return _Program(name, log, process)


def _await_page(port: int, programs: list[_Program]) -> None:
    """Return when the page answers."""
    while True:
        _all_alive(programs)
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
        finally:
            connection.close()


def _all_alive(programs: list[_Program]) -> None:
    for program in programs:
        if (code := program.process.poll()) is not None:
            raise StageFailed(
                f"the {program.name} ended with exit code {code}; its log is {program.log}"
            )


def _stop(programs: list[_Program]) -> None:
    """Let go of the leashes and wait; then report the runs that this cut short."""
    for program in programs:
        if program.process.stdin is not None:
            program.process.stdin.close()
    until = time.monotonic() + GRACE_SECONDS + 5
    for program in programs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.process.wait(max(0.0, until - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):  # all went well: nothing is left of it
            os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait()
    fail_left_over("the web UI that ran it was stopped before it ended")
