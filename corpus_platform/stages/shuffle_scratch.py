"""What lies between the two passes of a shuffle: the units of one shard and split, sorted by keys.

A folder for each shard and split, as wide as the file system wants it, since nothing else reads it:

tokens, loss     the ids of all units back to back, filled up where a window is not full, and with a
                 mask one byte for each
ends, pieces     of each entry of the index: where it ends in its unit; of rows, what piece it is
lines, ids       the lines of the table of documents, LINE, each with its place in its unit, and one
                 more at the end; the bytes of their ids back to back
units            where each unit begins in all of these, UNIT, and one more at the end
bands            where in the units each band begins, and the last ends: a shard that is too large for
                 memory is sorted in bands of its units, and keys rise within each

So any range of keys is found by a look at two records of a band, and read in one piece of each file.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus_platform.errors import StorageError

__all__ = [
    "BANDS",
    "COUNTED",
    "ENDS",
    "ENDS_DTYPE",
    "IDS",
    "LAYOUT",
    "LINE",
    "LINES",
    "LONG",
    "LOSS",
    "PIECES",
    "TOKENS",
    "UNIT",
    "UNITS",
    "bands_in",
    "collected",
    "mapped",
    "ranges",
    "size_of",
    "units_in",
]

TOKENS, LOSS, ENDS, PIECES = "tokens", "loss", "ends", "pieces"
UNITS, LINES, IDS, BANDS = "units", "lines", "ids", "bands"
LAYOUT = 3  # of all this: what another version left is not gone on with
LONG = 1 << 20  # bytes from which on a map is cheaper than a copy
ENDS_DTYPE = np.dtype("<i8")
# Tokens, lines, entries of the index; tokens that are padding, documents that begin, units with a mask.
COUNTED = ("token", "line", "entry", "padding", "begun", "masked")
# The key of a unit, and how much of each all units before it have.
UNIT = np.dtype([("key", "<u8"), *((name, "<i8") for name in COUNTED)])
# Of a line: its place and document, and the bytes of all ids before.
LINE = np.dtype([(name, "<i8") for name in ("start", "tokens", "row", "offset", "id")])


def mapped(path: Path, dtype: np.dtype, first: int, count: int) -> np.ndarray:
    """Map values of a file; raise StorageError where it ends before them.

    The map goes away with the array, and no file stays open for it: there are as many as shards.
    """
    begin, size = first * dtype.itemsize, count * dtype.itemsize
    try:
        with pa.memory_map(str(path)) as file:
            if file.size() < begin + size:
                raise _cut(str(path), file.size())
            file.seek(begin)
            return np.frombuffer(file.read_buffer(size), dtype)
    except OSError as error:
        raise _lost(str(path), error) from error


def collected(
    folders: Sequence[Path], name: str, dtype: np.dtype, first: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Read values of the file of this name in each folder, into one array.

    Raises StorageError where one ends before them. With thousands of shards these are short, and a
    map of each would take longer than its bytes, and use up the maps that a process may have.
    """
    values = np.empty(int(count.sum()), dtype)
    room, done = values.view("u1").data, 0
    begins, sizes = (n * dtype.itemsize for n in (first, count))
    for folder, begin, size in zip(folders, begins.tolist(), sizes.tolist(), strict=True):
        # `folder / name` took as long as all the rest of this loop.
        _fill(room[done : done + size], os.path.join(folder, name), begin)
        done += size
    return values


def _fill(room: memoryview, path: str, begin: int) -> None:
    """Read a file from a byte on."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            done = 0
            while done < len(room):
                if not (found := os.preadv(descriptor, [room[done:]], begin + done)):
                    raise _cut(path, begin + done)
                done += found
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _lost(path, error) from error


def units_in(folder: Path) -> np.ndarray:
    """Map the records of all units of a folder; raise StorageError where some are missing."""
    path = folder / UNITS
    records = mapped(path, UNIT, 0, size_of(path) // UNIT.itemsize)
    entries = size_of(folder / ENDS) // ENDS_DTYPE.itemsize
    if not len(records) or records["entry"][-1] != entries:
        raise _cut(str(path), records.nbytes)
    return records


def bands_in(folder: Path) -> list[tuple[int, int]]:
    """Return the first unit of each band of a folder, and the one behind its last."""
    path = folder / BANDS
    borders = mapped(path, ENDS_DTYPE, 0, size_of(path) // ENDS_DTYPE.itemsize).tolist()
    return list(itertools.pairwise(borders))


def size_of(path: Path) -> int:
    """Return the bytes of a file; raise StorageError where it is not there."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise _lost(str(path), error) from error


def _cut(path: str, size: int) -> StorageError:
    folder = os.path.dirname(path)
    return StorageError(f"{path}: it ends at byte {size}; remove {folder} and run again")


def _lost(path: str, error: OSError) -> StorageError:
    gone = isinstance(error, FileNotFoundError)
    way_out = f"; remove {os.path.dirname(path)} and run again" if gone else ""
    return StorageError(f"{path}: cannot be read: {error}{way_out}")


def ranges(borders: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return what lies between borders, range by range in an order."""
    counts = np.diff(borders)[order]
    before = np.cumsum(counts) - counts
    return np.repeat(borders[:-1][order] - before, counts) + np.arange(int(counts.sum()))
