"""A lease is held by one process at a time and freed when that process dies."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpus_platform.storage import lease

HOLD = """
import sys, time
from pathlib import Path
from corpus_platform.storage import lease
with lease.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def _holder(path: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_holder_waits_and_hears_who_is_first(tmp_path: Path) -> None:
    path, heard = tmp_path / "a.lease", []
    process = _holder(path, 1.0)
    started = time.monotonic()
    with lease.hold(path, waiting=heard.append):
        assert time.monotonic() - started > 0.3
    assert f"process {process.pid} " in heard[0]
    process.wait()


def test_who_waits_unheard_says_so_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.lease"
    process = _holder(path, 0.5)
    with lease.hold(path):
        pass
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("corpus_platform.storage.lease", "WARNING")
    assert record.getMessage().startswith(f"{path}: waiting for process {process.pid} on ")
    process.wait()


def test_a_killed_holder_frees_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "a.lease"
    process = _holder(path, 60.0)
    process.kill()
    process.wait()
    with lease.hold(path):
        pass


def test_who_asks_hears_of_a_holder_and_takes_nobody_else_who_asks_for_one(tmp_path: Path) -> None:
    path = tmp_path / "x.lease"
    assert lease.held_by(path) is None
    with lease.hold(path):
        assert f"process {os.getpid()} on " in (lease.held_by(path) or "")
    with path.open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert lease.held_by(path) is None
