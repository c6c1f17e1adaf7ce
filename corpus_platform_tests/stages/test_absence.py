"""Tests of why documents are in no release whose makings are gone; other reasons in test_release_diff."""

from pathlib import Path

import polars as pl

from corpus_platform.stages.absence import why_absent
from corpus_platform.stages.release_makings import Makings
from corpus_platform.stages.release_names import name_release
from corpus_platform_tests.stages.releases import SHARD, empty_project, write_release

DOCUMENTS = pl.DataFrame({"row": [3, 4], "id": [1, 2]}, schema={"row": pl.Int64, "id": pl.UInt64})


def test_a_shard_that_was_left_out_is_none_or_is_unknown_says_so_of_all(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    name = write_release(project, {"train-00000": [[5]]}, excluded=["2026-40/b.jsonl"])
    makings = Makings(project, name_release(project, name))
    for shard, reason, detail in [
        ("2026-40/b.jsonl", "left_out", "not cleared"),
        ("2026-44/never", "no_shard", None),
        (SHARD, "unknown", None),  # nothing that it was made of is there
    ]:
        found = why_absent(project, makings, shard, DOCUMENTS)
        assert found.rows() == [(3, 1, reason, detail), (4, 2, reason, detail)]
    assert makings.traits(SHARD) is None
    assert makings.copies(SHARD) is None
