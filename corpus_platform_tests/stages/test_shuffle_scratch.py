"""What lies between the passes is read whole or not at all, and names the folder to remove."""

import os
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.stages.shuffle_scratch import (
    COUNTED,
    ENDS,
    UNIT,
    UNITS,
    collected,
    mapped,
    units_in,
)

U2 = np.dtype("<u2")


def _folders(home: Path, *values: list[int]) -> list[Path]:
    folders = [home / f"train-{i:06d}" for i in range(len(values))]
    for folder, one in zip(folders, values, strict=True):
        folder.mkdir()
        np.array(one, U2).tofile(folder / "tokens")
    return folders


def test_pieces_of_several_files_come_in_one_array(tmp_path: Path) -> None:
    folders = _folders(tmp_path, [1, 2, 3, 4], [], [7, 8, 9])
    first, count = np.array([1, 0, 0]), np.array([2, 0, 3])
    before = len(os.listdir("/proc/self/fd"))
    assert collected(folders, "tokens", U2, first, count).tolist() == [2, 3, 7, 8, 9]
    assert collected([], "tokens", U2, first[:0], count[:0]).tolist() == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("first", "size"), [(0, 6), (2, 6), (9, 18)])
def test_a_file_that_ends_too_soon_is_named_with_its_folder(
    first: int, size: int, tmp_path: Path
) -> None:
    (folder,) = _folders(tmp_path, [1, 2, 3])
    said = rf"train-000000/tokens: it ends at byte {size}; remove \S+/train-000000 and run again"
    with pytest.raises(StorageError, match=said):
        collected([folder], "tokens", U2, np.array([first]), np.array([4]))
    with pytest.raises(StorageError, match=r"ends at byte 6; remove \S+/train-000000 and"):
        mapped(folder / "tokens", U2, first, 4)


def test_a_file_that_is_gone_is_named_with_its_folder(tmp_path: Path) -> None:
    said = r"gone/tokens: cannot be read: .*; remove \S+/gone and run again"
    with pytest.raises(StorageError, match=said):
        collected([tmp_path / "gone"], "tokens", U2, np.array([0]), np.array([4]))
    with pytest.raises(StorageError, match=said):
        mapped(tmp_path / "gone" / "tokens", U2, 0, 4)


@pytest.mark.parametrize("kept", [0, 56, 57, 112])
def test_records_that_were_cut_are_not_taken_for_fewer_units(kept: int, tmp_path: Path) -> None:
    assert UNIT.itemsize == 56
    records: np.ndarray = np.zeros(3, UNIT)
    for name in COUNTED:
        records[name] = [0, 1, 2]
    records.tofile(tmp_path / UNITS)
    np.array([5, 5], "<i8").tofile(tmp_path / ENDS)
    assert len(units_in(tmp_path)) == 3
    os.truncate(tmp_path / UNITS, kept)
    with pytest.raises(StorageError, match=rf"units: it ends at byte {kept // 56 * 56}; remove"):
        units_in(tmp_path)
