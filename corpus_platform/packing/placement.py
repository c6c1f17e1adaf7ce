"""Where units of a release go that come in order and in parts: file, and places inside it.

A file ends before the unit that would pass its limit; a unit that is longer by itself gets a file
of its own. What has been placed is remembered, so that parts can be of any size.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Filled", "Placement", "Run"]


class Run(NamedTuple):
    """Units of a part, [first, after), that follow each other in one file from these places on."""

    file: int
    token: int
    entry: int
    first: int
    after: int


class Filled(NamedTuple):
    """What a file holds."""

    tokens: int
    entries: int


class Placement:
    """Places units one after the other into files of at most `max_tokens` tokens."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self.files = [Filled(0, 0)]
        self.oversized = 0
        self._units = 0  # in the last file

    def place_all(self, units: int, filled: Filled) -> Run | None:
        """Return where some units go, if all of them fit into the file that is being filled.

        Their order does not matter then. Otherwise nothing is placed.
        """
        before = self.files[-1]
        if before.tokens + filled.tokens > self._max_tokens:
            return None
        self.files[-1] = Filled(before.tokens + filled.tokens, before.entries + filled.entries)
        self._units += units
        return Run(len(self.files) - 1, *before, 0, units)

    def place(self, tokens: np.ndarray, entries: np.ndarray) -> list[Run]:
        """Return where units go, given the tokens and the entries of the index of each."""
        ends, entry_ends = np.cumsum(tokens, dtype=np.int64), np.cumsum(entries, dtype=np.int64)
        self.oversized += int(np.count_nonzero(tokens > self._max_tokens))
        runs, first = [], 0
        while first < len(tokens):
            before = int(ends[first - 1]) if first else 0
            room = self._max_tokens - self.files[-1].tokens
            after = int(np.searchsorted(ends, before + room, side="right"))
            if after <= first:
                if self._units:
                    self.files.append(Filled(0, 0))
                    self._units = 0
                    continue
                after = first + 1
            entries_before = int(entry_ends[first - 1]) if first else 0
            runs.append(Run(len(self.files) - 1, *self.files[-1], first, after))
            self.files[-1] = Filled(
                self.files[-1].tokens + int(ends[after - 1]) - before,
                self.files[-1].entries + int(entry_ends[after - 1]) - entries_before,
            )
            self._units += after - first
            first = after
        return runs
