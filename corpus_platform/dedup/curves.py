"""Tells which pairs a choice of bands and rows finds: the S-curve, where it rises, what others choose.

The curve itself, P = 1 - (1 - s^r)^b, and the choice of `bands: auto` stand with the settings; this
is what the report shows of them.
"""

from typing import NamedTuple

import numpy as np

from corpus_platform.dedup_settings import AUTO_RECALL, fewest_bands, found_share

__all__ = [
    "PRESETS",
    "SIMILARITIES",
    "Banding",
    "Point",
    "auto_banding",
    "curve",
    "datasketch_banding",
    "half_point",
    "rise",
]

SIMILARITIES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


class Banding(NamedTuple):
    """Bands b of r rows."""

    bands: int
    rows: int


class Point(NamedTuple):
    """The share of the pairs of one Jaccard similarity that meet in a band."""

    similarity: float
    found: float


PRESETS = (Banding(16, 8), Banding(32, 4), Banding(8, 16))  # balanced, loose, strict


def curve(
    bands: int, rows: int, similarities: tuple[float, ...] = SIMILARITIES
) -> tuple[Point, ...]:
    """Return the S-curve at some similarities."""
    return tuple(Point(s, found_share(s, bands, rows)) for s in similarities)


def half_point(bands: int, rows: int) -> float:
    """Return the similarity of which exactly half of the pairs are found."""
    return (1.0 - 0.5 ** (1.0 / bands)) ** (1.0 / rows)


def rise(bands: int, rows: int) -> float:
    """Return (1/b)^(1/r), about where the curve is steepest: from 0.63 to 0.65 is found there.

    It is often called the threshold of a banding, or its 50 % point, which lies a little lower.
    """
    return (1.0 / bands) ** (1.0 / rows)


def auto_banding(permutations: int, threshold: float) -> Banding:
    """Return what `bands: auto` takes."""
    return Banding(*fewest_bands(permutations, threshold, AUTO_RECALL))


def datasketch_banding(permutations: int, threshold: float) -> Banding:
    """Return what datasketch's MinHashLSH takes: the least area of wrong answers, with b * r <= k.

    Wrong are pairs below the threshold that are found and pairs above it that are not, each with
    weight 1/2, as if all similarities were equally frequent. Of equal areas the first counts.
    """
    nodes = permutations // 2 + 1  # both integrands are polynomials of degree b * r <= k: exact
    places, weights = np.polynomial.legendre.leggauss(nodes)
    below = (places + 1.0) / 2.0 * threshold
    above = threshold + (places + 1.0) / 2.0 * (1.0 - threshold)
    best, least = Banding(1, 1), np.inf
    for bands in range(1, permutations + 1):
        for rows in range(1, permutations // bands + 1):
            found = weights @ (1.0 - (1.0 - below**rows) ** bands) * threshold
            missed = weights @ (1.0 - above**rows) ** bands * (1.0 - threshold)
            if (area := found + missed) < least:
                best, least = Banding(bands, rows), area
    return best
