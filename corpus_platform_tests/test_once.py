"""Tests of folders that are made once in a run."""

from pathlib import Path

import pytest

from corpus_platform_tests.once import made_once


def _base(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _make(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    (folder / "file").write_text(f"made in {folder.name}")


def _never(folder: Path) -> None:
    raise AssertionError(f"{folder} is there already")


def test_the_processes_of_a_run_have_one_folder_and_each_name_its_own(tmp_path: Path) -> None:
    one, other = _base(tmp_path / "popen-gw0"), _base(tmp_path / "popen-gw1")
    found = made_once(one, "a", _make)
    assert (found / "file").read_text() == "made in a"
    assert made_once(one, "a", _never) == made_once(other, "a", _never) == found
    assert (made_once(other, "b", _make) / "file").read_text() == "made in b"


def test_a_single_process_keeps_to_its_own_folder(tmp_path: Path) -> None:
    assert made_once(_base(tmp_path / "pytest-0"), "a", _make) == tmp_path / "pytest-0" / "a"


def test_what_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    def dying(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    factory = _base(tmp_path / "popen-gw0")
    with pytest.raises(KeyboardInterrupt):
        made_once(factory, "a", dying)
    assert [path.name for path in made_once(factory, "a", _make).iterdir()] == ["file"]
