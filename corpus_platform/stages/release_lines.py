"""The table of a release's documents, or of their pieces, read a row group at a time.

It lists the files one after the other, each in the order of its tokens; so a file's lines are a slice.
Those of a file where that does not hold are sorted in memory. Shards come as numbers: their place in
the ledger, and one below 0, told by its name, for a shard that the ledger does not name.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

__all__ = ["ReleaseLines", "held_lines"]

COLUMNS = ("start", "tokens", "shard", "row", "offset")
READ_ROWS = 1 << 16
HELD_LINES, PASSES = 1 << 18, 8


def held_lines(lines: int) -> int:
    """Return how many lines may be held at a time, of so many that come in groups of shards.

    A large table is then read PASSES times and one: more would take longer than all its tokens do.
    """
    return max(HELD_LINES, -(-lines // PASSES))


class ReleaseLines:
    """What the table says in sum; its lines come by file, as often as they are asked for."""

    def __init__(self, path: Path, shards: Sequence[str]) -> None:
        self.path, self._shards = path, {shard: number for number, shard in enumerate(shards)}
        self._files = dict[str, _Slice]()
        self.lines, self.documents, self.tokens = pq.read_metadata(path).num_rows, 0, 0
        first = 0
        for part in self.named("file", "start", "tokens", "offset"):
            self._see(first, part)
            first += len(part)
            self.documents += int((part["offset"] == 0).sum())
            self.tokens += int(part["tokens"].sum())

    def _see(self, first: int, part: pl.DataFrame) -> None:
        """Note which lines are whose file's, and whether they are in order."""
        starts = part["start"].to_numpy()
        begins = np.flatnonzero(np.diff(part["file"].rle_id().to_numpy(), prepend=-1)).tolist()
        for begin, after in zip(begins, [*begins[1:], len(part)], strict=True):
            file = self._files.setdefault(part["file"][begin], _Slice(first + begin))
            file.add(first + begin, starts[begin:after])

    @property
    def files(self) -> list[str]:
        """The files that are listed, in the order of their names."""
        return sorted(self._files)

    def knows(self, shard: str) -> bool:
        """Tell whether the ledger names a shard."""
        return shard in self._shards

    def count(self, file: str) -> int:
        """Return how many lines a file has."""
        return self._files[file].count if file in self._files else 0

    def of(self, file: str, columns: Sequence[str] = COLUMNS) -> Iterator[pl.DataFrame]:
        """Yield lines of a file in ascending order of their starts."""
        found = self._files.get(file)
        if found is None:
            return
        if found.ordered:
            for batch in self._read(columns, found.first, found.first + found.count):
                yield self._numbered(batch)
            return
        parts = [
            self._numbered(batch).filter(pl.col("file") == file)
            for batch in self._read(("file", *COLUMNS), 0, self.lines)
        ]
        yield pl.concat(parts).sort("start", maintain_order=True).select(columns)

    def named(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield all lines as they stand, with the names of shards."""
        return map(pl.DataFrame, self._read(columns, 0, self.lines))

    def _read(self, columns: Sequence[str], first: int, after: int) -> Iterator[pa.RecordBatch]:
        """Yield the lines [first, after) as they stand."""
        end = 0
        with pq.ParquetFile(self.path, read_dictionary=["file", "shard"]) as table:
            for group in range(table.num_row_groups):
                begin, end = end, end + table.metadata.row_group(group).num_rows
                if end <= first or after <= begin:
                    continue
                for batch in table.iter_batches(READ_ROWS, row_groups=[group], columns=columns):
                    low, high = max(first - begin, 0), min(after - begin, batch.num_rows)
                    if low < high:
                        yield batch.slice(low, high - low)
                    begin += batch.num_rows

    def _numbered(self, batch: pa.RecordBatch) -> pl.DataFrame:
        shards = batch["shard"]
        numbers = np.array([self._number(n) for n in shards.dictionary.to_pylist()], np.int64)
        return pl.DataFrame(batch).with_columns(shard=numbers[shards.indices.to_numpy()])

    def _number(self, shard: str) -> int:
        known = self._shards.get(shard)
        return -1 - (xxhash.xxh3_64_intdigest(shard.encode()) >> 1) if known is None else known


class _Slice:
    """The lines of one file: from where on, how many, and whether they are together and in order."""

    def __init__(self, first: int) -> None:
        self.first, self.count, self.ordered, self._last = first, 0, True, 0

    def add(self, begin: int, starts: np.ndarray) -> None:
        """Go on with lines that stand side by side in the table."""
        together = begin == self.first + self.count
        ascending = int(starts[0]) >= self._last and bool((starts[1:] >= starts[:-1]).all())
        self.ordered = self.ordered and together and ascending
        self.count, self._last = self.count + len(starts), int(starts[-1])
