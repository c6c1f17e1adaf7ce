"""Windows and rows of a stream as batches: inputs, labels, which labels count, and borders."""

import dataclasses
from typing import Literal

import numpy as np

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.formats.token_rows import Row, row
from corpus_platform.loader.batches import Batch
from corpus_platform.loader.stream import Stream

__all__ = ["MaskBoundary", "RowReader", "WindowReader", "line_borders"]

# What of a border counts for nothing: the label that is the end token (the last one of a document),
# the label behind it (the first one of the next document), both, or neither.
MaskBoundary = bool | Literal["end", "begin"]


@dataclasses.dataclass(frozen=True)
class WindowReader:
    """Make batches of windows, given where they begin."""

    stream: Stream
    length: int
    dtype: np.dtype
    mask_boundary: MaskBoundary = False
    borders: bool = False
    has_loss: bool = True  # some token of the stream counts for nothing
    control_ends: bool = True  # documents end in a control token

    def __call__(self, starts: np.ndarray) -> Batch:
        """Return inputs and labels; both lie in one array of windows of length + 1."""
        lines = self.stream.gather(starts, self.length + 1, self.dtype)
        borders = line_borders(self.stream, starts, self.length) if self.borders else None
        return Batch(lines[:, :-1], lines[:, 1:], self._loss(starts), starts, borders)

    def _loss(self, starts: np.ndarray) -> np.ndarray:
        loss = np.ones((len(starts), self.length), np.bool_)
        if not (self.has_loss or self.mask_boundary):
            return loss
        for line, start in zip(loss, starts.tolist(), strict=True):
            if self.has_loss:
                line[:] = self.stream.loss(start + 1, start + 1 + self.length)
            if self.mask_boundary in (True, "begin"):
                line[self._borders(start, start + self.length + 1) - start - 1] = False
            if self.mask_boundary in (True, "end") and self.control_ends:
                line[self._borders(start + 1, start + self.length + 2) - start - 2] = False
        return loss

    def _borders(self, start: int, stop: int) -> np.ndarray:
        return self.stream.borders(start, stop)


def line_borders(stream: Stream, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the borders of documents in windows that are put back to back (int32)."""
    found = [np.zeros(1, np.int64)]
    for line, start in enumerate(starts.tolist()):
        begin, end = line * length, (line + 1) * length
        found += [stream.borders(start, start + length) - start + begin, np.array([end])]
    return np.concatenate(found).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class RowReader:
    """Make batches of rows, given their numbers."""

    stream: Stream
    length: int
    dtype: np.dtype
    pad_id: int
    mask_boundary: bool = True

    def __call__(self, numbers: np.ndarray) -> Batch:
        """Return rows, and as labels the same shifted by one.

        The last label of a row is not in it: pad_id stands there, and counts for nothing.
        """
        x = self.stream.gather(numbers * self.length, self.length, self.dtype)
        y = np.full_like(x, self.pad_id)
        y[:, :-1] = x[:, 1:]
        rows = [self._row(number) for number in numbers.tolist()]
        loss = np.zeros(x.shape, np.bool_)
        for line, found in zip(loss, rows, strict=True):
            line[:-1] = found.loss[1:]
            if self.mask_boundary:
                line[found.cu_seqlens[1:-1] - 1] = False
        return Batch(x, y, loss, numbers, *_pieces(rows, self.length))

    def _row(self, number: int) -> Row:
        part, at = self.stream.place(number * self.length)
        file = self.stream.part(part)
        assert isinstance(file, TokenBin)
        return row(file, at // self.length)


def _pieces(rows: list[Row], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return borders, documents and offsets of the pieces of rows that are put back to back."""
    none = np.empty(0, np.int64)
    borders = [np.zeros(1, np.int32)]
    borders += [found.cu_seqlens[1:] + line * length for line, found in enumerate(rows)]
    documents = np.concatenate([none, *(found.document for found in rows)])
    offsets = np.concatenate([none, *(found.offset for found in rows)])
    return np.concatenate(borders).astype(np.int32), documents, offsets
