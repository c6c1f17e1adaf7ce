"""Windows of a stream of tokens: how many there are, and what a model gets of one.

A window of `length` tokens takes one token more, since each of its labels is the token that
follows. Nothing is padded: what does not fill a window is counted as unused. Needs numpy alone.
"""

import logging

import numpy as np

__all__ = ["random_starts", "told_windows", "unused_labels", "window", "window_count"]

_log = logging.getLogger(__name__)


def window_count(tokens: int, length: int) -> int:
    """Return how many windows lie side by side in a stream, each with all its labels."""
    return max(0, (tokens - 1) // length)


def random_starts(tokens: int, length: int) -> int:
    """Return at how many places a window may start, from 0 on."""
    return max(0, tokens - length)


def unused_labels(tokens: int, length: int) -> int:
    """Return how many tokens are no label of any window side by side; the first one never is."""
    return max(0, tokens - 1) - window_count(tokens, length) * length


def window(tokens: np.ndarray, start: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and labels of the window that starts at a token, without a copy.

    Raises IndexError where it would reach over an end of the stream.
    """
    if not 0 <= start < random_starts(len(tokens), length):
        raise IndexError(
            f"a window of {length} at token {start}: {len(tokens)} tokens have"
            f" {random_starts(len(tokens), length)} places for one"
        )
    return tokens[start : start + length], tokens[start + 1 : start + 1 + length]


def told_windows(name: str, tokens: int, length: int) -> int:
    """Return the windows of a file; warn where it has tokens and none of them makes one."""
    count = window_count(tokens, length)
    if tokens and not count:
        _log.warning(
            "%s: %d tokens make no window of %d, which needs %d", name, tokens, length, length + 1
        )
    return count
