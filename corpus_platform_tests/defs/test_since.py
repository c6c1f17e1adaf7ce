"""The first time that something was seen is kept until it is gone."""

import json
import multiprocessing
from pathlib import Path

import pytest

from corpus_platform.defs.since import remember

ROUNDS = 40


def test_a_name_keeps_its_first_time_and_leaves_when_it_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "uncleared.json"
    assert remember(path, ["a/1", "a/2"], now=100) == {"a/1": 100, "a/2": 100}
    assert remember(path, ["a/2", "b/1"], now=200) == {"a/2": 100, "b/1": 200}
    assert json.loads(path.read_text())["since"] == {"a/2": 100, "b/1": 200}
    assert remember(path, ["a/1"], now=300) == {"a/1": 300}
    assert remember(path, [], now=400) == {}
    assert json.loads(path.read_text())["since"] == {}


def test_nothing_to_remember_makes_no_file_and_nothing_new_writes_none(tmp_path: Path) -> None:
    path = tmp_path / "uncleared.json"
    remember(path, [], now=1)
    assert list(tmp_path.iterdir()) == []
    remember(path, ["a/1"], now=1)
    before = path.stat().st_ino  # a file that is written again is another one
    remember(path, ["a/1"], now=2)
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"since": 3}',
        b'{"since": {"a/1": "yesterday"}}',
        b'{"since": {"a/1": [1]}}',
        b'{"since": {"a/1": NaN}}',
        b'{"since": {"a/1": -1}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_begun_anew(damaged: bytes, tmp_path: Path) -> None:
    path = tmp_path / "uncleared.json"
    path.write_bytes(damaged)
    assert remember(path, ["a/1"], now=50) == {"a/1": 50}
    assert remember(path, ["a/1"], now=60) == {"a/1": 50}


def test_a_time_that_is_yet_to_come_counts_from_now(tmp_path: Path) -> None:
    path = tmp_path / "uncleared.json"
    remember(path, ["a/1"], now=1000)
    assert remember(path, ["a/1"], now=500) == {"a/1": 500}


def _look(path: Path, mine: str) -> None:
    for i in range(ROUNDS):
        remember(path, ["common", f"{mine}-{i}"], now=1000 + i)


def test_two_processes_at_once_lose_nothing_that_both_see(tmp_path: Path) -> None:
    path = tmp_path / "uncleared.json"
    remember(path, ["common"], now=5)
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_look, args=(path, name)) for name in ("one", "two")]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert remember(path, ["common"], now=9999) == {"common": 5}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["uncleared.json", "uncleared.lease"]
