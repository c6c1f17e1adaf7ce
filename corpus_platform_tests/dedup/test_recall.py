"""Of generated pairs as many meet in a band, before anything is verified, as the S-curve says.

Pairs are made as sets of random shingles with an exact Jaccard, so that nothing but sketches and
bands is measured.
"""

import math

import numpy as np
import pytest

from corpus_platform.dedup.bands import band_hashes
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup_settings import DedupSettings, found_share

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
SHAPES = ((16, 8), (32, 4), (8, 16))
POINTS = 0.03  # how far recall may be from theory


def _sets(pairs: int, level: float, union: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shingles of `pairs` first sets and then of as many second ones, and their ends.

    `union` distinct shingles a pair, of which both have a share of `level`.
    """
    random = np.random.default_rng([seed, round(level * 100), union])
    both, each = round(level * union), round((1 - level) * union / 2)
    assert both == level * (both + 2 * each)
    made = random.integers(0, 2**64, (pairs, both + 2 * each), dtype=np.uint64)
    first, second = made[:, : both + each], np.delete(made, np.s_[both : both + each], axis=1)
    flat = np.concatenate([first.ravel(), second.ravel()])
    return flat, np.arange(1, 2 * pairs + 1) * (both + each)


def _recall(signer: Signer, pairs: int, level: float, union: int, seed: int) -> list[float]:
    """Return the share of pairs that meet in a band, for each shape."""
    values = signer.signatures_of(*_sets(pairs, level, union, seed))
    found = []
    for shape in SHAPES:
        first, second = np.split(band_hashes(values, *shape), 2)
        found.append(float((first == second).any(axis=1).mean()))
    return found


def _theory(level: float) -> list[float]:
    return [found_share(level, *shape) for shape in SHAPES]


@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
@pytest.mark.parametrize("level", LEVELS)
def test_recall_before_verification_is_that_of_theory(level: float, scheme: str) -> None:
    signer = Signer(DedupSettings(scheme=scheme))  # ty: ignore
    assert _recall(signer, 2000, level, 200, seed=1) == pytest.approx(_theory(level), abs=POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
@pytest.mark.parametrize("union", [40, 200, 2000])
@pytest.mark.parametrize("level", LEVELS)
def test_recall_of_many_pairs_small_sets_and_large_ones(
    level: float, union: int, scheme: str
) -> None:
    pairs = 8000 if union < 2000 else 2000
    found = [
        _recall(Signer(DedupSettings(scheme=scheme), seed=seed), pairs, level, union, seed)  # ty: ignore
        for seed in (1, 2, 3)
    ]
    assert np.mean(found, axis=0).tolist() == pytest.approx(_theory(level), abs=POINTS)
    for one in found:  # chance, and half of the points for what sketches of small sets differ
        for share, theory in zip(one, _theory(level), strict=True):
            assert abs(share - theory) < 4 * math.sqrt(0.25 / pairs) + POINTS / 2
