"""Tests of where documents lie in a release, and of what lies at an offset."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import NamedRelease, name_release
from corpus_platform.stages.release_places import (
    Line,
    find_group,
    is_token_file,
    lines_of,
    masked,
)
from corpus_platform_tests.stages.releases import SHARD, empty_project, write_release, write_rows


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project without a release."""
    return empty_project(tmp_path / "p")


def _rows(project: Project) -> NamedRelease:
    """Return a release of two rows of 4: documents 0, 1 in two pieces, and padding."""
    rows = [[(0, 0, [5, 0]), (1, 0, [6, 7])], [(1, 2, [8, 0]), (-1, 0, [9, 9])]]
    return name_release(project, write_rows(project, {"train-00000": rows}))


def test_the_lines_of_a_document_come_in_its_order(project: Project) -> None:
    release = _rows(project)
    places = [(SHARD, 0), (SHARD, 1), (SHARD, 2), ("2026-44/none", 1)]
    found = lines_of(release, places)
    assert list(found) == places[:2]
    assert found[SHARD, 0] == [Line("train-00000.bin", 0, 2, SHARD, 0, "d0", 0)]
    assert [(p.start, p.tokens, p.offset) for p in found[SHARD, 1]] == [(2, 2, 0), (4, 2, 2)]
    assert lines_of(release, places[3:]) == {}


def test_a_token_file_is_known_with_and_without_its_ending(project: Project) -> None:
    release = _rows(project)
    assert is_token_file("train-00000", release)
    assert is_token_file("train-00000.bin", release)
    assert not is_token_file("train-00001.bin", release)
    assert not is_token_file("documents.parquet", release)


def test_tokens_without_loss_are_counted(project: Project) -> None:
    files, masks = {"train-00000": [[5, 6], [7]]}, {"train-00000": [0, 1, 0]}
    release = name_release(project, write_release(project, files, masks=masks))
    bin_ = open_token_bin(release.artifact.folder, "train-00000")
    loss = bin_.loss
    assert loss is not None
    assert [masked(bin_, 0, 3), masked(bin_, 3, 2)] == [3 - int(loss[:3].sum()), 2 - int(loss[3:].sum())]  # fmt: skip
    assert masked(open_token_bin(_rows(project).artifact.folder, "train-00000"), 0, 4) == 0


@pytest.mark.parametrize("group_rows", [1, 2, 3, 100])
def test_the_group_of_a_key_is_the_last_that_begins_at_or_before_it(
    group_rows: int, tmp_path: Path
) -> None:
    places = [("a", 0), ("a", 5), ("a", 5), ("a", 9), ("b", 0), ("b", 2), ("c", 4)]
    columns = {"file": [f for f, _ in places], "start": [s for _, s in places]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=group_rows)
    with pq.ParquetFile(tmp_path / "t.parquet") as file:
        for key in [("a", 0), ("a", 4), ("a", 6), ("b", 1), ("c", 9), ("0", 0)]:
            first, rows = find_group(file, ["file", "start"], key)
            begins = range(0, len(places), group_rows)
            expected = max((b for b in begins if places[b] <= key), default=0)
            assert (first, rows) == (expected, min(group_rows, len(places) - expected))


def test_an_empty_table_has_an_empty_group(tmp_path: Path) -> None:
    pq.write_table(pa.table({"file": pa.array([], pa.string())}), tmp_path / "t.parquet")
    with pq.ParquetFile(tmp_path / "t.parquet") as file:
        assert find_group(file, ["file"], ("a",)) == (0, 0)
