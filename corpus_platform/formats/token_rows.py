"""One row of a token file of fixed rows: where its pieces lie, positions, and the mask of attention.

What a model needs to keep documents apart is made here when it is asked for: the boundaries take a
few bytes a piece, a mask on disk would take row_tokens squared bits a row. Needs numpy alone.
"""

from typing import NamedTuple

import numpy as np

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_bin import TokenBin

__all__ = ["Row", "document_mask", "row"]


class Row(NamedTuple):
    """A row of L tokens.

    `cu_seqlens` (int32) are the borders of its pieces as attention over variable lengths wants
    them: 0, the end of each piece, L at last; padding is the last piece. `document` is the number
    of each piece's document, -1 of padding; `offset` where the piece begins in its document, in
    tokens: above 0 it is a continuation. `loss` says which tokens count.
    """

    tokens: np.ndarray
    cu_seqlens: np.ndarray
    document: np.ndarray
    offset: np.ndarray
    loss: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each piece."""
        return np.diff(self.cu_seqlens)

    @property
    def max_seqlen(self) -> int:
        """The tokens of the longest piece."""
        return int(self.lengths.max())

    @property
    def padding(self) -> np.ndarray:
        """Which tokens are padding."""
        return np.repeat(self.document < 0, self.lengths)

    def position_ids(self, *, continued: bool = False) -> np.ndarray:
        """Return the position of each token in its piece, or in its document where `continued`."""
        begun = self.cu_seqlens[:-1].astype(np.int64)
        shift = begun - self.offset if continued else begun
        return np.arange(len(self.tokens)) - np.repeat(shift, self.lengths)


def row(bin_: TokenBin, number: int) -> Row:
    """Return one row of a token file of rows; raises UsageError for one of documents."""
    length = bin_.header.row_tokens
    if length is None or bin_.pieces is None:
        raise UsageError("these tokens are documents back to back, not rows: pack.strategy concat")
    if not 0 <= number < bin_.header.rows:
        raise IndexError(f"row {number} of {bin_.header.rows}")
    start, stop = number * length, (number + 1) * length
    # As the index's own type: for a Python int numpy would convert all of the index.
    first = int(np.searchsorted(bin_.ends, np.uint64(start), side="right"))
    after = int(np.searchsorted(bin_.ends, np.uint64(stop), side="left")) + 1
    pieces = bin_.pieces[first:after]
    borders = np.zeros(after - first + 1, np.int32)
    borders[1:] = bin_.ends[first:after].astype(np.int64) - start
    counts = np.ones(length, np.bool_) if bin_.loss is None else bin_.loss[start:stop].astype(bool)
    return Row(bin_.tokens[start:stop], borders, pieces["document"], pieces["offset"], counts)


def document_mask(row: Row) -> np.ndarray:
    """Return which token (first axis) may see which (second): L x L booleans.

    Causal and block-diagonal: a token sees those of its own piece up to itself. Padding sees
    nothing and is seen by nothing, so its lines are empty: leave them out of a softmax.
    """
    piece = np.repeat(np.arange(len(row.document)), row.lengths)
    same = piece[:, None] == piece[None, :]
    real = ~row.padding
    return np.tril(same) & real[:, None] & real[None, :]
