"""Tests of what is noted of an export in progress, and of where it may be written."""

import os
from pathlib import Path

import pytest

from corpus_platform.errors import UsageError
from corpus_platform.stages.export_target import ExportedFile, Folder, State
from corpus_platform.storage.hashes import HashMemo

FILES = [ExportedFile("a.bin", 3, "x" * 64, "train", 1, 1), ExportedFile("b/c.h5", 4, "y" * 64)]


def test_what_was_noted_is_read_again(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    assert (state.identity, state.files) == (None, {})
    state.begin(tmp_path, {"format": "olmo"}, FILES[:1])
    state.note(FILES[1:])
    again = State(tmp_path / "state")
    assert again.identity == {"format": "olmo"}
    assert again.files == {"a.bin": FILES[0], "b/c.h5": FILES[1]}


@pytest.mark.parametrize("kept", range(1, 60, 7))
def test_a_torn_note_is_as_if_it_were_not(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    State(path).begin(tmp_path, {"format": "olmo"}, FILES[:1])
    whole = path.read_bytes()
    State(path).note(FILES[1:])
    path.write_bytes(path.read_bytes()[: len(whole) + kept])
    torn = State(path)
    assert torn.files == {"a.bin": FILES[0]}
    torn.note(FILES[1:])
    assert State(path).files == {"a.bin": FILES[0], "b/c.h5": FILES[1]}


def _folder(tmp_path: Path, name: str = "") -> Folder:
    return Folder(tmp_path / name, HashMemo(tmp_path.parent / f"{tmp_path.name}.jsonl"))


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
ABD = "a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9"


def test_a_file_is_there_by_size_and_hash_and_is_hashed_where_it_looks_otherwise(
    tmp_path: Path,
) -> None:
    path, folder = tmp_path / "a", _folder(tmp_path)
    file = ExportedFile("a", 3, ABC)
    assert folder.fault(file) == "is missing"
    path.write_bytes(b"abc")
    os.utime(path, ns=(5, 5))
    assert folder.fault(file) is None
    path.write_bytes(b"abd")
    os.utime(path, ns=(5, 5))  # as it was: it is not read
    assert _folder(tmp_path).fault(file) is None
    os.utime(path, ns=(5, 6))
    assert _folder(tmp_path).fault(file) == f"sha256 {ABD}, expected {ABC}"
    path.write_bytes(b"ab")
    assert folder.fault(file) == "2 bytes, expected 3"


def test_an_empty_folder_and_one_of_an_export_may_be_written_to(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    folder.check_free({})
    (tmp_path / ".export-parts").mkdir()
    folder.check_free({})
    (tmp_path / "train.bin").touch()
    with pytest.raises(UsageError, match=r"holds train.bin, and no export.json says"):
        folder.check_free({})
    folder.check_free({"train.bin": FILES[0]})
    (tmp_path / "export.json").touch()
    folder.check_free({})


def test_a_small_file_that_was_not_finished_lies_in_the_scratch_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill leaves it: the next call clears that folder, and nothing else is in its way."""

    def killed(*_: object) -> None:
        raise SystemExit

    folder = _folder(tmp_path, "out")
    folder.scratch.mkdir(parents=True)
    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(SystemExit):
        folder.put("export.json", b"{}")
    with pytest.raises(SystemExit):
        State(folder.state_path).begin(folder.scratch, {}, [])
    assert [path.name for path in folder.folder.iterdir()] == [".export-parts"]
    folder.close(finished=False)
    assert list(folder.folder.iterdir()) == []
