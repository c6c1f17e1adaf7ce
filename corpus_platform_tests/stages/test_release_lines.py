"""The table of a release comes by file and in order, whatever its row groups."""

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.stages import release_lines
from corpus_platform.stages.release_lines import ReleaseLines, held_lines

SHARDS = ["2026-40/b", "2026-40/a"]
LINES = [
    ("train-00000.bin", 0, 5, "2026-40/a", 7, "x", 0),
    ("train-00000.bin", 5, 0, "2026-40/b", 1, "y", 0),
    ("train-00000.bin", 5, 3, "2026-40/z", 2, "z", 9),
    ("train-00001.bin", 0, 4, "2026-40/y", 2, "v", 0),
    ("val-00000.bin", 0, 2, "2026-40/a", 3, "w", 0),
]


def _lines(path: Path, lines: list[tuple], group: int) -> ReleaseLines:
    frame = pl.DataFrame(lines, schema=RELEASE_DOCUMENTS.names, orient="row")
    pq.write_table(frame.to_arrow().cast(RELEASE_DOCUMENTS), path, row_group_size=group)
    return ReleaseLines(path, SHARDS)


@pytest.mark.parametrize("group", [1, 2, 100])
@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 1, 3, 0, 2]], ids=["sorted", "mixed"])
def test_lines_of_a_file_come_by_their_starts_with_numbers_of_shards(
    group: int, rows: int, order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_lines, "READ_ROWS", rows)
    lines = _lines(tmp_path / "d.parquet", [LINES[i] for i in order], group)
    assert (lines.lines, lines.documents, lines.tokens) == (5, 4, 14)
    assert lines.files == ["train-00000.bin", "train-00001.bin", "val-00000.bin"]
    assert [lines.count(f) for f in (*lines.files, "val-00001.bin")] == [3, 1, 1, 0]
    first = pl.concat(lines.of("train-00000.bin"))
    assert first["row"].to_list() == [7, 1, 2]
    assert first["shard"].to_list()[:2] == [1, 0]
    unknown = [first["shard"][2], pl.concat(lines.of("train-00001.bin"))["shard"][0]]
    assert unknown[0] < 0 > unknown[1] != unknown[0]
    assert pl.concat(lines.of("val-00000.bin", ["row", "shard"])).rows() == [(3, 1)]
    assert list(lines.of("val-00001.bin")) == []


def test_a_file_whose_lines_are_apart_is_not_in_order(tmp_path: Path) -> None:
    lines = _lines(tmp_path / "d.parquet", [LINES[i] for i in (0, 3, 1, 2, 4)], 2)
    assert [row for part in lines.of("train-00000.bin") for row in part["row"]] == [7, 1, 2]
    assert [row for part in lines.of("train-00001.bin") for row in part["row"]] == [2]


def test_a_table_without_lines_has_no_file(tmp_path: Path) -> None:
    lines = _lines(tmp_path / "d.parquet", [], 5)
    assert (lines.lines, lines.documents, lines.tokens, lines.files) == (0, 0, 0, [])


def test_a_part_of_a_large_table_is_held_and_a_small_one_whole() -> None:
    assert held_lines(5) == held_lines(8 << 18) == 1 << 18
    assert held_lines(100_000_000) == 12_500_000
