"""What a strategy of packing costs: positions that hold no token, and documents that are cut.

From the lengths of documents alone, so that strategies are compared before any token is moved.
"""

from typing import NamedTuple

import numpy as np

from corpus_platform.packing.rows import best_fit_rows

__all__ = ["STRATEGIES", "Utilisation", "compare"]

STRATEGIES = ("concat", "best_fit", "pad")


class Utilisation(NamedTuple):
    """Rows of a strategy; rows x length = tokens + padding, those of a last unfilled row too."""

    rows: int
    tokens: int
    padding: int
    share: float  # of all positions, those that hold a token
    cut_documents: int  # in more than one row
    needless_cuts: int  # of these, those that fit into one row


def compare(lengths: np.ndarray, *, row_tokens: int) -> dict[str, Utilisation]:
    """Return what each strategy makes of documents of these lengths, by its name."""
    lengths = np.asarray(lengths, dtype=np.int64)
    fitted = best_fit_rows(lengths, row_tokens=row_tokens)
    ends = np.cumsum(lengths)
    windows = -(-ends // row_tokens)  # begun up to the end of each document
    crossed = windows - (ends - lengths) // row_tokens
    apart = -(-lengths // row_tokens)  # whole rows and a tail: of best fit too
    measured = (
        (int(windows[-1]) if len(lengths) else 0, crossed * (lengths > 0)),
        (fitted, apart),
        (int(apart.sum()), apart),
    )
    return {
        strategy: _utilisation(lengths, rows, pieces, row_tokens)
        for strategy, (rows, pieces) in zip(STRATEGIES, measured, strict=True)
    }


def _utilisation(
    lengths: np.ndarray, rows: int, pieces: np.ndarray, row_tokens: int
) -> Utilisation:
    """Return the figures of a strategy that lays each document into so many rows."""
    tokens, positions, cut = int(lengths.sum()), rows * row_tokens, pieces > 1
    return Utilisation(
        rows=rows,
        tokens=tokens,
        padding=positions - tokens,
        share=tokens / positions if positions else 1.0,
        cut_documents=int(np.count_nonzero(cut)),
        needless_cuts=int(np.count_nonzero(cut & (lengths <= row_tokens))),
    )
