"""What train and validation have in common: the smaller side is held, the other goes past it.

Both come as 128-bit hashes in two halves. At most 100 bytes of each held one are taken.
"""

import numpy as np

__all__ = ["Common"]

SIEVE = 8  # places of the sieve a held hash: all but an eighth of what is not held ends there


class Common:
    """Hashes of one side: hold them, then meet them with those of the other."""

    def __init__(self) -> None:
        self._held = list[tuple[np.ndarray, np.ndarray]]()
        self._sealed = False

    def hold(self, low: np.ndarray, high: np.ndarray) -> None:
        """Add hashes of the side that is held."""
        self._held.append((low, high))

    def _seal(self) -> None:
        none = (np.zeros(0, np.uint64),) * 2
        low, high = (np.concatenate(part) for part in zip(none, *self._held, strict=True))
        self._held.clear()
        order = np.lexsort((high, low))
        low, high = low[order], high[order]
        first = np.ones(len(low), np.bool_)
        first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
        begins = np.flatnonzero(first)
        self._low, self._high = low[begins], high[begins]
        self._times = np.diff(np.append(begins, len(low)))
        self._met = np.zeros(len(begins), np.bool_)
        bits = max(1, (SIEVE * len(begins)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(1 << bits, np.bool_)
        self._sieve[self._low >> self._shift] = True
        self._sealed = True

    def meet(self, low: np.ndarray, high: np.ndarray) -> int:
        """Return how many hashes of the other side are held."""
        if not self._sealed:
            self._seal()
        alive = np.flatnonzero(self._sieve[low >> self._shift])
        low, high, count = low[alive], high[alive], 0
        at = np.searchsorted(self._low, low)
        while True:  # once, but for those whose first halves are alike
            there = at < len(self._low)
            there[there] = self._low[at[there]] == low[there]
            low, high, at = low[there], high[there], at[there]
            if not len(at):
                return count
            same = self._high[at] == high
            self._met[at[same]] = True
            count += int(np.count_nonzero(same))
            low, high, at = low[~same], high[~same], at[~same] + 1

    @property
    def met(self) -> int:
        """How many different hashes both sides have."""
        return int(np.count_nonzero(self._met)) if self._sealed else 0

    @property
    def met_times(self) -> int:
        """How many hashes of the held side the other has too, each as often as it is held."""
        return int(self._times[self._met].sum()) if self._sealed else 0
