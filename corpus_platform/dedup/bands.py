"""Turns signatures into band hashes, and band hashes into the pairs worth comparing.

Two documents are a candidate pair when all `rows` values of one of their `bands` are equal.
Whether a pair is similar is for `verification` to say.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.hashes import distinct, splitmix64
from corpus_platform.errors import UsageError

__all__ = ["Candidates", "band_hashes", "candidate_pairs", "recall"]


class Candidates(NamedTuple):
    """Pairs (earlier, later), distinct and ascending; `capped_buckets` had members left out."""

    pairs: npt.NDArray[np.int64]
    capped_buckets: int


def recall(similarity: float, bands: int, rows: int) -> float:
    """Return the chance that a pair of this Jaccard similarity meets in a band."""
    return 1.0 - (1.0 - similarity**rows) ** bands


def band_hashes(
    signatures: npt.NDArray[np.uint32], bands: int, rows: int
) -> npt.NDArray[np.uint64]:
    """Return [n, bands] hashes, each of the band's number and its `rows` values."""
    if signatures.ndim != 2 or signatures.shape[1] != bands * rows:
        raise UsageError(
            f"signatures of shape {signatures.shape} do not cut into {bands} bands of {rows} rows"
        )
    hashes = np.empty((len(signatures), bands), np.uint64)
    for band in range(bands):
        mixed = np.full(len(signatures), band, np.uint64)
        for column in range(band * rows, (band + 1) * rows):
            mixed = splitmix64(mixed ^ signatures[:, column])
        hashes[:, band] = mixed
    return hashes


def candidate_pairs(bands: npt.NDArray[np.uint64], *, cap: int = 64) -> Candidates:
    """Return the pairs of documents that share a bucket; documents are numbered in key order.

    In a bucket each document is paired with at most the first `cap` members, and only with those
    before it: 10,000 copies make 64 pairs each and not 5,000, and documents added at the end take
    no pair away. One band at a time, so memory is that of the pairs.
    """
    if cap < 1:
        raise UsageError(f"cap = {cap}: a document is compared with at least one other")
    count, capped = len(bands), 0
    codes = np.empty(0, np.uint64)  # earlier * count + later: distinct and ascending
    for band in range(bands.shape[1]):
        earlier, later, over = _pairs_of_band(bands[:, band], cap)
        found = earlier.astype(np.uint64) * np.uint64(count) + later.astype(np.uint64)
        codes = distinct(np.concatenate([codes, found]))
        capped += over
    pairs = np.empty((codes.size, 2), np.int64)
    if codes.size:
        pairs[:, 0], pairs[:, 1] = np.divmod(codes, np.uint64(count))
    return Candidates(pairs, capped)


def _pairs_of_band(
    buckets: npt.NDArray[np.uint64], cap: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Return earlier and later members of all pairs of one band, and the number of capped buckets."""
    order = np.argsort(buckets, kind="stable")  # stable: inside a bucket the key order stays
    ordered = buckets[order]
    opens = np.ones(len(order), np.bool_)
    opens[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(opens)
    sizes = np.diff(starts, append=len(order))
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    later = np.flatnonzero(place)  # all but the first of each bucket
    partners = np.minimum(place[later], cap)
    bucket_start = np.repeat(later - place[later], partners)
    step = np.arange(partners.sum()) - np.repeat(np.cumsum(partners) - partners, partners)
    capped = int(np.count_nonzero(sizes > cap + 1))
    return order[bucket_start + step], order[np.repeat(later, partners)], capped
