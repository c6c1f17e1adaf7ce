"""Whether an order looks like a random one: it has nothing to do with the order before.

Two statistics of which the distribution over all permutations is known, each as a number of
standard errors. An order by source, by shard or in turns through the shards is far off in one.
"""

import math
from typing import NamedTuple

import numpy as np

__all__ = ["FEWEST", "Randomness", "judged", "randomness"]

FEWEST = 20  # units of which an order can be told from chance


class Randomness(NamedTuple):
    """Rank correlation of new and old order, neighbours of one source, and how far both are off."""

    units: int
    rank_correlation: float
    neighbours: int  # of one source
    expected_neighbours: float
    sigmas: float  # the larger deviation of the two; 0 where there are too few units


def randomness(ranks: np.ndarray, sources: np.ndarray) -> Randomness:
    """Judge an order, given the old rank and the source of each unit in its new order.

    Spearman's correlation has the variance 1 / (n - 1); equal neighbours have at most about twice
    the variance of as many independent draws.
    """
    sizes = np.unique(sources, return_counts=True)[1]
    neighbours = int(np.count_nonzero(sources[1:] == sources[:-1]))
    correlation = _spearman(ranks) if len(ranks) > 1 else 0.0
    return judged(len(ranks), correlation, neighbours, sizes)


def judged(count: int, correlation: float, neighbours: int, sizes: np.ndarray) -> Randomness:
    """Judge what was counted; `sizes` says how many units each source has."""
    sizes = sizes.astype(np.float64)
    chance = float((sizes * (sizes - 1)).sum()) / max(count * (count - 1), 1)
    expected = chance * max(count - 1, 0)
    if count < FEWEST:
        return Randomness(count, correlation, neighbours, expected, 0.0)
    spread = math.sqrt(2.0 * (count - 1) * chance * (1.0 - chance)) or 1.0
    off = abs(correlation) * math.sqrt(count - 1), (abs(neighbours - expected) - 0.5) / spread
    return Randomness(count, correlation, neighbours, expected, max(off))


def _spearman(ranks: np.ndarray) -> float:
    """Return the correlation of positions with the ranks of values; equal values go by position."""
    old = np.empty(len(ranks), np.float64)
    old[np.argsort(ranks, kind="stable")] = np.arange(len(ranks))
    new = np.arange(len(ranks), dtype=np.float64)
    return float(np.corrcoef(new, old)[0, 1])
