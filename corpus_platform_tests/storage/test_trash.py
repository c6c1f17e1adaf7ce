"""Tests of the removal of folders: gone at once, whole, and gone on with after a kill."""

from pathlib import Path

import numpy as np
import pytest

from corpus_platform.storage.trash import PREFIX, discard, empty


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A generation with files, some in a folder."""
    folder = tmp_path / "0123"
    (folder / "deep").mkdir(parents=True)
    for name in ("manifest.json", "train-00000.bin", "deep/x"):
        (folder / name).write_bytes(b"1234")
    return folder


def test_a_folder_goes_with_all_that_is_in_it(folder: Path) -> None:
    discard(folder)
    assert list(folder.parent.iterdir()) == []


def test_what_is_mapped_stays_readable(folder: Path) -> None:
    mapped = np.memmap(folder / "train-00000.bin", "u1", mode="r")
    discard(folder)
    assert mapped.tobytes() == b"1234"


@pytest.mark.parametrize("gone", [[], ["manifest.json"], ["manifest.json", "deep/x"]])
def test_half_removed_folders_can_be_emptied(gone: list[str], folder: Path) -> None:
    for name in gone:
        (folder / name).unlink()
    trash = folder.rename(folder.with_name(f"{PREFIX}1"))
    empty(trash)
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        discard(tmp_path / "none")
