"""Parquet files as the stages write and read them: whole tables in, batches of bounded size out."""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.errors import StorageError

__all__ = [
    "TableWriter",
    "name_codes",
    "read_batches",
    "read_parts",
    "readable",
    "write_table",
]

PART_BYTES = 1 << 26
GROUP_BYTES = 1 << 24  # of tables that wait for a row group


class TableWriter:
    """Writes tables of one schema to a Parquet file; its bytes depend on the tables only.

    Each table is a row group, or as many as have `group_rows` rows or GROUP_BYTES together: readers
    of a column take 30 times as long where a group has 256 rows of a few bytes.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        *,
        dictionary: Sequence[str] = (),
        group_rows: int = 1,
    ) -> None:
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=list(dictionary),
            write_statistics=[n for n in ("row",) if n in schema.names],  # of texts they are texts
        )
        self._rows, self._group_rows = 0, group_rows
        self._waiting: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Append a table."""
        if table.num_rows:
            self._waiting.append(table)
            self._rows += table.num_rows
        rows, size = (sum(getattr(t, n) for t in self._waiting) for n in ("num_rows", "nbytes"))
        if rows >= self._group_rows or size >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if len(self._waiting) > 1:
            self._waiting = [pa.concat_tables(self._waiting).combine_chunks()]
        for table in self._waiting:
            self._writer.write_table(table)
        self._waiting.clear()

    def close(self) -> int:
        """Write what waits, and the footer; return the rows of the file."""
        self._write_group()
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


@contextlib.contextmanager
def readable(what: str = "a table") -> Generator[None]:
    """Raise StorageError where the block meets a table that was cut or altered.

    Polars panics at some of those, which is no Exception; Arrow raises a bare OSError at others, and
    texts that are no UTF-8 any more are found where they are taken out of it.
    """
    panic = pl.exceptions.PanicException
    try:
        yield
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        panic,
        UnicodeDecodeError,
        OSError,
    ) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise  # the system's own: no such file, no room, …
        raise StorageError(
            f"{what} cannot be read: {error}; `corpus verify` says which file is damaged"
        ) from error


def read_batches(
    path: Path, columns: Sequence[str], *, rows: int = 1000
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a file in batches of at most `rows` rows, all of one row group.

    Few large texts are a row group of their own: a batch that goes on into the next groups would
    hold as many of them as it has rows.
    """
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield from file.iter_batches(rows, row_groups=[group], columns=list(columns))


def read_parts(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the columns of row groups that have at most PART_BYTES together, or of one."""
    with pq.ParquetFile(path) as file:
        groups, held = list[int](), 0
        for group in range(file.num_row_groups):
            size = _bytes(file.metadata.row_group(group), columns)
            if groups and held + size > PART_BYTES:
                yield file.read_row_groups(groups, columns=list(columns))
                groups, held = [], 0
            groups.append(group)
            held += size
        if groups:
            yield file.read_row_groups(groups, columns=list(columns))


def _bytes(group: pq.RowGroupMetaData, columns: Sequence[str]) -> int:
    found = (group.column(i) for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in found if c.path_in_schema in columns)


def name_codes(column: pa.Array, codes: Mapping[str, int]) -> np.ndarray:
    """Return the code of each name of a column, -1 for null and for one that has none."""
    encoded = column.dictionary_encode()
    of_name = np.array([codes.get(n.as_py(), -1) for n in encoded.dictionary] + [-1], np.int64)
    return of_name[encoded.indices.fill_null(len(of_name) - 1).to_numpy(zero_copy_only=False)]
