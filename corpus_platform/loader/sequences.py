"""Windows and rows of a stream as batches: inputs, labels, which labels count, and borders."""

import dataclasses
from typing import Literal

import numpy as np

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.formats.token_rows import Row, row
from corpus_platform.loader.batches import Batch
from corpus_platform.loader.stream import Stream

__all__ = ["MaskBoundary", "RowReader", "WindowReader"]

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
        borders = None
        if self.borders:
            borders = _back_to_back(
                *self.stream.line_borders(starts, self.length), lines[:, :-1].shape
            )
        return Batch(lines[:, :-1], lines[:, 1:], self._loss(starts), starts, borders)

    def _loss(self, starts: np.ndarray) -> np.ndarray:
        loss = np.ones((len(starts), self.length), np.bool_)
        if self.has_loss:
            for line, start in zip(loss, (starts + 1).tolist(), strict=True):
                line[:] = self.stream.loss(start, start + self.length)
        if self.mask_boundary:
            # Label i is token i + 1 of a window: that is the first one of a document where a border
            # lies at i + 1, the last one where it lies at i + 2.
            lines, offsets = self.stream.line_borders(starts, self.length + 2)
            if self.mask_boundary in (True, "begin"):
                of = offsets <= self.length
                loss[lines[of], offsets[of] - 1] = False
            if self.mask_boundary in (True, "end") and self.control_ends:
                of = offsets >= 2
                loss[lines[of], offsets[of] - 2] = False
        return loss


def _back_to_back(lines: np.ndarray, offsets: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the borders of documents in lines that are put back to back, and those of the lines."""
    count, length = shape
    every = np.concatenate([np.arange(count + 1) * length, lines * length + offsets])
    every.sort()
    return every.astype(np.int32)


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
