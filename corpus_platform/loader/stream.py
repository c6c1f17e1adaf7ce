"""Several token files as one stream of tokens, with one number for each place in it.

A stream may be pickled and forked: what crosses is names and counts, each process opens the files
itself, when it first reads them. A file's end is always the end of a document.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from corpus_platform.errors import StorageError
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
        places = starts - self.offsets[numbers]
        windows = self._windows_of(numbers, places, length)
        if windows is not None:
            np.copyto(lines, windows[places])
            return lines
        # Files apart: line by line is faster than gathering the lines of each file.
        whole = places + length <= self.offsets[numbers + 1] - self.offsets[numbers]
        tokens = {number: self.part(number).tokens for number in set(numbers.tolist())}
        found = zip(numbers.tolist(), places.tolist(), whole.tolist(), strict=True)
        for line, (number, at, is_whole) in enumerate(found):
            if is_whole:
                lines[line] = tokens[number][at : at + length]
            else:
                lines[line] = self.get_slice(int(starts[line]), int(starts[line]) + length)
        return lines

    def _windows_of(
        self, numbers: np.ndarray, places: np.ndarray, length: int
    ) -> np.ndarray | None:
        """Return all windows of the one file that holds some; None where none does so alone."""
        if not len(numbers) or numbers.min() != (number := int(numbers.max())):
            return None
        tokens = self.part(number).tokens
        if not isinstance(tokens, np.ndarray) or int(places.max()) + length > len(tokens):
            return None  # those of HDF5 have slices only
        if (number, length) not in self._windows:
            windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
            self._windows[number, length] = windows
        return self._windows[number, length]

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
        borders = _joined(found, _NONE.dtype)
        twice = len(borders) > 1 and (borders[1:] == borders[:-1]).any()  # by an empty document
        return np.unique(borders) if twice else borders

    def line_borders(self, starts: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all `borders` of (start, start + length) for many starts: lines, and offsets in them."""
        numbers = self.offsets.searchsorted(starts, side="right") - 1
        places = starts - self.offsets[numbers]
        # Nothing of the next file but its begin, which is a border of this one.
        inside = places + length - 1 <= self.offsets[numbers + 1] - self.offsets[numbers]
        found = [(_NONE, _NONE)]
        for number in set(numbers[inside].tolist()):
            chosen = np.flatnonzero(inside & (numbers == number))
            found.append(self._line_borders_of(number, chosen, places[chosen], length))
        for line in np.flatnonzero(~inside).tolist():
            start = int(starts[line])
            offsets = self.borders(start, start + length) - start
            found.append((np.full(len(offsets), line), offsets))
        lines, offsets = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.lexsort((offsets, lines))
        lines, offsets = lines[order], offsets[order]
        new = np.ones(len(lines), np.bool_)  # empty documents end where the one before them does
        new[1:] = (lines[1:] != lines[:-1]) | (offsets[1:] != offsets[:-1])
        return lines[new], offsets[new]

    def _line_borders_of(
        self, number: int, lines: np.ndarray, places: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        ends = self.part(number).ends
        if ends is None:
            return _NONE, _NONE
        first = ends.searchsorted(places.astype(ends.dtype), side="right")
        after = ends.searchsorted((places + length).astype(ends.dtype), side="left")
        counts = np.maximum(after - first, 0)
        before = np.cumsum(counts) - counts
        entries = np.arange(int(counts.sum())) + np.repeat(first - before, counts)
        offsets = ends[entries].astype(np.int64) - np.repeat(places, counts)
        self._check_inside(number, offsets, 0, length)
        return np.repeat(lines, counts), offsets

    def _borders_of(self, number: int, begin: int, end: int) -> np.ndarray:
        ends = self.part(number).ends
        if ends is None or end <= begin:
            return _NONE
        # As the index's own type: for a Python int numpy would convert all of the index.
        first = int(ends.searchsorted(ends.dtype.type(begin), side="right"))
        after = int(ends.searchsorted(ends.dtype.type(end), side="left"))
        found = ends[first : max(first, after)].astype(np.int64)
        self._check_inside(number, found, begin, end)
        return found

    def _check_inside(self, number: int, found: np.ndarray, low: int, high: int) -> None:
        """Raise StorageError where borders are none of (low, high), as bisection has it."""
        if len(found) and not low < found.min() <= found.max() < high:
            raise StorageError(
                f"{self.parts[number].name}: the index of its documents does not rise, so it is"
                ' damaged; verify="sha256" names each file that is'
            )


def _joined(pieces: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    if not pieces:
        return np.empty(0, dtype)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
