"""Slices of arrays reach a file in their order, however many and however the system takes them."""

import ctypes
import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.formats import slices as slices_module
from corpus_platform.formats.slices import Slices, write_array, write_slices


def _written(path: Path, slices: Slices, offset: int = 0) -> bytes:
    with path.open("wb") as file:
        write_slices(file.fileno(), slices, offset)
    return path.read_bytes()


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 10)), max_size=40),
    st.sampled_from(["u1", "<u2", "<u4", "<i8"]),
)
@settings(deadline=None, max_examples=60)
def test_slices_come_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int]], dtype: str
) -> None:
    values = np.arange(100).astype(dtype)
    starts, lengths = np.array(places, np.int64).reshape(-1, 2).T
    found = _written(tmp_path_factory.mktemp("s") / "f", Slices.cut(values, starts, lengths))
    assert found == b"".join(values[a : a + n].tobytes() for a, n in places)


def test_more_slices_than_a_call_takes_are_all_written(tmp_path: Path) -> None:
    values = np.arange(5000, dtype="<u2")
    order = np.random.default_rng(1).permutation(5000)
    found = _written(tmp_path / "f", Slices.cut(values, order, np.ones(5000, np.int64)))
    assert np.frombuffer(found, "<u2").tolist() == order.tolist()


def test_slices_of_several_arrays_are_named_in_any_order(tmp_path: Path) -> None:
    first, second = np.arange(5, dtype="u1"), np.arange(10, 15, dtype="u1")
    both = Slices.joined([Slices.whole(first), Slices.cut(second, np.array([3, 0]), np.array([2, 1]))])  # fmt: skip
    assert _written(tmp_path / "f", both[np.array([2, 0, 1])]) == bytes([10, 0, 1, 2, 3, 4, 13, 14])


def test_what_lies_before_and_behind_stays(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdefgh")
    with path.open("r+b") as file:
        write_slices(file.fileno(), Slices.whole(np.frombuffer(b"XY", "u1")), 3)
    assert path.read_bytes() == b"abcXYfgh"


@pytest.mark.parametrize("sizes", [[0], [], [0, 0, 0]])
def test_nothing_is_nothing(sizes: list[int], tmp_path: Path) -> None:
    nothing = np.array(sizes, np.int64)
    assert _written(tmp_path / "f", Slices.cut(np.zeros(0, "u1"), nothing * 0, nothing)) == b""


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (4, 2), (6, 0), (0, -1)])
def test_a_slice_out_of_its_array_is_refused(start: int, length: int) -> None:
    with pytest.raises(IndexError, match="out of the 5 values"):
        Slices.cut(np.zeros(5), np.array([start]), np.array([length]))


def test_slices_are_cut_from_several_arrays(tmp_path: Path) -> None:
    arrays = [np.arange(5, dtype="<u4"), np.zeros(0, "<u4"), np.arange(70_000, 70_003, dtype="<u4")]
    which, starts = np.array([2, 0, 2, 1]), np.array([1, 3, 0, 0])
    slices = Slices.cut_from(arrays, which, starts, np.array([2, 2, 1, 0]))
    found = np.frombuffer(_written(tmp_path / "f", slices), "<u4")
    assert found.tolist() == [70_001, 70_002, 3, 4, 70_000]
    with pytest.raises(IndexError, match="out of the 3 values"):
        Slices.cut_from(arrays, which, starts, np.array([3, 2, 1, 0]))


def test_a_write_that_takes_only_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system takes at most seven bytes at once, and is interrupted each third time."""
    calls = []

    def short(descriptor: int, vector: int, count: int, offset: int) -> int:
        calls.append(count)
        if len(calls) % 3 == 0:
            ctypes.set_errno(errno.EINTR)
            return -1
        pairs = (ctypes.c_uint64 * (2 * count)).from_address(vector)
        data = b"".join(ctypes.string_at(pairs[2 * i], pairs[2 * i + 1]) for i in range(count))
        return os.pwrite(descriptor, data[:7], offset)

    monkeypatch.setattr(slices_module, "_PWRITEV", short)
    values = np.arange(200, dtype="u1")
    starts, lengths = np.array([100, 0, 50, 7]), np.array([30, 3, 0, 20])
    found = _written(tmp_path / "f", Slices.cut(values, starts, lengths))
    assert found == bytes([*range(100, 130), *range(3), *range(7, 27)])
    assert len(calls) > 8


def test_a_file_that_may_not_grow_is_an_error_of_the_system(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            _written(tmp_path / "f", Slices.whole(np.zeros(3000, "u1")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "f").stat().st_size == 1000


def test_a_full_disk_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="No space left") as error, Path("/dev/full").open("wb") as file:  # fmt: skip
        write_slices(file.fileno(), Slices.whole(np.zeros(3000, "u1")), 0)
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize("count", [1, 400, 3000])
def test_an_array_on_a_full_disk_is_an_error_however_short(count: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_array(Path("/dev/full"), np.zeros(count, "<i8"))


def test_a_file_system_that_takes_nothing_and_says_nothing_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices_module, "_PWRITEV", lambda *_: 0)
    with pytest.raises(OSError, match="No space left"):
        _written(tmp_path / "f", Slices.whole(np.zeros(3, "u1")))


def test_the_package_writes_no_array_with_tofile() -> None:
    package = Path(slices_module.__file__).parents[1]
    sources = [p.read_text(encoding="utf-8") for p in package.rglob("*.py")]
    assert len(sources) > 100
    assert not [s for s in sources if ".tofile(" in s]
