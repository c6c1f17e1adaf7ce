"""`corpus ui`: the Dagster web server and daemon over the instance of a corpus.

They and the runs they started end with this process however it ends. One `corpus ui` at a time
serves an instance: two daemons would launch everything twice.
"""

import contextlib
import http.client
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import dagster as dg

from corpus_platform.config import Settings
from corpus_platform.defs.address import LOOPBACK, Address, address_on, listening_ip
from corpus_platform.defs.home import open_instance, prepare_home
from corpus_platform.defs.programs import URL_VARIABLE, Program, all_alive, start, stop
from corpus_platform.defs.registering import add_partitions, register
from corpus_platform.defs.workers import is_driven
from corpus_platform.errors import Busy, CorpusError
from corpus_platform.stages.chain import open_project
from corpus_platform.storage import lease, sources

__all__ = ["fail_left_over", "serve"]

BEGUN = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def serve(
    settings: Settings,
    config_file: Path,
    *,
    port: int,
    say: Callable[[str], None],
    host: str = LOOPBACK,
    behind_a_proxy: bool = False,
) -> int:
    """Run web server and daemon until interrupted; return an exit code.

    Port 0 takes a free one. Raises UsageError when the port is in use, or when others could reach
    the address and no proxy is said to ask who they are; Busy when the instance is served already.
    """
    ip = listening_ip(host, behind_a_proxy=behind_a_proxy)
    home = prepare_home(settings, config_file)
    with _interrupted_by_signals(), _sole(home):
        address = address_on(ip, port)
        fail_left_over("the web UI that ran it ended before it did")
        programs: list[Program] = []
        try:
            for line in (*_warnings(settings, address), *_registered(settings)):
                say(line)
            say("starting the Dagster web server and daemon ...")
            start(programs, home, address, _link(settings, address))
            _await_page(address, programs)
            say(f"web UI: {address.url.rstrip('/')} (instance {home}); stop with Ctrl-C")
            while True:
                all_alive(programs)
                time.sleep(0.3)
        except KeyboardInterrupt:
            say("stopping ...")
        finally:
            stop(programs)
            fail_left_over("the web UI that ran it was stopped before it ended")
    return 0


def _warnings(settings: Settings, address: Address) -> Iterator[str]:
    """Yield what somebody should know before others reach the page, or wait for alerts."""
    if not address.is_loopback:
        yield (
            f"warning: {address.ip} can be reached from other machines, and Dagster has no login:"
            " only the proxy in front, and a firewall around, keep strangers from launching runs"
        )
    if settings.alerts.slack is not None and not os.environ.get("SLACK_BOT_TOKEN"):
        yield (
            "warning: alerts.slack is set and SLACK_BOT_TOKEN is not in the environment: no alert"
            " can be sent"
        )


def _registered(settings: Settings) -> Iterator[str]:
    """Show the shards: of a corpus that nothing was run on those that the sources list now.

    Yields what was found, or why nothing.
    """
    try:
        project = open_project(settings)
        with open_instance() as instance, _unlogged(sources.__name__):
            if project.registry.keys():
                add_partitions(project, instance)  # the instance may be new
                return
            count = len(register(project, instance).new)
        yield f"{count} shards are registered" if count != 1 else "1 shard is registered"
    except (CorpusError, OSError) as error:  # the UI is where one looks into it
        yield f"warning: no shard is registered: {' '.join(str(error).split())}"


@contextlib.contextmanager
def _unlogged(name: str) -> Generator[None]:
    """Keep a module's log quiet: what it has to say is said as the block's outcome."""
    log = logging.getLogger(name)
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False


def _link(settings: Settings, address: Address) -> str:
    """Return where links in alerts lead: as told, else to the page that is being served."""
    told = settings.alerts.ui_url if "ui_url" in settings.alerts.model_fields_set else address.url
    return os.environ.get(URL_VARIABLE, told).rstrip("/") + "/"


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


def _await_page(address: Address, programs: list[Program]) -> None:
    """Return when the page answers."""
    while True:
        all_alive(programs)
        connection = http.client.HTTPConnection(address.reached_at, address.port, timeout=5)
        try:
            connection.request("GET", "/")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
        finally:
            connection.close()
