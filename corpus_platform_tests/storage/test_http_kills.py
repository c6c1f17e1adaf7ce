"""Downloads whose process is killed: at random points, and at each step of what it does to the disk.

Processes are forked from one that has imported what is needed, and have no chance to tidy up.
"""

import hashlib
import multiprocessing
import os
import random
import time
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from corpus_platform.config import DownloadSettings
from corpus_platform.storage import partial
from corpus_platform.storage.http import get_file
from corpus_platform_tests.http_server import HttpServer, Served

__all__ = ["fetch_and_die", "hear"]

SETTINGS = DownloadSettings(tries=3, first_wait_seconds=0.01, timeout_seconds=20.0)
DIED = 77


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Where processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def fetch_and_die(url: str, target: Path, step: str, count: int, *, before: bool) -> None:
    """Fetch a file; end without a farewell at the nth call of a step, before or after it."""
    module, name = (partial, step) if hasattr(partial, step) else (os, step)
    true, calls = getattr(module, name, None), 0

    def call(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == count and before:
            os._exit(DIED)
        result = true(*given, **named) if true is not None else None
        if calls == count:
            os._exit(DIED)
        return result

    if true is not None:
        setattr(module, name, call)
    setattr(partial, "CHECKPOINT_BYTES", 256 << 10)  # noqa: B010 (a constant, to type checkers)
    setattr(partial, "MARK_BYTES", 64 << 10)  # noqa: B010
    get_file(url, target, settings=SETTINGS, read=hear)


def hear(count: int) -> None:
    """Hear of bytes, in a process of its own."""


def _start(processes: ForkServerContext, url: str, target: Path) -> BaseProcess:
    process = processes.Process(
        target=get_file, args=(url, target), kwargs={"settings": SETTINGS, "read": hear}
    )
    process.start()
    return process


def _kill_at(processes: ForkServerContext, folder: Path, size: int, points: list[int]) -> float:
    """Fetch an object, killing whoever does when the server has sent so many bytes in all; return
    what was sent of each byte of the object."""
    data = random.Random(7).randbytes(size)
    target = folder / "o"
    with HttpServer({"/o": Served(data)}, bytes_per_second=60e6) as server:
        for point in points:
            process = _start(processes, server.url + "/o", target)
            while server.sent < point and process.is_alive():
                time.sleep(0.001)
            assert not target.exists()
            process.kill()
            process.join()
            assert process.exitcode == -9
        last = _start(processes, server.url + "/o", target)
        last.join()
        assert last.exitcode == 0
        assert [p.name for p in folder.iterdir()] == ["o"]
        assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(data).digest()
        return server.sent / size


def test_five_kills_cost_less_than_a_fifth(tmp_path: Path, processes: ForkServerContext) -> None:
    points = sorted(random.Random(5).sample(range(20_000_000), 5))
    assert _kill_at(processes, tmp_path, 20_000_000, points) <= 1.2


@pytest.mark.slow
def test_twenty_kills_cost_less_than_a_fifth(tmp_path: Path, processes: ForkServerContext) -> None:
    points = sorted(random.Random(20).sample(range(200_000_000), 20))
    assert _kill_at(processes, tmp_path, 200_000_000, points) <= 1.2


# At these calls of these steps: the first data, data between checkpoints, the flush of data before
# a checkpoint, those of the checkpoint and its folder, its rename, a mark, and the end.
STEPS = [
    ("pwrite", 1),
    ("pwrite", 9),
    ("fsync", 1),
    ("fsync", 2),
    ("fsync", 3),
    ("fsync", 7),
    ("publish_bytes", 1),
    ("publish_bytes", 3),
    ("_write_mark", 1),
    ("_write_mark", 4),
    ("replace", 1),
    ("replace", 3),
    ("flush_folder", 1),
]


@pytest.mark.parametrize("before", [True, False])
def test_a_death_at_any_step_is_gone_on_from(
    tmp_path: Path, processes: ForkServerContext, before: bool
) -> None:
    data = random.Random(3).randbytes(1_000_000)
    for step, count in STEPS:
        target = tmp_path / f"{step}-{count}"
        with HttpServer({"/o": Served(data)}) as server:
            url = server.url + "/o"
            process = processes.Process(
                target=fetch_and_die, args=(url, target, step, count), kwargs={"before": before}
            )
            process.start()
            process.join()
            assert process.exitcode == DIED, (step, count)
            held = target.read_bytes() if target.exists() else b""
            assert held in (b"", data), (step, count)
            get_file(url, target, settings=SETTINGS, read=hear)
        assert target.read_bytes() == data, (step, count)
        left = {p.name for p in tmp_path.glob(f"*{target.name}*")}
        assert not left & {f"{target.name}.partial", f"{target.name}.partial.json"}
