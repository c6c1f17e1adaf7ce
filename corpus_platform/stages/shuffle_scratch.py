"""What lies between the two passes of a shuffle: the units of one shard and split, sorted by keys.

A folder for each shard and split, as wide as the file system wants it, since nothing else reads it:

tokens, loss     the ids of all units back to back, filled up where a window is not full, and with a
                 mask one byte for each
ends, pieces     of each entry of the index: where it ends in its unit; of rows, what piece it is
lines.arrow      the lines of the table of documents, each with its place in its unit
units            where each unit begins in all of these, UNIT, and one more at the end

So any range of keys is found by a look at two records, and read in one piece of each file.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus_platform.errors import StorageError

__all__ = [
    "COUNTED",
    "ENDS",
    "ENDS_DTYPE",
    "LINES",
    "LOSS",
    "PIECES",
    "TOKENS",
    "UNIT",
    "UNITS",
    "mapped",
    "mapped_lines",
    "ranges",
]

TOKENS, LOSS, ENDS, PIECES = "tokens", "loss", "ends", "pieces"
UNITS, LINES = "units", "lines.arrow"
ENDS_DTYPE = np.dtype("<i8")
# Tokens, lines, entries of the index; tokens that are padding, documents that begin, units with a mask.
COUNTED = ("token", "line", "entry", "padding", "begun", "masked")
# The key of a unit, and how much of each all units before it have.
UNIT = np.dtype([("key", "<u8"), *((name, "<i8") for name in COUNTED)])


def mapped(path: Path, dtype: np.dtype, first: int, count: int) -> np.ndarray:
    """Map values of a file; raise StorageError where it ends before them.

    The map goes away with the array, and no file stays open for it: there are as many as shards.
    """
    begin, size = first * dtype.itemsize, count * dtype.itemsize
    try:
        with pa.memory_map(str(path)) as file:
            if file.size() < begin + size:
                raise StorageError(
                    f"{path}: it ends at byte {file.size()}; remove it and run again"
                )
            file.seek(begin)
            return np.frombuffer(file.read_buffer(size), dtype)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def mapped_lines(path: Path, first: int, count: int) -> pa.Table:
    """Map lines of the table of documents."""
    try:
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all().slice(first, count)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"{path}: cannot be read: {error}; remove it and run again") from error


def ranges(borders: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return what lies between borders, range by range in an order."""
    counts = np.diff(borders)[order]
    before = np.cumsum(counts) - counts
    return np.repeat(borders[:-1][order] - before, counts) + np.arange(int(counts.sum()))
