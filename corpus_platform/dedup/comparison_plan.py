"""Deals pairs into buckets, so that the texts of a bucket's documents fit in memory together.

Pairs of one component stand in one bucket as far as it has room: each text is then read once. In a
component that is larger its most popular documents are in several buckets.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.clusters import components
from corpus_platform.dedup.hashes import distinct

__all__ = ["ComparisonPlan", "plan_comparisons"]


class ComparisonPlan(NamedTuple):
    """Pairs and texts by bucket, ascending.

    order: the pairs in the order of their buckets, `pair_buckets` beside it; text_buckets and
    documents: which documents each bucket holds, once each.
    """

    order: npt.NDArray[np.int64]
    pair_buckets: npt.NDArray[np.int64]
    text_buckets: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


def plan_comparisons(
    pairs: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], *, budget: int
) -> ComparisonPlan:
    """Return buckets of at most `budget` of summed `sizes`; one pair is always in one bucket.

    Pairs index `sizes`.
    """
    from corpus_platform.dedup.cluster_kernels import array, fill_buckets  # numba: see there

    component = components(len(sizes), pairs)
    order = np.lexsort((pairs[:, 0], pairs[:, 1], component[pairs[:, 0]]))
    buckets = fill_buckets(array(pairs[order], np.int64), array(sizes, np.int64), budget)
    ends = np.concatenate([pairs[order, 0], pairs[order, 1]])
    held = distinct(np.tile(buckets, 2) * len(sizes) + ends)
    text_buckets, documents = np.divmod(held, max(1, len(sizes)))
    return ComparisonPlan(order, buckets, text_buckets, documents)
