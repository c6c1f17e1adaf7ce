"""Parquet files as the stages write and read them: whole tables in, batches of bounded size out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["TableWriter", "fixed_matrix", "read_batches", "write_table"]


class TableWriter:
    """Writes tables of one schema to a Parquet file; its bytes depend on the tables only."""

    def __init__(self, path: Path, schema: pa.Schema, *, dictionary: Sequence[str] = ()) -> None:
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=list(dictionary),
            write_statistics=[n for n in ("row",) if n in schema.names],  # of texts they are texts
        )
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Append a table as row groups of its own."""
        if table.num_rows:
            self._writer.write_table(table)
            self._rows += table.num_rows

    def close(self) -> int:
        """Write the footer; return the rows of the file."""
        self._writer.close()
        return self._rows

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()


def write_table(path: Path, table: pa.Table, *, dictionary: Sequence[str] = ()) -> int:
    """Write one table; return its rows."""
    with TableWriter(path, table.schema, dictionary=dictionary) as writer:
        writer.write(table)
        return writer.close()


def read_batches(
    path: Path, columns: Sequence[str], *, rows: int = 1000
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a file in batches of at most `rows` rows."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=rows, columns=list(columns))


def fixed_matrix(column: pa.Array, dtype: str, width: int) -> np.ndarray:
    """Return [n, width] values of a binary column whose rows are all that wide, without a copy.

    Raises ValueError when a row has another length or is null.
    """
    if not len(column):
        return np.empty((0, width), dtype)
    _, offsets, data = column.buffers()
    size = width * np.dtype(dtype).itemsize
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    if column.null_count or (np.diff(ends) != size).any():
        raise ValueError(f"a row has not the {size} bytes of {width} values")
    flat = np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    return flat.view(dtype).reshape(-1, width)
