"""Tests of the notes on failures: remembered per shard, forgotten, and never in another folder."""

from pathlib import Path

import pytest

from corpus_platform.storage.failures import Failures


def test_a_failure_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    failures = Failures(tmp_path)
    assert failures.reason("c/a") is None
    failures.note("c/a", "first")
    failures.note("c/a", "HTTP 404 — gone")
    assert Failures(tmp_path).reason("c/a") == "HTTP 404 — gone"
    assert failures.reason("c/b") is None
    failures.forget("c/a")
    failures.forget("c/a")
    assert failures.reason("c/a") is None


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a\0b", "..", "y" * 5000, "a.json", "\udcff"]
)
def test_whatever_its_name_a_note_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    failures = Failures(tmp_path / "failures")
    key = f"c/{name}"
    failures.note(key.encode("utf-8", "backslashreplace").decode(), "gone")
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p.parent for p in files] == [tmp_path / "failures" / "c"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null", b'"x"'])
def test_a_note_that_is_none_of_ours_says_nothing(tmp_path: Path, data: bytes) -> None:
    failures = Failures(tmp_path)
    failures.note("c/a", "gone")
    (tmp_path / "c" / "a.json").write_bytes(data)
    assert failures.reason("c/a") is None
