"""The programs behind the web UI: Dagster's code server, web server and daemon, each on a leash.

One code server holds the definitions for both others, so that what a person sees and what a tick
acts on are the same settings, until the code location is reloaded. It listens on a socket that only this
user can open: whoever reaches it can launch runs.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from corpus_platform.defs.address import Address
from corpus_platform.defs.leashed import GRACE_SECONDS
from corpus_platform.errors import StageFailed
from corpus_platform.storage.files import publish_bytes

__all__ = ["URL_VARIABLE", "Program", "all_alive", "start", "stop"]

URL_VARIABLE = "CORPUS_UI_URL"  # where links in alerts lead
LOCATION, MODULE = "corpus_platform", "corpus_platform.definitions"


@dataclass(frozen=True)
class Program:
    """A running program; `folder` is what is to be removed after it."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    folder: Path | None = None


def start(programs: list[Program], home: Path, address: Address, link: str) -> None:
    """Start all programs, adding each to the list; the code server first, and ready.

    Raises StageFailed when one ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="corpus-"))  # below the home the path may be too long
    path, logs = folder / "code.sock", home / "logs"
    code = ["dagster", "code-server", "start", "-s", str(path), "-m", MODULE]
    code += ["--location-name", LOCATION]
    programs.append(_leash("code server", logs / "code.log", code, link, folder))
    _await_socket(path, programs)
    workspace = home / "workspace.yaml"
    server = {"socket": str(path), "location_name": LOCATION}
    publish_bytes(workspace, yaml.safe_dump({"load_from": [{"grpc_server": server}]}).encode())
    target = ["-w", str(workspace)]
    web = ["dagster_webserver", "-h", address.ip, "-p", str(address.port), *target]
    daemon = ["dagster._daemon", "run", *target]
    programs.append(_leash("web server", logs / "web.log", web, link))
    programs.append(_leash("daemon", logs / "daemon.log", daemon, link))


def all_alive(programs: list[Program]) -> None:
    """Raise StageFailed when one of the programs has ended."""
    for program in programs:
        if (code := program.process.poll()) is not None:
            raise StageFailed(
                f"the {program.name} ended with exit code {code}; its log is {program.log}"
            )


def stop(programs: list[Program]) -> None:
    """Let go of the leashes, and wait until all that was started is gone."""
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
        if program.folder is not None:
            shutil.rmtree(program.folder, ignore_errors=True)


def _leash(
    name: str, log: Path, arguments: list[str], link: str, folder: Path | None = None
) -> Program:
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "corpus_platform.defs.leashed", *arguments]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, URL_VARIABLE: link},
        )
    return Program(name, log, process, folder)


def _await_socket(path: Path, programs: list[Program]) -> None:
    """Return when the code server has loaded the definitions and listens."""
    while True:
        all_alive(programs)
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return
        time.sleep(0.1)
