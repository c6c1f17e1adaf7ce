"""Cut documents to a number of tokens when they are written, and say how much that leaves out.

Cutting at reading would keep, hash, shuffle and load the same tokens in every epoch, to skip them.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Truncated", "truncate"]


class Truncated(NamedTuple):
    """Documents back to back, their ends, their mask, and the tokens cut off each."""

    flat: np.ndarray
    ends: np.ndarray
    loss: np.ndarray | None
    cut: np.ndarray


def truncate(
    flat: np.ndarray, ends: np.ndarray, loss: np.ndarray | None, *, limit: int | None
) -> Truncated:
    """Return the first `limit` tokens of each document; all where the limit is None."""
    lengths = np.diff(ends, prepend=0)
    if limit is None or not (lengths > limit).any():
        return Truncated(flat, ends, loss, np.zeros(len(ends), np.int64))
    offsets = np.arange(len(flat)) - np.repeat(ends - lengths, lengths)
    kept = offsets < limit
    shorter = np.minimum(lengths, limit)
    return Truncated(
        flat[kept],
        np.cumsum(shorter),
        None if loss is None else loss[kept],
        lengths - shorter,
    )
