"""Cut a sequence of documents into files of bounded size, at document borders only."""

from typing import NamedTuple

import numpy as np

__all__ = ["Cut", "cut_files"]


class Cut(NamedTuple):
    """`file` is the file number of each document; `oversized` counts those above the limit."""

    file: np.ndarray
    oversized: int


def cut_files(lengths: np.ndarray, *, max_tokens: int) -> Cut:
    """Fill files in the given order; no file exceeds `max_tokens`.

    The exception is a document that is longer by itself: it gets a file of its own.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lengths)
    file = np.empty(len(lengths), dtype=np.int64)
    first = number = written = 0
    while first < len(lengths):
        fitting = int(np.searchsorted(ends, written + max_tokens, side="right"))
        after = max(fitting, first + 1)
        file[first:after] = number
        written, first, number = int(ends[after - 1]), after, number + 1
    return Cut(file, int(np.count_nonzero(lengths > max_tokens)))
