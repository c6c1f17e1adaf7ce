"""Tests of programs on a leash: they end, with all they started, when their starter is gone."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

MARK = "LEASH_TEST"
# A program that says `ready`, with a child of its own that heeds no signal but SIGKILL.
STUBBORN = """
import signal, subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
print("ready", sys.argv[1:], flush=True)
time.sleep(600)
"""
GENTLE = """
import time
print("ready", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("tidied up", flush=True)
"""
# A program that holds a leash and does nothing else.
STARTER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "corpus_platform.defs.leashed", *sys.argv[1:]],
                 stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class Leash:
    """A folder of modules, and a mark that every process of a test carries."""

    folder: Path
    mark: str

    def start(self, source: str, *arguments: str, ignoring: int | None = None) -> subprocess.Popen:
        """Start a starter that starts a module; return it when the module is ready."""
        (self.folder / "program.py").write_text(source, encoding="utf-8")
        environment = {**os.environ, MARK: self.mark, "PYTHONPATH": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, "-c", STARTER, "program", *arguments],
            env=environment,
            stdout=self.output.open("wb"),
            preexec_fn=lambda: ignoring and signal.signal(ignoring, signal.SIG_IGN),
        )
        self.wait_for("ready")
        return process

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def wait_for(self, text: str) -> str:
        """Return the printed line that has a text in it."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            lines = self.output.read_text(encoding="utf-8").splitlines()
            for line in lines:
                if text in line:
                    return line
            time.sleep(0.05)
        pytest.fail(f"{text!r} was not printed")

    def living(self) -> list[psutil.Process]:
        """Return all living processes that carry the mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != "zombie":
                    found.append(process)
        return found

    def wait_for_none(self, *, seconds: float) -> None:
        """Wait for the end of all its processes."""
        until = time.monotonic() + seconds
        while left := self.living():
            assert time.monotonic() < until, left
            time.sleep(0.05)


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Leash]:
    """A leash whose processes are all gone after the test."""
    found = Leash(tmp_path, uuid.uuid4().hex)
    yield found
    for process in found.living():
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_is_interrupted_and_may_tidy_up_when_its_starter_is_killed(
    leash: Leash, how: signal.Signals
) -> None:
    starter = leash.start(GENTLE)
    starter.send_signal(how)
    starter.wait()
    leash.wait_for("tidied up")
    leash.wait_for_none(seconds=5)


def test_it_can_be_interrupted_though_its_starter_ignores_interrupts(leash: Leash) -> None:
    starter = leash.start(GENTLE, ignoring=signal.SIGINT)
    starter.kill()
    starter.wait()
    leash.wait_for("tidied up")


@pytest.mark.slow
def test_what_it_started_is_killed_when_it_will_not_end(leash: Leash) -> None:
    starter = leash.start(STUBBORN)
    assert len(leash.living()) == 3
    starter.kill()
    starter.wait()
    leash.wait_for_none(seconds=20)


def test_the_module_sees_its_own_arguments(leash: Leash) -> None:
    leash.start(STUBBORN, "-p", "3000")
    assert leash.wait_for("ready") == "ready ['-p', '3000']"
