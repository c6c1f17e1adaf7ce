"""Tokens of the vocabulary that train has hardly any of: what a model learns next to nothing about.

Only tokens count that a text may hold: no control tokens, and so no padding.
"""

from collections.abc import Mapping

import numpy as np

from corpus_platform.reports.release import RareToken, Vocabulary
from corpus_platform.tokenization.byte_lengths import TextLengths, text_lengths
from corpus_platform.tokenization.encoder import read_tokenizer

__all__ = ["RARE", "Occurrences", "vocabulary_of"]

# Tokens that are met less often than that keep about the embedding they began with; what a model
# says to them is arbitrary (Land and Bartolo 2024, "Fishing for Magikarp").
RARE = 5
LISTED = 20
ONE_BY_ONE = 6  # ids that are looked for one by one: 0.45 ns a token for each, for all ids 3.3 ns
COUNT, RARELY, NEVER, LONGEST = "vocabulary", "vocabulary_rare", "vocabulary_never", "rare_token/"


class Occurrences:
    """How often ids occur, as far as that is fewer than RARE times."""

    def __init__(self, ids: np.ndarray) -> None:
        self._size, self._rare = len(ids), ids
        self._counts = np.zeros(int(ids.max(initial=-1)) + 1, np.int64)

    def add(self, tokens: np.ndarray) -> None:
        """Count tokens; other ids may be among them."""
        if len(self._rare) > ONE_BY_ONE:
            size = len(self._counts)
            # Else one damaged id of four bytes would take gigabytes.
            known = tokens if int(tokens.max(initial=0)) < size else tokens[tokens < size]
            self._counts += np.bincount(known, minlength=size)
        else:
            for number in self._rare.tolist():
                self._counts[number] += np.count_nonzero(tokens == number)
        self._rare = self._rare[self._counts[self._rare] < RARE]

    def numbers(self, lengths: TextLengths) -> dict[str, float]:
        """Return how many ids there are, are rare and never occur, and how often the longest rare ones do."""
        rare, counts = self._rare, self._counts[self._rare]
        longest = np.argsort(-lengths.bytes[rare], kind="stable")[:LISTED].tolist()
        numbers = {COUNT: self._size, RARELY: len(rare), NEVER: np.count_nonzero(counts == 0)}
        numbers |= {f"{LONGEST}{rare[i]}": counts[i] for i in longest}
        return {name: float(number) for name, number in numbers.items()}


def vocabulary_of(numbers: Mapping[str, float], tokenizer_json: bytes) -> Vocabulary:
    """Return what the numbers of a release say, with the texts of the tokens that they list."""
    decode, sizes = read_tokenizer(tokenizer_json).decode, text_lengths(tokenizer_json).bytes
    listed = [
        RareToken(number, decode([number]), int(sizes[number]), int(count))
        for name, count in numbers.items()
        if name.startswith(LONGEST)
        for number in (int(name.removeprefix(LONGEST)),)
    ]
    listed.sort(key=lambda token: (-token.bytes, token.id))
    counts = (int(numbers[name]) for name in (COUNT, RARELY, NEVER))
    return Vocabulary(RARE, *counts, listed)
