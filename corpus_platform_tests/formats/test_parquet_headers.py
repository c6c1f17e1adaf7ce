"""Footers and page headers: what pyarrow says of good files, and an error for all others."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.formats.parquet_headers import Page, pages, row_groups


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def table(rows: int) -> pa.Table:
    texts = [None if i % 9 == 0 else f"text {i % 50} " * (i % 40) for i in range(rows)]
    tags = [[f"{i}", None] if i % 3 else None for i in range(rows)]
    return pa.table({"text": texts, "tags": tags, "score": [i / 3 for i in range(rows)]})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 300, "compression": "zstd", "write_page_checksum": True},
        {"data_page_version": "2.0", "data_page_size": 2000, "write_page_index": True},
        {"use_dictionary": False, "compression": "none", "write_statistics": False},
    ],
)
def test_groups_and_pages_are_those_that_pyarrow_tells(options: dict) -> None:
    file = io.BytesIO(stored(table(1000), **options))
    about = pq.read_metadata(file)
    groups = row_groups(file)
    assert len(groups) == about.num_row_groups
    for number, group in enumerate(groups):
        told = about.row_group(number)
        assert (group.rows, group.plain) == (told.num_rows, told.total_byte_size)
        for i, chunk in enumerate(group.chunks):
            column = told.column(i)
            assert chunk.start == (column.dictionary_page_offset or column.data_page_offset)
            assert chunk.stored == column.total_compressed_size
            found = list(pages(file, chunk))
            assert sum(p.values for p in found if not p.is_dictionary) == column.num_values
            assert any(p.is_dictionary for p in found) == column.has_dictionary_page


def test_a_page_says_how_much_it_unpacks_to() -> None:
    content = stored(pa.table({"text": ["a" * 5000] * 7}), compression="zstd", use_dictionary=False)
    (group,) = row_groups(io.BytesIO(content))
    (page,) = pages(io.BytesIO(content), group.chunks[0])
    levels = 6  # 4 bytes of length, and 7 definition levels in a run of 2 bytes
    assert page == Page(plain=levels + 7 * (4 + 5000), values=7, is_dictionary=False)
    assert group.start == 4
    assert group.stored < 200


def test_a_header_longer_than_the_first_read_is_read() -> None:
    texts = ["a" * 40_000, "b" * 40_000]
    content = stored(pa.table({"text": texts}), use_dictionary=False, write_statistics=["text"])
    content_of = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    (group,) = row_groups(io.BytesIO(content))
    (page,) = pages(io.BytesIO(content), group.chunks[0])
    assert page.values == content_of.num_values == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no footer of a Parquet file before byte 0"),
        (b"PAR1PAR1", "no footer of a Parquet file before byte 8"),
        (b"PAR1" + bytes(4) + b"\xff\xff\xff\xffPAR1", "no footer of a Parquet file"),
        (b"PAR1\x15" + b"\x01\0\0\0PAR1", "the footer of 1 bytes before byte 13 is cut off"),
        (b"PAR1\x1f\0" + b"\x02\0\0\0PAR1", "a header has a field of type 15"),
        (b"PAR1" + b"\x1c" * 40 + b"\x28\0\0\0PAR1", "nested too deep"),
        (b"PAR1\x15" + b"\xff" * 20 + b"\x15\0\0\0PAR1", "more than 64 bits"),
        (b"PAR1\x49\xfc\xff\xff\xff\x07\0" + b"\x07\0\0\0PAR1", "is cut off"),
    ],
)
def test_what_is_no_footer_is_said(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row_groups(io.BytesIO(content))


def test_any_damage_to_a_footer_ends_in_an_error_or_in_groups() -> None:
    good, rng = stored(table(50)), random.Random(3)
    length = int.from_bytes(good[-8:-4], "little")
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.choice((1, 3))):
            data[rng.randrange(len(data) - 8 - length, len(data) - 8)] = rng.randrange(256)
        try:
            found = row_groups(io.BytesIO(data))
        except ValueError:
            continue
        assert all(group.plain >= 0 and group.rows >= 0 for group in found)
