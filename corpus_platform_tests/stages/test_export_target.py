"""Tests of what is noted of an export in progress, and of where it may be written."""

from pathlib import Path

import pytest

from corpus_platform.errors import UsageError
from corpus_platform.stages.export_target import ExportedFile, Folder, State

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


def test_a_file_is_there_by_size_and_where_asked_by_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    file = ExportedFile.of(tmp_path / "a", "a")
    folder = Folder(tmp_path)
    assert folder.has(file, hashed=True)
    (tmp_path / "a").write_bytes(b"abd")
    assert folder.has(file, hashed=False)
    assert not folder.has(file, hashed=True)
    (tmp_path / "a").write_bytes(b"ab")
    assert not folder.has(file, hashed=False)
    (tmp_path / "a").unlink()
    assert not folder.has(file, hashed=False)


def test_an_empty_folder_and_one_of_an_export_may_be_written_to(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
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

    folder = Folder(tmp_path / "out")
    folder.scratch.mkdir(parents=True)
    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(SystemExit):
        folder.put("export.json", b"{}")
    with pytest.raises(SystemExit):
        State(folder.state_path).begin(folder.scratch, {}, [])
    assert [path.name for path in folder.folder.iterdir()] == [".export-parts"]
    folder.close(finished=False)
    assert list(folder.folder.iterdir()) == []
