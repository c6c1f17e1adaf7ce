"""What a Parquet file says of itself: its footer, and the header in front of each page.

Read here before Arrow reads them. A footer can claim any size, so the pages are asked, of which
only the headers are read. And pyarrow (26.0.1) ends the whole process with an abort when it is asked
for the column of a footer whose statistics are damaged: nothing of a file's metadata is asked of it.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["Chunk", "Page", "RowGroup", "pages", "row_groups"]

_HEADER_BYTES = (1 << 12, 1 << 24)  # Arrow too gives up at 16 MB; statistics may hold whole texts
_DEPTH = 16  # of structs and lists; the format has about 10
_DICTIONARY_PAGE = 2
_BOOLEANS, _BYTE, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, 7, 8, 12  # types of the protocol
_INTEGERS, _LISTS = (4, 5, 6), (9, 10)

Path = tuple[int, ...]  # of field numbers and places in lists
# PageHeader
_TYPE, _PLAIN, _STORED, _VALUES_V1, _VALUES_V2 = (1,), (2,), (3,), (5, 1), (8, 1)
# FileMetaData, RowGroup and ColumnChunk
_GROUPS, _COLUMNS, _GROUP_PLAIN, _GROUP_ROWS = (4,), (1,), (2,), (3,)
_CHUNK_STORED, _DATA_AT, _DICTIONARY_AT = (3, 7), (3, 9), (3, 11)


class Chunk(NamedTuple):
    """One column of a row group: where its pages are."""

    start: int
    stored: int


class RowGroup(NamedTuple):
    """A row group, as the footer tells it."""

    rows: int
    plain: int
    chunks: tuple[Chunk, ...]

    @property
    def stored(self) -> int:
        """How many bytes of the file the row group takes."""
        return sum(chunk.stored for chunk in self.chunks)

    @property
    def start(self) -> int:
        """Where its first page is."""
        return min((chunk.start for chunk in self.chunks), default=0)


class Page(NamedTuple):
    """One page: bytes as they will be in memory, and of how many values, at least 1."""

    plain: int
    values: int
    is_dictionary: bool


def row_groups(file: BinaryIO) -> list[RowGroup]:
    """Return the row groups of a file; raises ValueError where its end is no footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - 12:
        raise ValueError(f"no footer of a Parquet file before byte {size}")
    file.seek(size - 8 - length)
    reader = _Compact(file.read(length))
    try:
        reader.struct(())
    except IndexError as error:
        raise ValueError(f"the footer of {length} bytes before byte {size} is cut off") from error
    return [_row_group(reader, (*_GROUPS, i)) for i in range(reader.lengths.get(_GROUPS, 0))]


def _row_group(reader: "_Compact", at: Path) -> RowGroup:
    columns = (*at, *_COLUMNS)
    chunks = [_chunk(reader, (*columns, i)) for i in range(reader.lengths.get(columns, 0))]
    group = RowGroup(reader.number(at, _GROUP_ROWS), reader.number(at, _GROUP_PLAIN), tuple(chunks))
    if min(group.rows, group.plain, *(n for chunk in chunks for n in chunk)) < 0:
        raise ValueError(f"row group {at[-1]} has a size or place below 0: {group}")
    return group


def _chunk(reader: "_Compact", at: Path) -> Chunk:
    data, dictionary = reader.number(at, _DATA_AT), reader.numbers.get((*at, *_DICTIONARY_AT), 0)
    return Chunk(dictionary if 0 < dictionary < data else data, reader.number(at, _CHUNK_STORED))


def pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk; raises ValueError where its bytes are no row of them."""
    size = file.seek(0, os.SEEK_END)
    position, end = chunk.start, chunk.start + chunk.stored
    while position < end:
        header, length = _header(file, position)
        plain, stored = header.get(_PLAIN, -1), header.get(_STORED, -1)
        if plain < 0 or stored < 0 or position + length + stored > size:
            raise ValueError(f"the page at byte {position} has sizes {plain} and {stored}")
        values = max(1, header.get(_VALUES_V1, header.get(_VALUES_V2, 0)))
        yield Page(plain, values, header.get(_TYPE) == _DICTIONARY_PAGE)
        position += length + stored


def _header(file: BinaryIO, position: int) -> tuple[dict[Path, int], int]:
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
    """Reads one struct of Thrift's compact protocol: its whole numbers, and how long its lists are.

    Raises IndexError where the data end before it, ValueError where they are none.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.numbers: dict[Path, int] = {}
        self.lengths: dict[Path, int] = {}

    def number(self, above: Path, path: Path) -> int:
        try:
            return self.numbers[*above, *path]
        except KeyError as error:
            raise ValueError(f"the footer lacks its field {(*above, *path)}") from error

    def struct(self, path: Path) -> None:
        if len(path) > _DEPTH:
            raise ValueError("structs in a header are nested too deep")
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._signed()
            self._value(kind, (*path, number))

    def _value(self, kind: int, path: Path) -> None:
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

    def _list(self, path: Path) -> None:
        head = self._byte()
        count = self._unsigned() if head >> 4 == 15 else head >> 4
        if count > len(self.data) - self.at:  # an element has a byte at least
            raise IndexError
        self.lengths[path] = count
        for i in range(count):
            if head & 15 in _BOOLEANS:
                self._skip(1)
            else:
                self._value(head & 15, (*path, i))

    def _unknown(self, kind: int) -> int:
        raise ValueError(f"a header has a field of type {kind}")

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
                raise ValueError("a number in a header has more than 64 bits")
        return value | byte << shift

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
