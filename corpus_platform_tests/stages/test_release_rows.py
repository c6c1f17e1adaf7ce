"""Tests of which document of one release is which of another."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.stages import release_rows
from corpus_platform.stages.release_names import name_release
from corpus_platform.stages.release_rows import match, matched_parts
from corpus_platform_tests.stages.releases import SHARD, empty_project, write_release

SCHEMA = {"shard": pl.Int32, "row": pl.Int64, "id": pl.UInt64, "tokens": pl.Int64, "train": pl.Boolean}  # fmt: skip


def _table(places: list[tuple[int, int, int]]) -> pl.DataFrame:
    rows = [(*place, 10 * number, number % 2 == 0) for number, place in enumerate(places)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_documents_are_the_same_by_row_then_by_id_in_their_order() -> None:
    """Shard 0: row 1 stays, rows 2 and 3 moved up by one, 4 went; of id 7 row 9 is left."""
    old = _table([(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4), (0, 5, 7), (0, 9, 7)])
    new = _table([(0, 1, 1), (0, 3, 2), (0, 4, 3), (0, 9, 7), (1, 4, 4)])
    found = match(old, new)
    kept = sorted(found.kept.select("row", "row_new", "id", "tokens", "tokens_new").rows())
    assert kept == [(1, 1, 1, 0, 0), (2, 3, 2, 10, 10), (3, 4, 3, 20, 20), (9, 9, 7, 50, 30)]
    assert found.removed.select("shard", "row", "id").rows() == [(0, 4, 4), (0, 5, 7)]
    assert found.added.select("shard", "row", "id").rows() == [(1, 4, 4)]


_places = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 3)),
    unique_by=lambda place: place[:2],
    max_size=8,
)


@settings(max_examples=30)
@given(_places, _places)
def test_no_document_is_lost_and_of_an_id_as_many_are_kept_as_both_have(
    old: list[tuple[int, int, int]], new: list[tuple[int, int, int]]
) -> None:
    found = match(_table(old), _table(new))
    own = Counter((shard, identity) for shard, _, identity in old)
    other = Counter((shard, identity) for shard, _, identity in new)
    assert Counter(found.kept.select("shard", "id").rows()) == own & other
    assert Counter(found.removed.select("shard", "id").rows()) == own - other
    assert Counter(found.added.select("shard", "id").rows()) == other - own
    stay = set(old) & set(new)
    assert stay <= {(s, r, i) for s, r, i in found.kept.filter(pl.col("row") == pl.col("row_new")).select("shard", "row", "id").rows()}  # fmt: skip


@pytest.mark.parametrize("lines", [1, 1 << 20])
def test_parts_of_any_size_hold_the_same_documents(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of a release are known by file and row; the second has one more."""
    project = empty_project(tmp_path / "p")
    monkeypatch.setattr(release_rows, "PART_LINES", lines)
    sides = [
        write_release(project, files)
        for files in (
            {"train-00000": [[1], [2, 3]]},
            {"train-00000": [[1], [2, 3, 4], [5]]},
        )
    ]
    paths = [name_release(project, side).path("documents.parquet") for side in sides]
    shards = [SHARD, "2026-44/b"]
    parts = list(matched_parts(*paths, shards, tmp_path))
    assert len(parts) == (5 if lines == 1 else 1)
    kept, removed, added = (pl.concat([p[kind] for p in parts]) for kind in range(3))
    assert sorted(kept.select("row", "tokens", "tokens_new").rows()) == [(0, 2, 2), (1, 3, 4)]
    assert (len(removed), added["row"].to_list()) == (0, [2])
    assert list(tmp_path.glob("old-*")) == []
