"""Parquet files as the stages write and read them: whole tables in, batches of bounded size out."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["TableWriter", "name_codes", "read_batches", "write_table"]


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


def name_codes(column: pa.Array, codes: Mapping[str, int]) -> np.ndarray:
    """Return the code of each name of a column, -1 for null and for one that has none."""
    encoded = column.dictionary_encode()
    of_name = np.array([codes.get(n.as_py(), -1) for n in encoded.dictionary] + [-1], np.int64)
    return of_name[encoded.indices.fill_null(len(of_name) - 1).to_numpy(zero_copy_only=False)]
