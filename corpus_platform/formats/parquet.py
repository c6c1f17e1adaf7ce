"""Parquet files to records, one row group after another.

A file that cannot give the text column at all raises DamagedShard; a row whose text cannot be used
becomes a rejected record. Memory is bounded by a few column pages and one batch of rows, and the
headers of the pages say how large they are before one is unpacked.
"""

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.parquet_headers import RowGroup, pages, row_groups
from corpus_platform.formats.records import Cursor, Reason, excerpt, make_document, to_json

__all__ = ["OpenParquet", "open_parquet", "read_row_group"]

_BATCH_ROWS = 64  # 1000 are no faster
_BATCH_BYTES = 32 << 20  # of a batch, as far as its rows are alike
_BUFFER_BYTES = 1 << 20


class OpenParquet(NamedTuple):
    """A file that has the text column; what its footer says is in `groups`."""

    stored: BinaryIO
    parquet: pq.ParquetFile
    groups: list[RowGroup]


def open_parquet(file: BinaryIO, fields: Fields, *, shard: str) -> OpenParquet:
    """Open a Parquet file and make sure that it has the text column."""
    try:
        groups = row_groups(file)
        parquet = pq.ParquetFile(
            file,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        schema = parquet.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        size = file.seek(0, os.SEEK_END)
        reason = f"no readable Parquet footer before its end at byte {size}: {error}"
        raise DamagedShard(shard, reason=reason, offset=size) from error
    positions = schema.get_all_field_indices(fields.text)
    if len(positions) != 1:
        found = "none" if not positions else f"{len(positions)} of them"
        reason = (
            f"one column {fields.text!r} is wanted for the text, found {found} among"
            f" {', '.join(schema.names)}; name another with `fields: {{text: ...}}`"
        )
        raise DamagedShard(shard, reason=reason)
    column = schema.field(positions[0])
    if not _is_text(column.type):
        reason = f"column {fields.text!r} must be a string column for the text, it is {column.type}"
        raise DamagedShard(shard, reason=reason)
    return OpenParquet(file, parquet, groups)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def read_row_group(
    file: OpenParquet,
    group: int,
    fields: Fields,
    cursor: Cursor,
    *,
    shard: str,
    max_record_bytes: int,
    max_page_bytes: int,
    admit: Callable[[int, int, str, int], None],
) -> Iterator[Document | Rejected]:
    """Yield the records of one row group in order, and move `cursor` behind them.

    `admit` is asked with the plain and the stored bytes of the group, what it is and where it
    begins, and raises where that is too much. Raises DamagedShard when the group is corrupt or a
    page is larger than `max_page_bytes`.
    """
    about = file.groups[group]
    where, offset, read = f"row group {group}", about.start, 0
    try:
        plan = _plan(file, about, max_page_bytes)
        admit(plan.plain, about.stored, where, offset)
        batches = file.parquet.iter_batches(plan.rows, row_groups=[group], use_threads=False)
        swollen = 0  # a dictionary page stands for as much as there are rows
        for batch in batches:
            read += batch.num_rows
            columns = _columns(batch)
            swollen += columns.nbytes
            admit(max(swollen, plan.plain), about.stored, where, offset)
            for values in _rows(columns):
                yield _record(values, fields, cursor, shard, max_record_bytes)
                cursor.row += 1
                cursor.line += 1
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = f"{where} cannot be read: {error}; get the file again"
        raise DamagedShard(shard, reason=reason, offset=offset) from error
    if read != about.rows:
        reason = f"{where} has {read} rows, its footer says {about.rows}"
        raise DamagedShard(shard, reason=reason, offset=offset)


class _Plan(NamedTuple):
    """How a row group is read: its bytes, and so many rows at a time."""

    plain: int
    rows: int


def _plan(file: OpenParquet, group: RowGroup, max_page_bytes: int) -> _Plan:
    """Return what the headers of the pages say; raises ValueError for one beyond the limit."""
    plain, longest = 0, 1
    for number, chunk in enumerate(group.chunks if group.rows else ()):  # else it has no pages
        for page in pages(file.stored, chunk):
            if page.plain > max_page_bytes:
                name = file.parquet.schema.column(number).path
                raise ValueError(
                    f"column {name!r} has a page of {page.plain} bytes, the limit is"
                    f" `read.max_window_bytes` = {max_page_bytes}; raise it to read the shard"
                )
            plain += page.plain
            longest = max(longest, page.plain if page.is_dictionary else page.plain // page.values)
    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // longest))
    return _Plan(max(plain, group.plain), rows)


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without dictionaries; of columns that have one name the last counts."""
    columns = {name: _plain(batch.column(i)) for i, name in enumerate(batch.schema.names)}
    return pa.RecordBatch.from_pydict(columns)


def _rows(plain: pa.RecordBatch) -> Iterator[dict[str, object] | bytes]:
    """Yield the values of each row, or the bytes of one that holds a string that is not UTF-8."""
    if _is_valid(plain):
        yield from _values(plain)
        return
    # take, not slice: the children of a sliced list keep the strings of the other rows.
    for row in (plain.take(pa.array([i])) for i in range(plain.num_rows)):
        if _is_valid(row):
            yield from _values(row)
        else:
            yield next(_bytes_of(column) for column in row.columns if not _is_valid(column))


def _plain(column: pa.Array) -> pa.Array:
    """Return the column in a type whose values can be told in JSON, whatever is installed."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        utc = column.cast(pa.timestamp(kind.unit, "UTC")) if kind.tz else column
        return utc.cast(pa.string())
    if pa.types.is_time(kind) or pa.types.is_date(kind):
        return column.cast(pa.string())
    return column.cast(pa.int64()) if pa.types.is_duration(kind) else column


def _is_valid(values: pa.RecordBatch | pa.Array) -> bool:
    # Arrow does not look at the bytes of strings before it is asked to.
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return False
        raise
    return True


def _values(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _bytes_of(column: pa.Array) -> bytes:
    if _is_text(column.type):
        return column.cast(pa.large_binary())[0].as_py()
    return b""


def _record(
    values: dict[str, object] | bytes,
    fields: Fields,
    cursor: Cursor,
    shard: str,
    max_record_bytes: int,
) -> Document | Rejected:
    row, line = cursor.row, cursor.line
    if isinstance(values, bytes):
        return Rejected(row, line, None, "invalid_utf8", excerpt(values))
    found: Document | Reason
    if _longer(values[fields.text], max_record_bytes):
        found = "record_too_long"
    else:
        found = make_document(values, fields, shard=shard, row=row, line=line)
    if isinstance(found, Document):
        return found
    return Rejected(row, line, None, found, excerpt(to_json(values).encode()))


def _longer(text: object, max_bytes: int) -> bool:
    """Tell whether a text has more than `max_bytes` of UTF-8; encodes it only if it may have."""
    return isinstance(text, str) and len(text) * 4 > max_bytes and len(text.encode()) > max_bytes
