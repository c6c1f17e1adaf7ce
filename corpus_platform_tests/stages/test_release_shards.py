"""What each shard has in a release is counted in its table, and has to add up."""

from pathlib import Path

import polars as pl
import pytest

from corpus_platform.errors import StageFailed
from corpus_platform.stages.release_shards import counts_by_shard

LINES = [
    ("train-00000.bin", "c/a", 0, 7),
    ("train-00000.bin", "c/b", 0, 5),
    ("train-00001.bin", "c/a", 7, 3),  # the rest of a document that was cut
    ("train-00001.bin", "c/a", 0, 0),  # a document without a token
    ("val-00000.bin", "c/a", 0, 2),
]
WANTED = {
    "train_documents": 3,
    "train_tokens": 15,
    "validation_documents": 1,
    "validation_tokens": 2,
}


def _table(folder: Path) -> Path:
    frame = pl.DataFrame(LINES, schema=["file", "shard", "offset", "tokens"], orient="row")
    path = folder / "documents.parquet"
    frame.with_columns(pl.col("file", "shard").cast(pl.Categorical)).write_parquet(path)
    return path


def test_documents_begin_where_their_offset_is_0_and_tokens_are_those_of_all_pieces(
    tmp_path: Path,
) -> None:
    shards = ["c/b", "c/a", "c/none"]
    found = counts_by_shard(_table(tmp_path), shards, WANTED)
    assert list(found) == shards
    assert [list(row.values()) for row in found.values()] == [
        [1, 5, 0, 0],
        [2, 10, 1, 2],
        [0, 0, 0, 0],
    ]
    assert {tuple(row) for row in found.values()} == {tuple(WANTED)}


@pytest.mark.parametrize("wrong", [*WANTED, "shard"])
def test_what_does_not_add_up_is_refused(tmp_path: Path, wrong: str) -> None:
    wanted = {**WANTED, wrong: 9}
    shards = ["c/a"] if wrong == "shard" else ["c/a", "c/b"]
    with pytest.raises(StageFailed, match=r"documents.parquet: by shard"):
        counts_by_shard(_table(tmp_path), shards, wanted)
