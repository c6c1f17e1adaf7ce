"""The pages of a Parquet column as their own headers tell them, before anything is unpacked.

A footer can claim any size; the header in front of each page is what a reader makes room for. Only
headers are read: a few thousand bytes of each page's beginning, however large it is.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow.parquet as pq

__all__ = ["Page", "pages"]

_HEADER_BYTES = (1 << 12, 1 << 24)  # Arrow too gives up at 16 MB; statistics may hold whole texts
_DEPTH = 8  # of structs in a header; the format has 3
_DICTIONARY_PAGE = 2
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (
    (1, 2),
    3,
    (4, 5, 6),
    7,
    8,
    (9, 10),
    12,
)
# Numbers of fields in the format's PageHeader.
_TYPE, _PLAIN, _STORED, _VALUES_V1, _VALUES_V2 = (1,), (2,), (3,), (5, 1), (8, 1)


class Page(NamedTuple):
    """One page: bytes as they will be in memory, and of how many values, at least 1."""

    plain: int
    values: int
    is_dictionary: bool


def pages(file: BinaryIO, column: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """Yield the pages of a column chunk; raises ValueError where its bytes are no row of them."""
    size = file.seek(0, os.SEEK_END)
    position = column.dictionary_page_offset or column.data_page_offset
    end = position + column.total_compressed_size
    while position < end:
        header, length = _header(file, position)
        plain, stored = header.get(_PLAIN, -1), header.get(_STORED, -1)
        if plain < 0 or stored < 0 or position + length + stored > size:
            raise ValueError(f"the page at byte {position} has sizes {plain} and {stored}")
        values = header.get(_VALUES_V1, header.get(_VALUES_V2, 0))
        yield Page(plain, max(values, 1), header.get(_TYPE) == _DICTIONARY_PAGE)
        position += length + stored


def _header(file: BinaryIO, position: int) -> tuple[dict[tuple[int, ...], int], int]:
    """Return the whole numbers of the page header at `position`, and how long it is."""
    for size in _HEADER_BYTES:
        file.seek(position)
        reader = _Compact(file.read(size))
        try:
            reader.struct(())
        except IndexError:  # it goes on behind what was read
            continue
        return reader.numbers, reader.at
    raise ValueError(f"no page header at byte {position}")


class _Compact:
    """Reads one struct of Thrift's compact protocol and keeps its numbers by their path."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.numbers: dict[tuple[int, ...], int] = {}

    def struct(self, path: tuple[int, ...]) -> None:
        if len(path) > _DEPTH:
            raise ValueError("structs in a page header are nested too deep")
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._signed()
            self._value(kind, (*path, number))

    def _value(self, kind: int, path: tuple[int, ...]) -> None:
        if kind in _INTEGERS:
            self.numbers[path] = self._signed()
        elif kind == _BINARY:
            self._skip(self._unsigned())
        elif kind == _STRUCT:
            self.struct(path)
        elif kind in _LISTS:
            self._list(path)
        elif kind not in _BOOLEANS:
            self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind, 0) or self._unknown(kind))

    def _list(self, path: tuple[int, ...]) -> None:
        head = self._byte()
        count = self._unsigned() if head >> 4 == 15 else head >> 4
        for _ in range(count):
            if head & 15 in _BOOLEANS:
                self._skip(1)
            else:
                self._value(head & 15, (*path, -1))

    def _unknown(self, kind: int) -> int:
        raise ValueError(f"a page header has a field of type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise IndexError

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number in a page header has more than 64 bits")
        return value | byte << shift

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
