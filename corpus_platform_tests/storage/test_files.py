"""Tests of files: hashed as they are, published whole or not at all, named without loss."""

import hashlib
import os
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.storage import files
from corpus_platform.storage.files import (
    canonical_json,
    copy_hashed,
    file_sha256,
    publish_bytes,
    read_if_there,
    safe_name,
    text_sha256,
)

# From the standard that defines SHA-256 (FIPS 180-2, appendix B).
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_file_and_a_text_have_the_published_hashes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    assert file_sha256(tmp_path / "abc") == text_sha256("abc") == ABC
    assert file_sha256(tmp_path / "empty") == text_sha256("") == EMPTY


def test_a_file_of_several_blocks_is_hashed_whole_and_counted(tmp_path: Path) -> None:
    data = os.urandom(2 * files.BLOCK + 17)
    (tmp_path / "big").write_bytes(data)
    counted: list[int] = []
    assert file_sha256(tmp_path / "big", read=counted.append) == hashlib.sha256(data).hexdigest()
    assert sum(counted) == len(data)


def test_a_copy_is_the_file_and_says_what_was_read(tmp_path: Path) -> None:
    data = os.urandom(files.BLOCK + 3)
    (tmp_path / "source").write_bytes(data)
    counted: list[int] = []
    size, sha256 = copy_hashed(tmp_path / "source", tmp_path / "copy", read=counted.append)
    assert (tmp_path / "copy").read_bytes() == data
    assert (size, sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert sum(counted) == len(data)


def test_a_copy_never_goes_over_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "copy").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        copy_hashed(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"old"


def test_published_bytes_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    publish_bytes(path, b"one")
    publish_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]


def test_a_write_that_fails_leaves_the_old_bytes_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.json"
    publish_bytes(path, b"one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        publish_bytes(path, b"two")
    assert path.read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


def test_the_bytes_are_on_the_disk_before_they_have_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "b.json", []
    flush = os.fsync

    def watched(descriptor: int) -> None:
        seen.append(path.exists())
        flush(descriptor)

    monkeypatch.setattr(files.os, "fsync", watched)
    publish_bytes(path, b"one")
    assert seen == [False, True]  # the file, then the folder's entry


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    gone, living = tmp_path / ".b.json.0f1e.part", tmp_path / ".b.json.2d3c.part"
    for path, age in ((gone, 3700), (living, 3500)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    publish_bytes(tmp_path / "b.json", b"whole")
    assert not gone.exists()
    assert living.exists()


def test_two_writers_never_share_an_unfinished_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.os, "getpid", lambda: 7)  # as in two containers
    names: list[str] = []
    replace = os.replace

    def watched(source: Path, target: Path) -> None:
        names.append(source.name)
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", watched)
    publish_bytes(tmp_path / "b.json", b"one")
    publish_bytes(tmp_path / "b.json", b"two")
    assert len(set(names)) == 2


def test_a_file_that_is_not_there_reads_as_none(tmp_path: Path) -> None:
    assert read_if_there(tmp_path / "none") is None
    (tmp_path / "some").write_bytes(b"x")
    assert read_if_there(tmp_path / "some") == b"x"


def test_the_json_of_a_value_is_one_text() -> None:
    assert canonical_json({"b": [1, 2.5, None, True], "a": "é\n"}) == (
        '{"a":"é\\n","b":[1,2.5,null,true]}'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("part-00000.jsonl.zst", "part-00000.jsonl.zst"),
        ("a/b", "a%2Fb"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("", "%"),
        ("crawl=2026@x,y+z", "crawl=2026@x,y+z"),
        ("ü \n", "%C3%BC%20%0A"),
        ("100%", "100%25"),
    ],
)
def test_a_name_for_a_file_is_this(name: str, expected: str) -> None:
    assert safe_name(name) == expected


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_a_safe_name_is_one_component_and_can_be_read_back(name: str) -> None:
    safe = safe_name(name)
    assert "/" not in safe
    assert "\0" not in safe
    assert safe not in ("", ".", "..")
    assert len(safe.encode()) <= 255
    if len(safe) <= 200 and "~" not in safe:
        assert unquote(safe) == name


def test_long_names_stay_different() -> None:
    one, other = safe_name("x" * 300 + "1"), safe_name("x" * 300 + "2")
    assert one != other
    assert max(len(one), len(other)) <= 255
