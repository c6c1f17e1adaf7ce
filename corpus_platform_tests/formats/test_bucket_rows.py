"""Bucket rows: what is written is read by section and first byte, and nothing else is touched."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.bucket_rows import BucketRows, write_bucket_rows

KEYS = np.array([[7, 1], [0, 2], [7, 0], [255, 9]], np.uint8)


def test_the_bytes_of_a_file_are_those_of_the_description(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert write_bucket_rows(path, [KEYS, KEYS[::-1].copy()], scheme="s") == 8
    header = b'{"documents": 4, "key_bytes": 2, "scheme": "s", "sections": 2}'
    counts = np.zeros((2, 256), "<u4")
    counts[:, [0, 7, 255]] = 1, 2, 1
    keys = bytes([0, 2, 7, 1, 7, 0, 255, 9]) + bytes([0, 2, 7, 0, 7, 1, 255, 9])
    documents = np.array([1, 0, 2, 3, 2, 1, 3, 0], "<u4").tobytes()
    start = b"CPROWS1\n" + len(header).to_bytes(4, "little") + header
    assert path.read_bytes() == start + counts.tobytes() + keys + documents


@settings(max_examples=30)
@given(
    rows=st.lists(st.lists(st.integers(0, 255), min_size=3, max_size=3), max_size=30),
    first=st.integers(0, 256),
    more=st.integers(0, 256),
)
def test_a_part_holds_the_rows_whose_keys_begin_so(
    rows: list[list[int]], first: int, more: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "part.rows"
    last = min(256, first + more)
    write_bucket_rows(path, [np.array(rows, np.uint8).reshape(-1, 3)], scheme="s")
    keys, documents = BucketRows(path, scheme="s").read(0, first, last)
    wanted = sorted((r[0], i) for i, r in enumerate(rows) if first <= r[0] < last)
    assert documents.tolist() == [i for _, i in wanted]
    assert keys.tolist() == [rows[i] for _, i in wanted]


def test_the_bytes_of_rows_are_counted(tmp_path: Path) -> None:
    write_bucket_rows(tmp_path / "rows", [KEYS], scheme="s")
    rows = BucketRows(tmp_path / "rows", scheme="s")
    rows.read(0, 0, 8)
    assert rows.bytes_read == 3 * (2 + 4)


def test_of_a_file_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    """A section is read whole where all others are lost."""
    path = tmp_path / "rows"
    write_bucket_rows(path, [KEYS, KEYS, KEYS], scheme="s")
    data = bytearray(path.read_bytes())
    counts = len(data) - 3 * 4 * (2 + 4) - 3 * 1024
    for section in (0, 2):
        data[counts + section * 1024 : counts + (section + 1) * 1024] = bytes(1024)
    path.write_bytes(data)
    rows = BucketRows(path, scheme="s")
    assert rows.read(1).documents.tolist() == [1, 0, 2, 3]
    with pytest.raises(StorageError, match="counts 0 rows in section 2, which are not 4"):
        rows.read(2)


def test_another_scheme_is_refused_by_name(tmp_path: Path) -> None:
    write_bucket_rows(tmp_path / "rows", [KEYS], scheme="fast-1/k=128")
    with pytest.raises(StorageError, match="'fast-1/k=128', and those of 'fast-1/k=256' are"):
        BucketRows(tmp_path / "rows", scheme="fast-1/k=256")


@pytest.mark.parametrize("cut", [0, 4, 11, 30, 200, -1])
def test_a_cut_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write_bucket_rows(path, [KEYS], scheme="s")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StorageError, match="make it again"):
        BucketRows(path, scheme="s")


def test_a_file_that_is_longer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write_bucket_rows(path, [KEYS], scheme="s")
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(StorageError, match="are not 4 rows"):
        BucketRows(path, scheme="s")


def test_a_header_that_counts_less_than_nothing_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"documents": -1, "key_bytes": 8, "scheme": "s", "sections": 1}).encode()
    path = tmp_path / "rows"
    path.write_bytes(b"CPROWS1\n" + len(header).to_bytes(4, "little") + header)
    with pytest.raises(StorageError, match="header is damaged"):
        BucketRows(path, scheme="s")


def test_sections_of_different_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not one a document"):
        write_bucket_rows(tmp_path / "rows", [KEYS, KEYS[:2]], scheme="s")
