"""Tests of the memo of hashes: an unchanged file is not read again, a changed one is."""

import os
from pathlib import Path

import pytest

from corpus_platform.storage import hashes
from corpus_platform.storage.hashes import HashMemo

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read from now on."""
    names: list[str] = []
    real = hashes.file_sha256

    def counted(path: Path) -> str:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(hashes, "file_sha256", counted)
    return names


def _file(folder: Path, data: bytes = b"abc") -> Path:
    path = folder / "source"
    path.write_bytes(data)
    return path


def test_a_file_is_read_once_as_long_as_it_stays(tmp_path: Path, reads: list[str]) -> None:
    file, memo = _file(tmp_path), HashMemo(tmp_path / "catalog" / "memo.jsonl")
    assert [memo.sha256(file), memo.sha256(file)] == [ABC, ABC]
    assert HashMemo(tmp_path / "catalog" / "memo.jsonl").sha256(file) == ABC
    assert reads == ["source"]


def test_a_file_of_another_size_or_time_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    file, memo = _file(tmp_path), HashMemo(tmp_path / "memo.jsonl")
    memo.sha256(file)
    file.write_bytes(b"abcd")
    assert memo.sha256(file) != ABC
    file.write_bytes(b"abc")
    os.utime(file, ns=(1, 1))
    assert memo.sha256(file) == ABC
    assert len(reads) == 3


def test_what_is_forgotten_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    file, memo = _file(tmp_path), HashMemo(tmp_path / "memo.jsonl")
    memo.sha256(file)
    memo.forget()
    memo.sha256(file)
    assert len(reads) == 2


def test_no_file_has_no_hash(tmp_path: Path) -> None:
    assert HashMemo(tmp_path / "memo.jsonl").sha256(tmp_path / "none") is None


def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path)
    assert HashMemo(tmp_path / "x" / "memo.jsonl", read_only=True).sha256(file) == ABC
    assert not (tmp_path / "x").exists()


def test_torn_and_foreign_lines_cost_only_a_reading(tmp_path: Path, reads: list[str]) -> None:
    file, path = _file(tmp_path), tmp_path / "memo.jsonl"
    HashMemo(path).sha256(file)
    whole = path.read_bytes()
    path.write_bytes(b'{"a": 1}\n[1]\n\xff\n' + whole + whole.strip()[:20])
    assert HashMemo(path).sha256(file) == ABC
    path.write_bytes(whole.strip()[:-5])
    assert HashMemo(path).sha256(file) == ABC
    assert reads == ["source", "source"]
