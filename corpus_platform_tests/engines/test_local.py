"""Tests of the process pool: order, errors, killed workers, and that nobody is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from corpus_platform.engines.local import cores, map_pieces
from corpus_platform.errors import DamagedShard, StageFailed


def _square_slowly_at_first(piece: int) -> int:
    time.sleep(0.3 if piece == 0 else 0.0)
    return piece * piece


def _process(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def _fail_on_two(piece: int) -> int:
    if piece == 2:
        raise DamagedShard("c/s", reason="cut", offset=7)
    return piece


def _divide(piece: int) -> float:
    return 1 / piece


def _killed_on_two(piece: int) -> int:
    if piece == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return piece


def _workers() -> list[psutil.Process]:
    """Return the worker processes that this process has now."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # a killed one, reaped a moment later
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_pieces(workers: int) -> None:
    assert list(map_pieces(_square_slowly_at_first, range(6), workers=workers)) == [
        0,
        1,
        4,
        9,
        16,
        25,
    ]
    assert _workers() == []


def test_two_workers_are_two_other_processes() -> None:
    seen = set(map_pieces(_process, range(12), workers=2))
    assert len(seen) == 2
    assert os.getpid() not in seen


@pytest.mark.parametrize(("pieces", "workers"), [(range(3), 1), (range(1), 8)])
def test_one_worker_or_one_piece_stays_in_this_process(pieces: range, workers: int) -> None:
    assert set(map_pieces(_process, pieces, workers=workers)) == {os.getpid()}


def _thread(_: int) -> tuple[int, int]:
    time.sleep(0.02)
    return os.getpid(), threading.get_ident()


def test_threads_are_of_this_process_and_keep_the_order() -> None:
    seen = set(map_pieces(_thread, range(12), workers=3, threads=True))
    assert {pid for pid, _ in seen} == {os.getpid()}
    assert len(seen) == 3
    squares = list(map_pieces(_square_slowly_at_first, range(60), workers=2, threads=True))
    assert squares == [i * i for i in range(60)]


def test_an_error_in_a_thread_comes_out_as_it_was_raised() -> None:
    results = map_pieces(_fail_on_two, range(20), workers=2, threads=True)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DamagedShard):
        next(results)


@pytest.mark.parametrize("ahead", [2, 8])
def test_work_goes_no_further_ahead_than_its_results_are_taken(ahead: int) -> None:
    begun = []
    results = map_pieces(begun.append, range(500), workers=2, threads=True, ahead=ahead)
    next(results)
    time.sleep(0.2)
    assert 2 <= len(begun) <= 2 * ahead
    assert list(results) == [None] * 499
    assert sorted(begun) == list(range(500))


@pytest.mark.parametrize("workers", [1, 2])
def test_no_piece_is_no_result_and_no_process(workers: int) -> None:
    assert list(map_pieces(_process, [], workers=workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_piece_comes_out_as_it_was_raised(workers: int) -> None:
    results = map_pieces(_fail_on_two, range(20), workers=workers)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DamagedShard) as error:
        next(results)
    assert (error.value.partition, error.value.reason, error.value.offset) == ("c/s", "cut", 7)
    assert _workers() == []


def test_an_error_of_python_comes_out_too() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_pieces(_divide, [1, 0], workers=2))
    assert _workers() == []


def test_a_killed_worker_is_a_failure_in_words_and_nothing_hangs() -> None:
    started = time.monotonic()
    with pytest.raises(StageFailed, match="was killed, perhaps for lack of memory"):
        list(map_pieces(_killed_on_two, range(8), workers=2))
    assert time.monotonic() - started < 30
    assert _workers() == []


def test_whoever_stops_taking_results_leaves_no_worker() -> None:
    results = map_pieces(_process, range(50), workers=2)
    next(results)
    del results
    assert _workers() == []


PARENT = """
import sys, time
from pathlib import Path
from corpus_platform.engines.local import map_pieces

def work(piece):
    Path(sys.argv[0]).with_name(f"{piece}.begun").touch()
    time.sleep(60)

if __name__ == "__main__":
    list(map_pieces(work, [1, 2], workers=2))
"""


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, str(script)])
    try:
        _await(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
        children = psutil.Process(parent.pid).children()
        assert len(children) >= 2
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


def _await(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < until, "it did not happen in 30 s"
        time.sleep(0.05)


def test_cores_are_those_that_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))
