"""Keys of documents <-> a file of rows that lie sorted by section and first byte of the key.

Band hashes and exact keys of a shard are stored so: rows with equal keys meet in one bucket, and a
reader of all shards takes the same part of each file. A part is two reads; nothing else is touched.
What a key means is for the writer to say, in `scheme`; a reader refuses another. Version 1:

    0   8 bytes   b"CPROWS1\\n"
    8   uint32    bytes of the header
    12            header: UTF-8 JSON, keys sorted: documents, key_bytes, scheme, sections
    then          uint32 [sections, 256]: rows whose key begins with that byte
    then          keys of all rows, key_bytes each, by section, first byte, document
    then          uint32 for each of these rows: its document

A document is its place among the documents of the shard, from 0. Integers are little-endian; the
bytes of a key are in the order in which they are compared, so a uint64 hash lies big-endian.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.errors import StorageError, UsageError

__all__ = ["PREFIXES", "BucketRows", "Rows", "write_bucket_rows"]

PREFIXES = 256  # first bytes of a key
_MAGIC = b"CPROWS1\n"
_LENGTH, _DOCUMENT = np.dtype("<u4"), np.dtype("<u4")
_MAX_HEADER = 1 << 16


class Rows(NamedTuple):
    """Rows of one section: keys [n, key_bytes] of uint8, and the documents that have them."""

    keys: npt.NDArray[np.uint8]
    documents: npt.NDArray[np.uint32]


def write_bucket_rows(path: Path, sections: Sequence[npt.NDArray[np.uint8]], *, scheme: str) -> int:
    """Write one key a document and section, [documents, key_bytes] each; return the rows."""
    documents, width = sections[0].shape
    if any(keys.shape != (documents, width) for keys in sections) or not width:
        raise UsageError(f"keys of shape {[k.shape for k in sections]} are not one a document")
    orders = [np.argsort(keys[:, 0], kind="stable") for keys in sections]
    counts = [np.bincount(keys[:, 0], minlength=PREFIXES) for keys in sections]
    header = {
        "documents": documents,
        "key_bytes": width,
        "scheme": scheme,
        "sections": len(sections),
    }
    text = json.dumps(header, sort_keys=True).encode()
    with path.open("wb") as file:
        file.write(_MAGIC + np.array([len(text)], _LENGTH).tobytes() + text)
        file.write(np.array(counts, _LENGTH).tobytes())
        for keys, order in zip(sections, orders, strict=True):
            file.write(keys[order].tobytes())
        for order in orders:
            file.write(order.astype(_DOCUMENT).tobytes())
    return documents * len(sections)


class BucketRows:
    """Reads such a file; `bytes_read` counts the bytes of rows that were asked for.

    Of a file only its header is read, and of a section its own counts: a piece of a corpus opens the
    files of all shards.
    """

    def __init__(self, path: Path, *, scheme: str) -> None:
        self._path, self.bytes_read = path, 0
        try:
            with path.open("rb") as file:
                header, self._counts_start = _header(path, file)
                size = file.seek(0, 2)
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        self.documents, self.key_bytes, sections = _shape(path, header, scheme)
        rows = sections * self.documents
        self._keys_start = self._counts_start + sections * PREFIXES * _LENGTH.itemsize
        self._documents_start = self._keys_start + rows * self.key_bytes
        if size != self._documents_start + rows * _DOCUMENT.itemsize:
            raise StorageError(
                f"{path}: has {size} bytes, which are not {rows} rows; make it again"
            )

    def read(self, section: int, first: int = 0, last: int = PREFIXES) -> Rows:
        """Return the rows of a section whose keys begin with a byte in [first, last)."""
        try:
            with self._path.open("rb") as file:
                low, high = self._places(file, section, first, last)
                keys = self._rows(file, self._keys_start, low, high, self.key_bytes)
                found = self._rows(file, self._documents_start, low, high, _DOCUMENT.itemsize)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be read: {error}") from error
        return Rows(keys, found.view(_DOCUMENT)[:, 0].astype(np.uint32, copy=False))

    def _places(self, file: BinaryIO, section: int, first: int, last: int) -> tuple[int, int]:
        """Return the first row of a part of a section, and the one behind its last."""
        size = PREFIXES * _LENGTH.itemsize
        counts = self._bytes(file, self._counts_start + section * size, size).view(_LENGTH)
        ends = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if ends[-1] != self.documents:
            raise StorageError(
                f"{self._path}: counts {ends[-1]} rows in section {section}, which are not"
                f" {self.documents}; make it again"
            )
        start = section * self.documents  # each section holds every document once
        return start + int(ends[first]), start + int(ends[last])

    def _rows(
        self, file: BinaryIO, start: int, low: int, high: int, width: int
    ) -> npt.NDArray[np.uint8]:
        """Return rows [low, high) of `width` bytes."""
        self.bytes_read += (high - low) * width
        return self._bytes(file, start + low * width, (high - low) * width).reshape(-1, width)

    def _bytes(self, file: BinaryIO, offset: int, count: int) -> npt.NDArray[np.uint8]:
        file.seek(offset)
        found = np.fromfile(file, np.uint8, count)
        if found.size != count:
            raise StorageError(f"{self._path}: ends before byte {offset + count}; make it again")
        return found


def _header(path: Path, file: BinaryIO) -> tuple[Mapping[str, object], int]:
    """Return the header of a file, and where it ends."""
    start = len(_MAGIC) + _LENGTH.itemsize
    begin = file.read(start)
    if not begin.startswith(_MAGIC) or len(begin) < start:
        raise StorageError(f"{path}: is no file of bucket rows, version 1; make it again")
    size = int.from_bytes(begin[len(_MAGIC) :], "little")
    try:
        header = json.loads(file.read(min(size, _MAX_HEADER)))
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: its header is damaged: {error}; make it again") from error
    if not isinstance(header, dict):
        raise StorageError(f"{path}: its header is no object; make it again")
    return header, start + size


def _shape(path: Path, header: Mapping[str, object], scheme: str) -> tuple[int, int, int]:
    if header.get("scheme") != scheme:
        raise StorageError(
            f"{path}: its keys are of scheme {header.get('scheme')!r}, and those of {scheme!r} are"
            " wanted; they cannot be mixed: sign the shard again with these settings"
        )
    shape = [header.get(name) for name in ("documents", "key_bytes", "sections")]
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise StorageError(f"{path}: its header is damaged: {dict(header)}; make it again")
    return int(shape[0]), int(shape[1]), int(shape[2])  # ty: ignore[invalid-argument-type]
