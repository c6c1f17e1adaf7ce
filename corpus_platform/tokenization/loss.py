"""Which tokens a model is to learn from: ranges of characters without loss -> a mask per token.

The ranges come with a document, in its field `no_loss_ranges`: pairs [start, end) of characters of
its text, of a prompt for example. A token has no loss iff its last character lies in a range, so
that all tokens of one character go together. That is how datatrove turns ranges into tokens, save
that nothing is cut off here where a range reaches the end of the text.
"""

import json
from collections.abc import Sequence

import numpy as np

__all__ = ["FIELD", "loss_mask", "ranges_of", "valid_ranges"]

FIELD = "no_loss_ranges"


def ranges_of(meta: str) -> object | None:
    """Return the ranges as a document's other fields (JSON) hold them; None where they hold none."""
    if f'"{FIELD}"' not in meta:  # nearly always: parsing takes 100 times as long
        return None
    return json.loads(meta).get(FIELD)


def valid_ranges(given: object, *, chars: int) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges that are any, within a text of so many characters, and count the others.

    A range is a pair of integers 0 <= start <= end; what lies beyond the text is left off.
    """
    if not isinstance(given, list):
        return [], 1
    ranges = [(min(r[0], chars), min(r[1], chars)) for r in given if _is_range(r)]
    return ranges, len(given) - len(ranges)


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(end) is int for end in value)  # true is an int to isinstance
        and 0 <= value[0] <= value[1]
    )


def loss_mask(last: np.ndarray, ranges: Sequence[tuple[int, int]], *, chars: int) -> np.ndarray:
    """Mark the tokens whose loss counts, given the last character of each; -1 stands for none."""
    depth = np.zeros(chars + 2, dtype=np.int64)  # the last one is that of -1: never inside
    bounds = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    np.add.at(depth, bounds[:, 0], 1)
    np.add.at(depth, bounds[:, 1], -1)
    return np.cumsum(depth)[last] == 0
