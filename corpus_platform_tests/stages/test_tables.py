"""Tests of tables: row groups as they are written and read, names of a column as codes."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.stages import tables
from corpus_platform.stages.tables import (
    TableWriter,
    name_codes,
    read_batches,
    read_parts,
    readable,
)

SCHEMA = pa.schema([pa.field("row", pa.int64()), pa.field("id", pa.string())])


def _write(path: Path, sizes: list[int], *, group_rows: int = 1) -> list[int]:
    """Write tables of some sizes, numbered through; return the rows of each row group."""
    start = 0
    with TableWriter(path, SCHEMA, group_rows=group_rows) as writer:
        for size in sizes:
            rows = list(range(start, start + size))
            writer.write(pa.table({"row": rows, "id": [f"d{row}" for row in rows]}, schema=SCHEMA))
            start += size
        assert writer.close() == start
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


@pytest.mark.parametrize(
    ("group_rows", "groups"), [(1, [3, 2, 4, 1]), (5, [5, 5]), (6, [9, 1]), (99, [10])]
)
def test_tables_wait_for_others_until_a_row_group_is_full(
    group_rows: int, groups: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "table.parquet"
    assert _write(path, [3, 0, 2, 4, 1], group_rows=group_rows) == groups
    table = pq.read_table(path)
    assert table["row"].to_pylist() == list(range(10))
    assert table["id"].to_pylist() == [f"d{row}" for row in range(10)]


def test_large_tables_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows have from 28 to 32 bytes: three tables of them wait for a fourth, nine rows do not."""
    monkeypatch.setattr(tables, "GROUP_BYTES", 100)
    assert _write(tmp_path / "table.parquet", [2, 2, 2, 2, 9, 1], group_rows=99) == [8, 9, 1]


def test_a_batch_ends_with_its_row_group(tmp_path: Path) -> None:
    _write(tmp_path / "table.parquet", [1, 1, 5, 1])
    batches = read_batches(tmp_path / "table.parquet", ["row"], rows=3)
    assert [b.column("row").to_pylist() for b in batches] == [[0], [1], [2, 3, 4], [5, 6], [7]]


@pytest.mark.parametrize(
    ("most", "parts"),
    [(0, [1000] * 5), (20_000, [2000, 2000, 1000]), (1 << 20, [5000])],
)
def test_parts_are_row_groups_that_have_few_bytes_together(
    most: int, parts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand rows have 8,000 bytes, and some for how they are written."""
    monkeypatch.setattr(tables, "PART_BYTES", most)
    _write(tmp_path / "table.parquet", [1000] * 5)
    found = list(read_parts(tmp_path / "table.parquet", ["row"]))
    assert [part.num_rows for part in found] == parts
    assert [row for part in found for row in part["row"].to_pylist()] == list(range(5000))


def test_a_file_without_rows_has_no_parts(tmp_path: Path) -> None:
    _write(tmp_path / "table.parquet", [])
    assert list(read_parts(tmp_path / "table.parquet", ["row"])) == []


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (["b", "a", "b"], [2, 1, 2]),
        (["a", None, "strange"], [1, -1, -1]),
        ([None], [-1]),
        ([], []),
    ],
)
def test_each_name_has_its_code_and_what_has_none_minus_one(
    names: list[str | None], codes: list[int]
) -> None:
    found = name_codes(pa.array(names, pa.string()), {"a": 1, "b": 2})
    assert found.tolist() == codes
    assert found.dtype == np.int64


def test_a_slice_of_a_column_has_the_codes_of_its_rows() -> None:
    column = pa.array(["a", "b", None, "b"], pa.string()).slice(1, 2)
    assert name_codes(column, {"a": 1, "b": 2}).tolist() == [2, -1]


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("bad"),
        OSError("Couldn't deserialize thrift"),
        pl.exceptions.ComputeError("bad"),
        pl.exceptions.PanicException("bad"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_damaged_table_is_told_whatever_its_reader_raises(error: BaseException) -> None:
    said = f"^the table cannot be read: {re.escape(str(error))}; `corpus verify`"
    with pytest.raises(StorageError, match=said), readable("the table"):
        raise error


def test_what_the_system_refuses_stays_as_it_is() -> None:
    with pytest.raises(FileNotFoundError), readable(), Path("/none/such").open():
        pass
    with pytest.raises(FileNotFoundError), readable():
        pl.scan_parquet("/none/such").collect()
