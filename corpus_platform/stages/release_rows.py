"""The documents of two releases side by side: which are in both, in one, and in which split.

Both tables are read once and cut by shard into parts of bounded size, on disk; what is compared lies
in memory a part at a time. A document of one release is that of the other when both come from one
shard and have one id, in one row; documents that are left, as in a repaired shard whose rows moved,
are the same by shard and id, several of one id in their order.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.tables import read_batches

__all__ = ["Matched", "match", "matched_parts"]

PART_LINES = 1 << 20  # of both releases that are compared together: half a gigabyte
_BATCH_LINES = 1 << 16
_RECORD = np.dtype(
    [("shard", "<i4"), ("row", "<i8"), ("id", "<u8"), ("tokens", "<i8"), ("train", "?")]
)
_COLUMNS = ["file", "tokens", "shard", "row", "id"]
_KEY = ["shard", "row", "id"]


class Matched(NamedTuple):
    """Documents in both releases, with `row`, `tokens` and `train` of the new one as `…_new`, and
    those in one alone. `shard` is a number of those that were given, `id` a hash."""

    kept: pl.DataFrame
    removed: pl.DataFrame
    added: pl.DataFrame


def matched_parts(old: Path, new: Path, shards: Sequence[str], scratch: Path) -> Iterator[Matched]:
    """Yield the documents of two tables of released documents, each document once.

    `shards` are those of both; the documents of a shard come together.
    """
    lines = sum(pq.read_metadata(path).num_rows for path in (old, new))
    parts = max(1, -(-lines // PART_LINES))
    for side, path in (("old", old), ("new", new)):
        _cut(path, shards, [scratch / f"{side}-{part}" for part in range(parts)])
    for part in range(parts):
        yield match(*(_documents(scratch / f"{side}-{part}") for side in ("old", "new")))


def _cut(path: Path, shards: Sequence[str], parts: Sequence[Path]) -> None:
    numbers = {shard: number for number, shard in enumerate(shards)}
    with ExitStack() as stack:
        files = [stack.enter_context(part.open("wb")) for part in parts]
        for batch in read_batches(path, _COLUMNS, rows=_BATCH_LINES):
            records = _records(batch, numbers)
            for number, file in enumerate(files):
                file.write(records[records["shard"] % len(files) == number].tobytes())


def _records(batch: pa.RecordBatch, numbers: dict[str, int]) -> np.ndarray:
    frame = pl.DataFrame(batch).with_columns(
        pl.col("shard").replace_strict(numbers, return_dtype=pl.Int32),
        pl.col("id").hash(),  # never stored: another version of polars hashes otherwise
        train=pl.col("file").str.starts_with(f"{BIN_NAMES['train']}-"),
    )
    records: np.ndarray = np.empty(len(frame), _RECORD)
    for name in _RECORD.names or ():
        records[name] = frame[name].to_numpy()
    return records


def _documents(path: Path) -> pl.DataFrame:
    """Return a line for each document, also of those that lie in pieces."""
    records: np.ndarray = np.fromfile(path, _RECORD)
    path.unlink()
    frame = pl.DataFrame({name: records[name].copy() for name in _RECORD.names or ()})
    return frame.group_by(_KEY).agg(pl.col("tokens").sum(), pl.col("train").first()).sort(_KEY)


def match(old: pl.DataFrame, new: pl.DataFrame) -> Matched:
    """Match documents by shard, row and id, and what is left by shard and id."""
    same = old.join(new.with_columns(row_new="row"), on=_KEY, suffix="_new")
    left_old, left_new = old.join(new, on=_KEY, how="anti"), new.join(old, on=_KEY, how="anti")
    key = ["shard", "id", "nth"]
    left_old, left_new = _numbered(left_old), _numbered(left_new)
    moved = left_old.join(left_new, on=key, suffix="_new").drop("nth")
    return Matched(
        kept=pl.concat([same, moved.select(same.columns)]),
        removed=left_old.join(left_new, on=key, how="anti").drop("nth"),
        added=left_new.join(left_old, on=key, how="anti").drop("nth"),
    )


def _numbered(documents: pl.DataFrame) -> pl.DataFrame:
    """Number the documents of one shard and id by their rows."""
    return documents.sort("shard", "row").with_columns(
        nth=pl.int_range(pl.len()).over("shard", "id")
    )
