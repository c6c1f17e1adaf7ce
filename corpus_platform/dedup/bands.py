"""Turns signatures into band hashes, and the hashes of a band into the pairs worth comparing.

Two documents are a candidate pair when all `rows` values of one of their `bands` are equal.
Documents are numbers in key order below 2^32, a pair is one code: earlier << 32 | later. Whether
a pair is similar is for `verification` to say. Compiled loops stand in `join_kernels`, which is
imported inside functions because of what numba costs.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.errors import UsageError

__all__ = [
    "BucketPairs",
    "band_hashes",
    "bucket_pairs",
    "codes_of",
    "merge_codes",
    "pairs_of",
]

Codes = npt.NDArray[np.uint64]

_NUMBERS = 1 << 32


class BucketPairs(NamedTuple):
    """Codes ascending and distinct; `capped` is the number of buckets that had pairs left out."""

    codes: Codes
    searched: Codes
    capped: int


def band_hashes(
    signatures: npt.NDArray[np.uint32], bands: int, rows: int
) -> npt.NDArray[np.uint64]:
    """Return [n, bands] hashes, each of the band's number and its `rows` values.

    Hashes of one band lie side by side in memory: columns of the result are whole.
    """
    from corpus_platform.dedup.cluster_kernels import array
    from corpus_platform.dedup.join_kernels import hash_bands

    if signatures.ndim != 2 or signatures.shape[1] != bands * rows:
        raise UsageError(
            f"signatures of shape {signatures.shape} do not cut into {bands} bands of {rows} rows"
        )
    return hash_bands(array(signatures, np.uint32), bands, rows).T


def bucket_pairs(
    hashes: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.int64],
    *,
    cap: int,
    searched: npt.NDArray[np.bool_] | None = None,
    search_cap: int = 1024,
) -> BucketPairs:
    """Return the pairs of documents of one band that share a bucket, that is have equal hashes.

    In a bucket each document is paired with at most the first `cap` members, and only with those
    before it: 10,000 copies make 64 pairs each and not 5,000, and documents added at the end take
    no pair away. A searched document is also paired, among the `searched` codes, with the first
    `search_cap` members before and after it.
    """
    from corpus_platform.dedup.cluster_kernels import array
    from corpus_platform.dedup.join_kernels import pair_codes

    if cap < 1 or search_cap < 1:
        raise UsageError(
            f"cap = {cap}, search_cap = {search_cap}: a document is compared with at least one other"
        )
    order = _key_order(hashes, numbers)
    marks = np.empty(0, np.bool_)
    if searched is not None and searched.any():
        marks = searched[order]
    codes, of_searched, capped = pair_codes(
        array(hashes[order], np.uint64).reshape(-1, 1),
        array(numbers[order], np.int64),
        array(marks, np.bool_),
        cap,
        search_cap,
    )
    codes.sort()
    of_searched.sort()
    return BucketPairs(codes, of_searched, int(capped))


def _key_order(
    hashes: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]
) -> slice | npt.NDArray[np.int64]:
    """Return what brings the rows into the order of their numbers."""
    if hashes.shape != numbers.shape:
        raise UsageError(f"{len(hashes)} hashes and {len(numbers)} document numbers: one each")
    order: slice | npt.NDArray[np.int64] = slice(None)
    if (numbers[1:] <= numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        again = np.flatnonzero(numbers[1:] == numbers[:-1])
        if again.size:
            raise UsageError(f"document {numbers[again[0]]} stands twice in one band")
    if numbers.size and not 0 <= numbers[0] <= numbers[-1] < _NUMBERS:
        raise UsageError(
            f"document numbers {numbers[0]} to {numbers[-1]}: they go from 0 to {_NUMBERS - 1}"
        )
    return order


def merge_codes(parts: Iterable[Codes]) -> Codes:
    """Return the distinct codes of ascending parts, ascending.

    Parts wait until one of their size comes, so each code is merged about log2(parts) times, and
    what waits is less than twice the result.
    """
    waiting: list[Codes] = []
    for part in parts:
        waiting.append(_ascending(part))
        while len(waiting) > 1 and waiting[-2].size < 2 * waiting[-1].size:
            waiting.append(_merge(waiting.pop(), waiting.pop()))
    while len(waiting) > 1:
        waiting.append(_merge(waiting.pop(), waiting.pop()))
    return waiting[0] if waiting else np.empty(0, np.uint64)


def _ascending(codes: Codes) -> Codes:
    if (codes[1:] <= codes[:-1]).any():
        raise UsageError(
            "codes to merge are not ascending and distinct: take those of bucket_pairs"
        )
    return codes


def _merge(a: Codes, b: Codes) -> Codes:
    from corpus_platform.dedup.cluster_kernels import array
    from corpus_platform.dedup.join_kernels import count_union, merge

    if not a.size or not b.size:
        return a if a.size else b
    a, b = array(a, np.uint64), array(b, np.uint64)
    out = np.empty(count_union(a, b), np.uint64)  # counted: no memory for what both have
    merge(a, b, out)
    return out


def codes_of(pairs: npt.NDArray[np.int64]) -> Codes:
    """Return the codes of pairs (earlier, later), in their order."""
    return (pairs[:, 0].astype(np.uint64) << np.uint64(32)) | pairs[:, 1].astype(np.uint64)


def pairs_of(codes: Codes) -> npt.NDArray[np.int64]:
    """Return the pairs (earlier, later) of codes, in their order."""
    pairs = np.empty((codes.size, 2), np.int64)
    pairs[:, 0] = codes >> np.uint64(32)
    pairs[:, 1] = codes & np.uint64(_NUMBERS - 1)
    return pairs
