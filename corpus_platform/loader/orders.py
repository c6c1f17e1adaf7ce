"""Orders of an epoch: which window or row comes at which position.

All are pure functions of seed, epoch and position, and take no memory, however long the stream is.
"""

import dataclasses
from typing import Protocol

import numpy as np

from corpus_platform.formats.token_windows import random_starts, window_count
from corpus_platform.loader.permutation import drawn, key_of, permuted

__all__ = ["Order", "RandomStarts", "Rows", "Windows"]

_PERMUTATION, _PHASE, _START = 1, 2, 3  # what a key is for


class Order(Protocol):
    """What stands at the positions of an epoch."""

    def count(self, seed: int, epoch: int) -> int:
        """Return how many positions an epoch has."""
        ...

    def places(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return what stands at some positions: the first token of a window, or a row (int64)."""
        ...

    def settings(self) -> dict[str, object]:
        """Return all that the order depends on besides seed and epoch, fit for JSON."""
        ...


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows side by side, each once: permuted, unless `in_order`.

    With `jitter` the first one begins anywhere in the first `length` tokens, elsewhere in each epoch.
    """

    tokens: int
    length: int
    in_order: bool = False
    jitter: bool = False

    def count(self, seed: int, epoch: int) -> int:
        """Return the windows that fit behind the phase of an epoch."""
        return window_count(self.tokens - self._phase(seed, epoch), self.length)

    def places(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return where windows begin."""
        if not self.in_order and len(positions):
            key = key_of(_PERMUTATION, seed, epoch)
            positions = permuted(positions, self.count(seed, epoch), key)
        return self._phase(seed, epoch) + positions * self.length

    def settings(self) -> dict[str, object]:
        """Return kind, length and tokens."""
        kind = "sequential" if self.in_order else "windows"
        return {
            "kind": kind,
            "seq_len": self.length,
            "jitter": self.jitter,
            "tokens": self.tokens,
        }

    def _phase(self, seed: int, epoch: int) -> int:
        # Where one window fits, every phase leaves room for one.
        phases = min(self.length, random_starts(self.tokens, self.length))
        if not self.jitter or not phases:
            return 0
        return int(drawn(np.zeros(1, np.int64), phases, key_of(_PHASE, seed, epoch))[0])


@dataclasses.dataclass(frozen=True)
class RandomStarts:
    """As many windows as lie side by side, each from a place of its own drawn among all.

    So an epoch reads some tokens more than once and some not at all.
    """

    tokens: int
    length: int

    def count(self, seed: int, epoch: int) -> int:
        """Return the windows that lie side by side."""
        return window_count(self.tokens, self.length)

    def places(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return where windows begin."""
        if not len(positions):
            return positions
        key = key_of(_START, seed, epoch)
        return drawn(positions, random_starts(self.tokens, self.length), key)

    def settings(self) -> dict[str, object]:
        """Return kind, length and tokens."""
        return {"kind": "random_starts", "seq_len": self.length, "tokens": self.tokens}


@dataclasses.dataclass(frozen=True)
class Rows:
    """All rows, each once: permuted, unless `in_order`."""

    rows: int
    in_order: bool = False

    def count(self, seed: int, epoch: int) -> int:
        """Return the rows."""
        return self.rows

    def places(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return numbers of rows."""
        if self.in_order or not len(positions):
            return positions
        return permuted(positions, self.rows, key_of(_PERMUTATION, seed, epoch))

    def settings(self) -> dict[str, object]:
        """Return kind and rows."""
        return {"kind": "rows_in_order" if self.in_order else "rows", "rows": self.rows}
