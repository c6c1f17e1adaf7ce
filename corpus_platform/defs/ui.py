"""`corpus ui`: the Dagster web server and daemon over the instance of a corpus, on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from corpus_platform.config import Settings
from corpus_platform.defs.home import prepare_home

__all__ = ["serve"]

GRACE_SECONDS = 15.0
TARGET = ["-m", "corpus_platform.definitions"]


def serve(settings: Settings, config_file: Path, *, port: int, say: Callable[[str], None]) -> int:
    """Run web server and daemon until interrupted or one of them ends; return an exit code."""
    home = prepare_home(settings, config_file)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    web = ["-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *TARGET]
    daemon = ["-m", "dagster._daemon", "run", *TARGET]
    signal.signal(signal.SIGTERM, _interrupt)
    children = [
        _start(web, home / "logs" / "web.log"),
        _start(daemon, home / "logs" / "daemon.log"),
    ]
    say(f"web UI: http://127.0.0.1:{port} (instance {home}); stop with Ctrl-C")
    try:
        while all(child.poll() is None for child in children):
            time.sleep(0.3)
        say(f"the web server or the daemon ended; see {home / 'logs'}")
        return 3
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(children)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments], stdout=output, stderr=output, start_new_session=True
        )


def _stop(children: list[subprocess.Popen[bytes]]) -> None:
    """End the process groups of the children: politely, then for certain."""
    for kind, patience in ((signal.SIGINT, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        for child in children:
            try:
                os.killpg(child.pid, kind)
            except ProcessLookupError:
                continue
        until = time.monotonic() + patience
        while any(c.poll() is None for c in children) and time.monotonic() < until:
            time.sleep(0.1)
