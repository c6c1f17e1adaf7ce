"""Hashes follow the files that are written, and nothing goes on after an error."""

import threading
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.formats.slices import Slices
from corpus_platform.formats.token_bin_parts import PartsSeal, TokenBinParts
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.packing.placement import Filled
from corpus_platform.stages.shuffle_sealing import Sealing

POLICY = Policy(5_000, "5e" * 32, eos_id=None)


def _files(folder: Path, count: int) -> list[TokenBinParts]:
    files = [TokenBinParts(folder, f"train-{i:05d}", POLICY, 4, 2, masked=False) for i in range(count)]  # fmt: skip
    for number, file in enumerate(files):
        file.create()
        file.write(0, 0, Slices.whole(np.full(4, number, "<u2")), np.array([1, 4]))
    return files


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_more_files_than_workers_are_hashed_each(workers: int, tmp_path: Path) -> None:
    files = _files(tmp_path, 5)
    with Sealing(files, workers=workers) as sealing:
        for number in (0, 0, 2, 3, 4):  # all of file 1 lies in a range that ends in file 2
            sealing.reach(number, Filled(1, 1))
        headers = sealing.headers([2] * 5, [0] * 5)
    assert len({header.bin.sha256 for header in headers}) == 5
    assert len({header.index.sha256 for header in headers}) == 1
    assert not _threads()


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if "ThreadPoolExecutor" in t.name]


def test_an_error_of_a_thread_comes_out(tmp_path: Path) -> None:
    files = _files(tmp_path, 2)
    files[0].path("bin").unlink()
    with Sealing(files, workers=2) as sealing:
        sealing.reach(0, Filled(4, 2))
        sealing.reach(1, Filled(4, 2))
        with pytest.raises(StorageError, match=r"train-00000\.bin"):
            sealing.headers([2, 2], [0, 0])


def test_an_error_in_the_block_ends_all_threads(tmp_path: Path) -> None:
    files = _files(tmp_path, 3)

    def failing() -> None:
        with Sealing(files, workers=2) as sealing:
            sealing.reach(0, Filled(1, 1))
            sealing.reach(1, Filled(1, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not _threads()
    assert not list(tmp_path.glob("*.json"))


def test_an_error_of_a_thread_ends_the_block_and_not_only_what_comes_after_it(
    tmp_path: Path,
) -> None:
    files = _files(tmp_path, 1)
    files[0].path("bin").unlink()
    with Sealing(files, workers=2) as sealing:
        sealing.reach(0, Filled(1, 1))
        wait(sealing._followed, timeout=30)
        with pytest.raises(StorageError, match=r"train-00000\.bin"):
            sealing.reach(0, Filled(4, 2))


def test_an_error_in_the_block_waits_for_no_hash_that_is_still_to_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, taken, begun = _files(tmp_path, 1), [], threading.Event()

    def reach(*given: object) -> None:
        begun.set()
        taken.append(given)
        time.sleep(0.05)

    monkeypatch.setattr(PartsSeal, "reach", reach)

    def failing() -> None:
        with Sealing(files, workers=2) as sealing:
            for _ in range(200):
                sealing.reach(0, Filled(4, 2))
            assert begun.wait(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert len(taken) < 100
    assert not _threads()
