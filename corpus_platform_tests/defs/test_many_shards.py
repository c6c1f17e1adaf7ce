"""A tick over many shards opens catalogs, and no manifest more for a shard more: counted."""

import datetime
import os
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corpus_platform.storage.manifest import MANIFEST_NAME
from corpus_platform_tests.daemon import Daemon
from corpus_platform_tests.many import write_many_shards

NIGHT = datetime.datetime(2026, 11, 30, 2, tzinfo=datetime.UTC)
_opened: Counter[str] | None = None
_hooked = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | os.PathLike):
        _opened[os.path.basename(os.fspath(arguments[0]))] += 1


@contextmanager
def _counting() -> Generator[Counter[str]]:
    """Count the files that Python opens, by name. A hook cannot be taken back: it counts or not."""
    global _opened, _hooked
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked = True
    _opened = Counter()
    try:
        yield _opened
    finally:
        _opened = None


def _ticks(folder: Path, count: int) -> tuple[Counter[str], Counter[str]]:
    """Return what a night's tick and the look after it open, over so many shards, nothing due."""
    daemon = Daemon(write_many_shards(folder, count), folder / "home")
    daemon.settle()
    daemon.night(NIGHT)
    daemon.settle()  # what opens files only once has opened them
    daemon.cursor = None
    with _counting() as by_night:
        tick = daemon.night(NIGHT + datetime.timedelta(days=1))
    assert tick.said == "no shard is to be ingested"
    with _counting() as by_look:
        tick = daemon.look()
    assert tick.said.startswith("Night of")
    assert f"Corpus: {count} shards" in tick.said
    return by_night, by_look


@pytest.mark.slow
def test_a_shard_more_is_no_file_more_that_a_tick_opens(tmp_path: Path) -> None:
    few = _ticks(tmp_path / "few", 20)
    many = _ticks(tmp_path / "many", 200)
    for one, other in zip(few, many, strict=True):
        assert one[MANIFEST_NAME] == other[MANIFEST_NAME] <= 10
        assert sum(other.values()) == pytest.approx(sum(one.values()), abs=10)
        assert other["cleaned_documents.jsonl"] >= 1
