"""Plans of rows of a fixed length: which piece of which document lies in which row.

From the lengths of documents to pieces in row order, values in and values out. A document longer
than a row is cut into whole rows and a tail. Moving the tokens is left to whoever has them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import UsageError

__all__ = ["RowPlan", "best_fit", "best_fit_rows", "pad", "permuted", "plan_rows"]

WORD_BITS = 12  # a row of 2,048 in one step; 8 to 14 were equally fast
DIGIT_BITS, MAX_DIGITS = 16, 3  # numpy sorts uint16 by counting; four passes are no gain


class RowPlan(NamedTuple):
    """Pieces in row order, int64 all; those of row i are [row_ends[i - 1], row_ends[i])."""

    document: np.ndarray  # index into the lengths
    offset: np.ndarray  # tokens of the document before the piece
    length: np.ndarray  # at least 1
    row_ends: np.ndarray  # one a row, in pieces, exclusive


def plan_rows(strategy: str, lengths: np.ndarray, row_tokens: int) -> RowPlan:
    """Return the plan of a strategy that makes rows: `best_fit` or `pad`."""
    plans = {"best_fit": best_fit, "pad": pad}
    if strategy not in plans:
        raise UsageError(f"strategy {strategy!r} makes no rows; those that do: {', '.join(plans)}")
    return plans[strategy](lengths, row_tokens=row_tokens)


def best_fit(lengths: np.ndarray, *, row_tokens: int) -> RowPlan:
    """Pack documents by best fit, longest first; none is cut that fits into a row.

    First come the whole rows of long documents, then the others as they were opened; inside a row
    pieces stand in document order.
    """
    lengths = _checked(lengths, row_tokens)
    rest = lengths % row_tokens
    tails = np.flatnonzero(rest)
    row, rows = _fitted(rest[tails], row_tokens)
    del rest  # memory, not names, is what is short here
    ends = np.cumsum(np.bincount(row, minlength=rows), dtype=np.int64)
    tails = tails[_stable_order(row)]
    del row
    cut = _whole_rows(lengths // row_tokens, row_tokens)
    left = lengths[tails]
    offset = left // row_tokens * row_tokens
    left -= offset
    return RowPlan(
        np.concatenate((cut.document, tails)),
        np.concatenate((cut.offset, offset)),
        np.concatenate((cut.length, left)),
        np.concatenate((cut.row_ends, ends + len(cut.document))),
    )


def best_fit_rows(lengths: np.ndarray, *, row_tokens: int) -> int:
    """Return how many rows `best_fit` makes, without a plan of them."""
    lengths = _checked(lengths, row_tokens)
    sizes, counts = np.unique(lengths % row_tokens, return_counts=True)
    tails = slice(None, 0 if len(sizes) and not sizes[0] else None, -1)  # longest first
    fills = _fills(sizes[tails].tolist(), counts[tails].tolist(), row_tokens)
    opened = max((first + rows for first, rows, _ in fills), default=0)
    return int((lengths // row_tokens).sum()) + opened


def pad(lengths: np.ndarray, *, row_tokens: int) -> RowPlan:
    """Give each document a row of its own; a longer one takes whole rows and one for its tail."""
    lengths = _checked(lengths, row_tokens)
    plan = _whole_rows(-(-lengths // row_tokens), row_tokens)
    left = lengths[plan.document] - plan.offset
    return plan._replace(length=np.minimum(left, row_tokens))


def permuted(plan: RowPlan, keys: np.ndarray) -> RowPlan:
    """Return the plan with its rows in the order of their keys; equal keys go by row number."""
    counts = np.diff(plan.row_ends, prepend=0)
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(counts[order])
    moved = (plan.row_ends - counts)[order] - (ends - counts[order])
    pieces = np.arange(len(plan.document)) + np.repeat(moved, counts[order])
    return RowPlan(plan.document[pieces], plan.offset[pieces], plan.length[pieces], ends)


def _checked(lengths: np.ndarray, row_tokens: int) -> np.ndarray:
    if row_tokens < 1:
        raise UsageError(f"rows of {row_tokens} tokens: a row holds at least 1")
    lengths = np.asarray(lengths, dtype=np.int64)
    if len(lengths) and int(lengths.min()) < 0:
        at = int(lengths.argmin())
        raise UsageError(f"document {at} of {lengths[at]} tokens: a length is at least 0")
    return lengths


def _whole_rows(counts: np.ndarray, row_tokens: int) -> RowPlan:
    """Return a plan of whole rows, so many of each document."""
    document = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(document))
    offset = (rows - np.repeat(np.cumsum(counts) - counts, counts)) * row_tokens
    return RowPlan(document, offset, np.full(len(rows), row_tokens, dtype=np.int64), rows + 1)


def _fitted(sizes: np.ndarray, row_tokens: int) -> tuple[np.ndarray, int]:
    """Return the row of each piece by best fit decreasing, and the number of rows."""
    if not len(sizes):
        return np.zeros(0, dtype=np.int64), 0
    narrow = np.int32 if max(row_tokens, len(sizes)) < 1 << 31 else np.int64
    sizes = sizes.astype(narrow)
    falling = _stable_order(sizes.max() - sizes)
    sizes = sizes[falling]
    starts = np.flatnonzero(np.diff(sizes, prepend=-1))
    counts = np.diff(starts, append=len(sizes))
    found = _fills(sizes[starts].tolist(), counts.tolist(), row_tokens)
    first, rows, each = np.fromiter(found, dtype=np.dtype((narrow, 3))).T
    pieces = rows * each  # of one fill, which follow each other as the sizes do
    within = np.arange(len(sizes), dtype=narrow)
    within -= np.repeat(np.cumsum(pieces, dtype=narrow) - pieces, pieces)
    within //= np.repeat(each, pieces)
    within += np.repeat(first, pieces)
    row = np.empty_like(within)
    row[falling] = within
    return row, int((first + rows).max())


def _fills(sizes: list[int], counts: list[int], row_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first row, rows, pieces in each): runs of rows filled by pieces of one size.

    Pieces of one size are alike, and so are rows with equal room, so runs of both are placed at
    once. With `room` the least that takes a piece, room // size of them go into one row: after
    each, that row is still the tightest. Sizes fall; the rows are those of a piece by piece fit.
    """
    open_rows, opened = _OpenRows(row_tokens), 0
    for size, count in zip(sizes, counts, strict=True):
        while count:
            room = open_rows.tightest(size)
            if room < 0:
                room = row_tokens
                first, rows = opened, -(-count // (room // size))
                opened += rows
            else:
                first, rows = open_rows.take(room)
            each = min(room // size, count)
            filled = min(rows, count // each)
            yield first, filled, each
            if room > each * size:
                open_rows.put(room - each * size, first, filled)
            if rows > filled:
                open_rows.put(room, first + filled, rows - filled)
            count -= filled * each


class _OpenRows:
    """Runs of rows by the room they have left, and the least room that takes a piece.

    The rooms there are stand in a sparse tree of words of bits, so that rows of a million tokens
    cost what those of a thousand do.
    """

    def __init__(self, row_tokens: int) -> None:
        self.runs: dict[int, list[tuple[int, int]]] = {}
        self.levels: list[dict[int, int]] = [
            {} for _ in range(0, row_tokens.bit_length(), WORD_BITS)
        ]

    def put(self, room: int, first: int, rows: int) -> None:
        """Add a run of rows that have this room."""
        if room in self.runs:
            self.runs[room].append((first, rows))
        else:
            self.runs[room] = [(first, rows)]
            self._mark(room)

    def take(self, room: int) -> tuple[int, int]:
        """Remove the run with this room that came last."""
        runs = self.runs[room]
        run = runs.pop()
        if not runs:
            del self.runs[room]
            self._unmark(room)
        return run

    def tightest(self, size: int) -> int:
        """Return the least room that takes a piece, -1 if there is none."""
        at = size
        for level, words in enumerate(self.levels):
            word = words.get(at >> WORD_BITS, 0) >> (at & (1 << WORD_BITS) - 1)
            if word:
                at += _lowest(word)
                for below in reversed(self.levels[:level]):
                    at = (at << WORD_BITS) + _lowest(below[at])
                return at
            at = (at >> WORD_BITS) + 1
        return -1

    def _mark(self, at: int) -> None:
        for words in self.levels:
            at, bit = at >> WORD_BITS, at & (1 << WORD_BITS) - 1
            word = words.get(at, 0)
            words[at] = word | 1 << bit
            if word:
                return

    def _unmark(self, at: int) -> None:
        for words in self.levels:
            at, bit = at >> WORD_BITS, at & (1 << WORD_BITS) - 1
            words[at] ^= 1 << bit
            if words[at]:
                return
            del words[at]


def _lowest(word: int) -> int:
    return (word & -word).bit_length() - 1


def _stable_order(values: np.ndarray) -> np.ndarray:
    """Return the stable order of numbers that are not negative, by 16 bits at a time."""
    digits = -(-int(values.max(initial=0)).bit_length() // DIGIT_BITS)
    if digits > MAX_DIGITS:
        return np.argsort(values, kind="stable")
    order = np.argsort(values.astype(np.uint16), kind="stable")
    for digit in range(1, digits):
        higher = (values >> (digit * DIGIT_BITS)).astype(np.uint16)[order]
        order = order[np.argsort(higher, kind="stable")]
    return order
