"""Whose the documents of an exported file are: the table of a release, read once from end to end.

Its lines lie file by file in the order of the release, and so are files exported; one that is asked
for out of that order costs another reading. Memory is bounded by a batch and a block.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.errors import StageFailed

__all__ = ["DocumentTable", "FileSources"]

BATCH_ROWS = 1 << 16
_SOURCES = {"shard": pl.String, "row": pl.Int64, "id": pl.String, "tokens": pl.Int64}
_LINE = {"file": pl.String, **_SOURCES}


class DocumentTable:
    """The table of documents of a release, at the place where the last file that was read ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest, self._batches = pl.DataFrame(schema=_LINE), self._read()
        self._at_begin = True

    def lines(self, file: str) -> Iterator[pl.DataFrame]:
        """Yield the lines of a token file in their order, which is that of its documents."""
        whole = self._at_begin
        count = yield from self._on(file)
        if not count and not whole:  # it lies before
            self._rest, self._batches = pl.DataFrame(schema=_LINE), self._read()
            yield from self._on(file)

    def _on(self, file: str) -> Generator[pl.DataFrame, None, int]:
        """Yield the lines of a file from here on, and return how many there were."""
        count, self._at_begin = 0, False
        while (frame := self._next()) is not None:
            places = (frame["file"] == file).arg_true()
            if not len(places) and count:
                self._rest = frame
                break
            if len(places):
                first, after = int(places[0]), int(places[-1]) + 1
                self._rest = frame.slice(after)
                count += after - first
                yield frame.slice(first, after - first).select(list(_SOURCES))
                if after < len(frame):
                    break
        return count

    def _next(self) -> pl.DataFrame | None:
        frame, self._rest = self._rest, pl.DataFrame(schema=_LINE)
        return frame if len(frame) else next(self._batches, None)

    def _read(self) -> Iterator[pl.DataFrame]:
        with pq.ParquetFile(self._path) as table:
            for batch in table.iter_batches(BATCH_ROWS, columns=list(_LINE)):
                frame = pl.DataFrame(pa.table(batch))
                yield frame.select(pl.col(name).cast(kind) for name, kind in _LINE.items())


class _Columns(NamedTuple):
    ids: list[str]
    shards: list[str]
    rows: list[int]


class FileSources:
    """Whose the documents of a token file are, in their order, block by block."""

    def __init__(self, table: DocumentTable, name: str, file: str) -> None:
        self._batches, self._name = table.lines(file), name
        self._held = pl.DataFrame(schema=_SOURCES)

    def take(self, lengths: np.ndarray) -> _Columns:
        """Return those of the next documents, which have so many tokens."""
        count = len(lengths)
        while len(self._held) < count:
            batch = next(self._batches, None)
            if batch is None:
                raise StageFailed(
                    f"{self._name}: has more documents than its table lists; run `corpus verify`"
                )
            self._held = pl.concat([self._held, batch])
        taken, self._held = self._held.head(count), self._held.slice(count)
        if not np.array_equal(taken["tokens"].to_numpy(), lengths):
            raise StageFailed(
                f"{self._name}: documents are not as its table lists them; run `corpus verify`"
            )
        return _Columns(*(taken[name].to_list() for name in ("id", "shard", "row")))
