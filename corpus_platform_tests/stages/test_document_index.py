"""Tests of the indexes: what they find, when they are made again, and that a hash is not believed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.document_index import (
    Index,
    documents_index,
    index_of,
    kept_file,
    shard_folder,
)
from corpus_platform.stages.explaining import explain
from corpus_platform.stages.project import Project
from corpus_platform_tests.small import SHARDS

LAST = SHARDS[2]


@pytest.fixture
def project(finished: Path) -> Project:
    """A corpus of which everything is made."""
    return open_project(load_settings(finished), read_only=True)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "ä", "http://x/"]), st.integers(0, 9))))
def test_an_index_finds_what_a_search_through_all_does(pairs: list[tuple[str, int]]) -> None:
    index = Index(index_of("url", [value for value, _ in pairs], [row for _, row in pairs]))
    for wanted in ("", "a", "ä", "http://x/", "nowhere"):
        assert index.rows("url", wanted) == sorted(row for value, row in pairs if value == wanted)
    assert index.rows("id", "a") == []


def test_ids_urls_and_the_ids_of_dropped_records_are_found(project: Project) -> None:
    cleaned = project.present("cleaned_documents", LAST)
    index = documents_index(project, LAST, cleaned)
    documents = pl.read_parquet(cleaned.path("documents.parquet"), columns=["id", "url", "row"])
    for identity, url, row in documents.iter_rows():
        assert index.rows("id", identity) == index.rows("url", url) == [row]
    assert index.rows("id", "short") == [40]
    assert index.rows("url", "https://example.org/short") == []


def test_an_index_is_kept_until_its_content_changes(tmp_path: Path) -> None:
    made = list[int]()

    def make() -> np.ndarray:
        made.append(1)
        return np.array([[len(made)], [7]], np.uint64)

    first = kept_file(tmp_path / "x", "a" * 64, make)
    assert kept_file(tmp_path / "x", "a" * 64, make).tolist() == first.tolist() == [[1], [7]]
    assert kept_file(tmp_path / "x", "b" * 64, make).tolist() == [[2], [7]]
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["b" * 32 + "-1"]
    (tmp_path / "x" / ("b" * 32 + "-1")).write_bytes(b"cut")
    assert kept_file(tmp_path / "x", "b" * 64, make).tolist() == [[3], [7]]
    assert len(made) == 3


def test_a_store_that_cannot_be_written_is_searched_all_the_same(project: Project) -> None:
    folder = shard_folder(project, "documents", LAST).parents[2]
    folder.write_bytes(b"a file where the folder should be")
    assert [d.row for d in explain(project, "short").documents] == [40]
    assert folder.is_file()


def test_a_hash_that_says_so_is_not_believed(project: Project) -> None:
    assert explain(project, "short").found
    (path,) = shard_folder(project, "documents", LAST).iterdir()
    table = np.fromfile(path, "<u8").reshape(2, -1)
    table[1] = np.uint64(3)  # as if all ids and URLs had the hash of those of row 3
    table.tofile(path)
    assert not explain(project, "short").found
