"""Turns candidate pairs into edges: the pairs whose exact Jaccard reaches the threshold.

Bands find pairs by luck and signatures only estimate: `agreements` below `least_matches` speak
against a pair, but none is an edge before its sets are compared. Where shingle sets come from is
the caller's business. Compiled loops stand in `cluster_kernels`, imported inside functions because
of what numba costs.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.errors import UsageError

__all__ = [
    "MISS_PROBABILITY",
    "Edges",
    "Pairs",
    "Shingles",
    "agreements",
    "compare_sets",
    "jaccard",
    "least_matches",
]

Shingles = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.int64]

MISS_PROBABILITY = 2.87e-7  # five standard deviations below the mean, one-sided


class Edges(NamedTuple):
    """Pairs (earlier, later) at or above the threshold, each with its exact Jaccard."""

    pairs: Pairs
    similarity: npt.NDArray[np.float64]


def jaccard(a: Shingles, b: Shingles) -> float:
    """Return |a and b| / |a or b| of two ascending arrays of distinct values; 0 for two empty ones."""
    few, many = (a, b) if a.size <= b.size else (b, a)
    if not few.size:
        return 0.0
    places = np.searchsorted(many, few)
    places[places == many.size] = 0  # beyond the last: the first is smaller, so it is no match
    both = int(np.count_nonzero(many[places] == few))
    return both / (a.size + b.size - both)


def compare_sets(
    flat: Shingles, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], pairs: Pairs
) -> npt.NDArray[np.float64]:
    """Return the exact Jaccard of each pair of the sets flat[start:end]; 0 for two empty ones.

    Each set holds distinct values in ascending order; pairs index `starts` and `ends`.
    """
    from corpus_platform.dedup import cluster_kernels as kernels

    _check_sets(len(flat), starts, ends, pairs)
    return kernels.jaccards(
        kernels.array(flat, np.uint64),
        kernels.array(starts, np.int64),
        kernels.array(ends, np.int64),
        kernels.array(pairs, np.int64),
    )


def _check_sets(
    size: int, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], pairs: Pairs
) -> None:
    if len(starts) != len(ends):
        raise UsageError(f"{len(starts)} starts and {len(ends)} ends of sets: one each")
    outside = np.flatnonzero((starts < 0) | (starts > ends) | (ends > size))
    if outside.size:
        start, end = starts[outside[0]], ends[outside[0]]
        raise UsageError(f"set {outside[0]} from {start} to {end} is not within {size} values")
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(starts):
        raise UsageError(f"pairs of {pairs.min()} to {pairs.max()} among {len(starts)} sets")


def agreements(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return in how many values the signatures in each row of `a` and `b` agree."""
    from corpus_platform.dedup import cluster_kernels as kernels

    if a.shape != b.shape or a.ndim != 2:
        raise UsageError(f"signatures of {a.shape} and {b.shape} values cannot be compared")
    return kernels.count_agreements(kernels.array(a, np.uint32), kernels.array(b, np.uint32))


def least_matches(permutations: int, threshold: float) -> int:
    """Return how many values two signatures have at least in common at this Jaccard.

    Of a pair at the threshold t the number of equal values among k is binomial(k, t). The limit is
    the least count c with P(count <= c) > MISS_PROBABILITY, so a pair at or above the threshold
    falls below it with less than that. For k = 128, t = 0.8 it is 78 of 128 (0.609).
    """
    if threshold >= 1.0:
        return permutations
    below = 0.0
    for count in range(permutations + 1):
        log_ways = (
            math.lgamma(permutations + 1)
            - math.lgamma(count + 1)
            - math.lgamma(permutations - count + 1)
        )
        log_chance = count * math.log(threshold) + (permutations - count) * math.log1p(-threshold)
        below += math.exp(log_ways + log_chance)
        if below > MISS_PROBABILITY:
            return count
    return permutations
