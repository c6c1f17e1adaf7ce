"""Tests of a project that only reads: nothing is written, and a dead network is no end."""

import resource
from pathlib import Path

import pytest

from corpus_platform.commands import opening
from corpus_platform.commands.opening import reading_project, take_open_files
from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform_tests.small import SHARDS, write_small_corpus


def _unreachable(*_: object, **__: object) -> None:
    raise StorageError("https://host: no answer")


def test_new_shards_of_the_sources_are_counted_in_and_nothing_is_written(tmp_path: Path) -> None:
    project = reading_project(load_settings(write_small_corpus(tmp_path)))
    assert list(project.shards()) == list(SHARDS)
    assert not (tmp_path / "data").exists()


def test_where_sources_cannot_be_listed_the_registered_shards_do(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "list_shards", _unreachable)
    assert list(reading_project(load_settings(finished)).shards()) == list(SHARDS)
    assert "warning: the sources cannot be listed now: https://host" in capsys.readouterr().err


def test_without_any_registered_shard_that_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "list_shards", _unreachable)
    with pytest.raises(StorageError, match="no answer"):
        reading_project(load_settings(write_small_corpus(tmp_path)))


def test_a_process_may_open_as_many_files_as_the_machine_lets_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
        take_open_files()
        wanted = 65_536 if before[1] == resource.RLIM_INFINITY else min(65_536, before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
