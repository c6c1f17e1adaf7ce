"""Parquet to records: every kind of string column, and what cannot be read as one."""

import datetime
import io
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.parquet import open_parquet, read_row_group
from corpus_platform.formats.records import Cursor


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _records(content: bytes, fields: Fields, limit: int) -> Iterator[Document | Rejected]:
    file, cursor = open_parquet(io.BytesIO(content), fields, shard="c/s"), Cursor()
    for group in range(len(file.groups)):
        yield from read_row_group(
            file,
            group,
            fields,
            cursor,
            shard="c/s",
            max_record_bytes=limit,
            max_page_bytes=1 << 20,
            admit=lambda *_: None,
        )


def read(
    content: bytes, *, text: str = "text", max_record_bytes: int = 32 << 20
) -> list[Document | Rejected]:
    return list(_records(content, Fields(text=text), max_record_bytes))


def damage(content: bytes, *, text: str = "text") -> DamagedShard:
    with pytest.raises(DamagedShard) as caught:
        read(content, text=text)
    assert caught.value.partition == "c/s"
    return caught.value


STRINGS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_every_kind_of_string_column_is_a_text(kind: pa.DataType) -> None:
    plain = pa.array(["one", None, "", " \u200b", "two"])
    records = read(stored(pa.table({"text": plain.cast(kind)}), row_group_size=2))
    assert records == [
        Document(0, 1, "c/s:0", None, "one", None, "{}"),
        Rejected(1, 2, None, "text_null", '{"text":null}'),
        Rejected(2, 3, None, "text_empty", '{"text":""}'),
        Rejected(3, 4, None, "text_blank", r'{"text":" \xe2\x80\x8b"}'),
        Document(4, 5, "c/s:4", None, "two", None, "{}"),
    ]


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_a_text_that_is_not_utf8_costs_its_row_only(kind: pa.DataType) -> None:
    raw = pa.array([b"one", b"caf\xe9", None, b"two"])
    text = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    if pa.types.is_dictionary(kind):
        text = text.dictionary_encode()
    elif pa.types.is_large_string(kind):
        text = text.cast(kind)
    records = read(stored(pa.table({"text": text})))
    assert [r.text if isinstance(r, Document) else r.reason for r in records] == [
        "one",
        "invalid_utf8",
        "text_null",
        "two",
    ]
    assert records[1] == Rejected(1, 2, None, "invalid_utf8", r"caf\xe9")


def test_a_string_inside_a_list_that_is_not_utf8_costs_its_row_only() -> None:
    raw = pa.array([b"good", b"\xff", b"fine"])
    strings = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    tags = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), strings)
    records = read(stored(pa.table({"text": ["a", "b", "c"], "tags": tags})))
    assert [type(record) for record in records] == [Document, Rejected, Document]


def test_ids_and_other_columns_come_with_their_values() -> None:
    table = pa.table(
        {
            "id": pa.array([7]),
            "text": ["t"],
            "url": ["u"],
            "lang": pa.array(["en"]).dictionary_encode(),
            "day": [datetime.date(2026, 10, 1)],
            "at": pa.array([1_000_000_001], pa.timestamp("ns")),
            "zoned": pa.array([1], pa.timestamp("us", "Europe/Berlin")),
            "score": [Decimal("1.10")],
            "raw": [b"\xff\x00"],
            "nested": [{"b": [1, None], "a": float("nan")}],
            "none": pa.nulls(1),
        }
    )
    (document,) = read(stored(table))
    assert isinstance(document, Document)
    assert document[:6] == (0, 1, "7", "u", "t", "en")
    assert document.meta == (
        '{"at":"1970-01-01 00:00:01.000000001","day":"2026-10-01",'
        '"nested":{"a":null,"b":[1,null]},"none":null,"raw":"/wA=","score":1.10,'
        '"zoned":"1970-01-01 00:00:00.000001Z"}'
    )


def test_a_missing_text_column_names_the_columns_found() -> None:
    content = stored(pa.table({"id": ["a"], "content": ["words"]}))
    assert "'text'" in str(damage(content))
    assert "id, content" in str(damage(content))
    assert len(read(content, text="content")) == 1


@pytest.mark.parametrize(
    ("column", "kind"),
    [([1], "int64"), ([b"bytes"], "binary"), ([["a"]], "list<"), ([{"text": "a"}], "struct<")],
)
def test_a_text_column_of_another_type_names_the_type(column: list, kind: str) -> None:
    message = str(damage(stored(pa.table({"text": column}))))
    assert "'text'" in message
    assert f"it is {kind}" in message


def test_a_text_longer_than_a_record_may_be_is_rejected() -> None:
    content = stored(pa.table({"text": ["é" * 512, "é" * 513]}))
    fits, too_long = read(content, max_record_bytes=1024)
    assert isinstance(fits, Document)
    assert too_long[:4] == (1, 2, None, "record_too_long")


def test_a_file_cut_anywhere_raises_at_its_end() -> None:
    content = stored(pa.table({"text": ["words"] * 10}))
    for cut in range(4, len(content), 7):
        assert damage(content[:cut]).offset == cut


def test_a_changed_byte_in_a_page_raises_with_the_place_of_the_row_group() -> None:
    table = pa.table({"text": [f"text number {i}" for i in range(100)]})
    content = bytearray(stored(table, row_group_size=50, write_page_checksum=True))
    start = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(1).column(0)
    content[start.data_page_offset + 40] ^= 0xFF
    assert damage(bytes(content)).offset == start.dictionary_page_offset


def test_a_page_beyond_the_limit_is_refused_before_it_is_unpacked() -> None:
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    content = stored(pa.table({"text": ["x" * (1 << 20)]}), **options)
    message = str(damage(content))
    assert "column 'text' has a page of 10485" in message
    assert "`read.max_window_bytes` = 1048576" in message
