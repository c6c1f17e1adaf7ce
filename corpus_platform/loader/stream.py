"""Several token files as one stream of tokens, with one number for each place in it.

A stream may be pickled and forked: what crosses is names and counts, each process opens the files
itself, when it first reads them. A file's end is always the end of a document.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from corpus_platform.formats.token_arrays import TokenFile
from corpus_platform.formats.token_bin import TokenBin

__all__ = ["Part", "Stream"]

_NONE = np.empty(0, np.int64)


class Part(Protocol):
    """A file of a stream: what is known of it before it is opened."""

    @property
    def name(self) -> str:
        """How messages name it."""
        ...

    @property
    def tokens(self) -> int:
        """The tokens in it, 0 for an empty one."""
        ...

    def open(self) -> TokenBin | TokenFile:
        """Open it in this process."""
        ...


class Stream:
    """All tokens of some files, in their order. `offsets` (int64) says where each file begins, and
    at last where the stream ends."""

    def __init__(self, parts: Sequence[Part], dtype: np.dtype) -> None:
        self.parts, self.dtype = tuple(parts), dtype
        self.offsets = np.cumsum([0, *(part.tokens for part in parts)], dtype=np.int64)
        self._forget()

    def _forget(self) -> None:
        self._opened: dict[int, TokenBin | TokenFile] = {}
        self._windows: dict[tuple[int, int], np.ndarray] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"parts": self.parts, "dtype": self.dtype}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def part(self, number: int) -> TokenBin | TokenFile:
        """Return a file, opened in this process."""
        if number not in self._opened:
            self._opened[number] = self.parts[number].open()
        return self._opened[number]

    def place(self, at: int) -> tuple[int, int]:
        """Return the file that a token lies in, and its place in there."""
        number = int(self.offsets.searchsorted(at, side="right")) - 1
        return number, at - int(self.offsets[number])

    def get_slice(self, start: int, stop: int) -> np.ndarray:
        """Return the tokens of [start, stop) as stored, without a copy where one file holds them.

        Raises IndexError where that reaches over an end of the stream.
        """
        pieces = [self.part(n).tokens[a:b] for n, a, b in self._spans(start, stop)]
        return _joined(pieces, self.dtype)

    def loss(self, start: int, stop: int) -> np.ndarray:
        """Return which tokens of [start, stop) count for the loss."""
        pieces = []
        for number, begin, end in self._spans(start, stop):
            loss = self.part(number).loss
            ones = np.ones(end - begin, np.bool_)
            pieces.append(ones if loss is None else loss[begin:end].astype(np.bool_))
        return _joined(pieces, np.dtype(np.bool_))

    def _spans(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the files that hold [start, stop), and from where to where in each."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"tokens {start} to {stop} of {len(self)}")
        spans = []
        while start < stop:
            number, begin = self.place(start)
            count = min(stop - start, self.parts[number].tokens - begin)
            spans.append((number, begin, begin + count))
            start += count
        return spans

    def gather(self, starts: np.ndarray, length: int, dtype: np.dtype) -> np.ndarray:
        """Return the `length` tokens from each start on, a line for each start."""
        lines = np.empty((len(starts), length), dtype)
        numbers = self.offsets.searchsorted(starts, side="right") - 1
        inside = starts + length <= self.offsets[numbers + 1]
        for number in np.unique(numbers[inside]).tolist():
            chosen = np.flatnonzero(inside & (numbers == number))
            self._gather_part(lines, chosen, number, starts[chosen] - self.offsets[number])
        for line in np.flatnonzero(~inside).tolist():
            start = int(starts[line])
            lines[line] = self.get_slice(start, start + length)
        return lines

    def _gather_part(
        self, lines: np.ndarray, chosen: np.ndarray, number: int, places: np.ndarray
    ) -> None:
        """Fill some lines from one file."""
        tokens, length = self.part(number).tokens, lines.shape[1]
        if not isinstance(tokens, np.ndarray):  # of HDF5, which has slices only
            for line, at in zip(chosen.tolist(), places.tolist(), strict=True):
                lines[line] = tokens[at : at + length]
            return
        windows = self._windows.get((number, length))
        if windows is None:
            windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
            self._windows[number, length] = windows
        if len(chosen) == len(lines):  # not lines[chosen]: that would be a copy of all more
            np.copyto(lines, windows[places])
        else:
            lines[chosen] = windows[places]

    def borders(self, start: int, stop: int) -> np.ndarray:
        """Return where documents end in the open interval (start, stop): ascending, each once.

        By binary search in the index of each file; ids are not looked at.
        """
        if not 0 <= start <= len(self):
            raise IndexError(f"borders from token {start} on, of {len(self)}")
        number, begin = self.place(start)
        found = []
        while number < len(self.parts) and (offset := int(self.offsets[number])) < stop:
            # One more than the tokens of the file: its own end is a border where more is asked for.
            end = min(stop - offset, self.parts[number].tokens + 1)
            found.append(self._borders_of(number, begin, end) + offset)
            number, begin = number + 1, 0
        return np.unique(np.concatenate(found)) if found else _NONE

    def _borders_of(self, number: int, begin: int, end: int) -> np.ndarray:
        ends = self.part(number).ends
        if ends is None or end <= begin:
            return _NONE
        # As the index's own type: for a Python int numpy would convert all of the index.
        first = int(ends.searchsorted(ends.dtype.type(begin), side="right"))
        after = int(ends.searchsorted(ends.dtype.type(end), side="left"))
        return ends[first : max(first, after)].astype(np.int64)


def _joined(pieces: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    if not pieces:
        return np.empty(0, dtype)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
