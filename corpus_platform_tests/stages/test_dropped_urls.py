"""Tests of finding dropped records by URL: what is read for it is bounded, and read once."""

from pathlib import Path

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages import dropped_urls
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dropped_urls import DroppedUrls, ReadShard, find_dropped
from corpus_platform.stages.explaining import explain
from corpus_platform.stages.project import Project
from corpus_platform_tests.small import SHARDS

URL = "https://example.org/short"


@pytest.fixture
def project(finished: Path) -> Project:
    """A corpus of which everything is made."""
    return open_project(load_settings(finished), read_only=True)


def _shards(project: Project) -> list[ReadShard]:
    assets = ("raw_shards", "cleaned_documents")
    return [ReadShard(s, *(project.present(asset, s) for asset in assets)) for s in SHARDS]


def _found(project: Project, url: str) -> DroppedUrls:
    return find_dropped(project, url, _shards(project), lambda done, total: None)


def test_the_record_of_a_url_is_found_and_kept_ones_are_not(project: Project) -> None:
    assert _found(project, URL) == DroppedUrls([(SHARDS[2], 40)], 0)
    assert _found(project, "https://example.org/while-0") == DroppedUrls([], 0)


def test_beyond_the_limit_shards_are_counted_and_those_read_before_are_none(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_urls, "MAX_BYTES", 1)
    assert _found(project, URL) == DroppedUrls([], 3)
    assert "3 shards are too large to be read for them" in explain(project, URL).said[1]
    monkeypatch.setattr(dropped_urls, "MAX_BYTES", 1 << 20)
    assert _found(project, URL).unread == 0
    monkeypatch.setattr(dropped_urls, "MAX_BYTES", 1)
    assert _found(project, URL) == DroppedUrls([(SHARDS[2], 40)], 0)
