"""Tests of pointers: what they say, and that one that cannot be read says nothing."""

from pathlib import Path

import pytest

from corpus_platform.storage.pointer import move_pointer, points_to, read_pointer


def test_a_moved_pointer_says_its_target_on_one_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "current.json"
    move_pointer(path, {"id": "b", "content": "a"})
    assert path.read_bytes() == b'{"content": "a", "id": "b"}\n'
    assert read_pointer(path) == {"id": "b", "content": "a"}
    assert points_to(path, {"content": "a", "id": "b"})
    assert not points_to(path, {"id": "b"})


def test_a_pointer_that_says_so_already_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    move_pointer(path, {"key": "a"})
    before = path.stat().st_ino
    move_pointer(path, {"key": "a"})
    assert path.stat().st_ino == before
    move_pointer(path, {"key": "b"})
    assert read_pointer(path) == {"key": "b"}


@pytest.mark.parametrize(
    "said", [None, b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_no_json_object_counts_as_none(tmp_path: Path, said: bytes | None) -> None:
    path = tmp_path / "latest.json"
    if said is not None:
        path.write_bytes(said)
    assert read_pointer(path) == {}
    move_pointer(path, {"key": "a"})
    assert read_pointer(path) == {"key": "a"}
