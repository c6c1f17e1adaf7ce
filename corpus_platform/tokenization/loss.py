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
_DIGITS = 18  # with a sign: what fits into an int64 for sure


def ranges_of(meta: str) -> object | None:
    """Return the ranges as a document's other fields (JSON) hold them; None where they hold none."""
    if f'"{FIELD}"' not in meta:  # nearly always: parsing takes 100 times as long
        return None
    return json.loads(meta, parse_int=_bounded).get(FIELD)


def _bounded(digits: str) -> int:
    """Return a whole number, one of more than 18 digits as 10^18: no text has so many characters.

    Records may hold numbers of any length, and Python refuses to read one of 4,300 digits.
    """
    if len(digits) <= _DIGITS:
        return int(digits)
    return -(10**_DIGITS) if digits.startswith("-") else 10**_DIGITS


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


def loss_mask(last: np.ndarray, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """Mark the tokens whose loss counts, given the last character of each; -1 stands for none."""
    bounds = np.array(sorted(ranges), dtype=np.int64).reshape(-1, 2)
    if not len(bounds):
        return np.ones(len(last), np.bool_)
    # The last range that begins at or before a character is not the only one that may hold it: what
    # counts is how far any of them reaches.
    reach = np.maximum.accumulate(bounds[:, 1])
    begun = bounds[:, 0].searchsorted(last, side="right")
    return (begun == 0) | (last >= reach[begun - 1])
