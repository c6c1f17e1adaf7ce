"""Turns exact digests and verified edges into one decision a document: kept, or whose twin it is.

Documents are numbers in key order (crawl, shard, row), and earlier ones win. Exact copies collapse
first; of the rest, `first_seen` drops what resembles an earlier kept document, `one_per_cluster`
all but the earliest of a connected component. Finding edges is left to `verification`. Compiled
loops stand in `cluster_kernels`, imported inside functions because of what numba costs.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.verification import Edges, Pairs
from corpus_platform.errors import UsageError

__all__ = [
    "EXACT",
    "KEPT",
    "NEAR",
    "Decisions",
    "Keep",
    "collapse_exact",
    "components",
    "decide",
    "unmeasured",
]

Keep = Literal["first_seen", "one_per_cluster"]
Indices = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

KEPT, EXACT, NEAR = 0, 1, 2  # Decisions.kind


@dataclass(frozen=True)
class Decisions:
    """One entry a document in each array.

    kind: KEPT, EXACT (a copy of an earlier document, whatever became of that) or NEAR.
    twin: the kept document it was dropped for, -1 where it is kept.
    similarity: exact Jaccard to the twin, nan where it is kept.
    cluster: the earliest document of its component over near edges and exact copies.
    """

    kept: npt.NDArray[np.bool_]
    kind: npt.NDArray[np.int8]
    twin: Indices
    similarity: npt.NDArray[np.float64]
    cluster: Indices
    cluster_size: Indices

    @property
    def least_similarity(self) -> float | None:
        """The lowest similarity of a dropped document to its twin; None where none is dropped."""
        dropped = self.similarity[~self.kept]
        return float(dropped.min()) if dropped.size else None


def collapse_exact(
    digests: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64]
) -> tuple[Indices, Indices]:
    """Return the numbers that have an earlier equal digest, ascending, and the first of each.

    All 32 bytes are compared.
    """
    from corpus_platform.dedup.cluster_kernels import array
    from corpus_platform.dedup.join_kernels import copy_codes

    if digests.shape != (len(numbers), 32):
        raise UsageError(
            f"digests of shape {digests.shape} for {len(numbers)} documents: one of 32 bytes each"
        )
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        digests, numbers = digests[order], numbers[order]
    codes = copy_codes(array(digests, np.uint8).view(np.uint64))
    codes.sort()  # row << 32 | first row
    return numbers[codes >> np.uint64(32)], numbers[codes & np.uint64(0xFFFFFFFF)]


def components(n: int, pairs: Pairs) -> Indices:
    """Return for each of `n` documents the smallest member of its connected component."""
    from corpus_platform.dedup import cluster_kernels as kernels

    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < n:
        raise UsageError(f"pairs of {pairs.min()} to {pairs.max()} among {n} documents")
    labels = np.arange(n, dtype=np.int64)
    kernels.join_all(labels, kernels.array(pairs.reshape(-1, 2), np.int64))
    return labels


def unmeasured(representative: Indices, edges: Edges) -> Pairs:
    """Return the pairs (kept, dropped) of `one_per_cluster` whose similarity no edge gives.

    Of representatives only, by the dropped one; `decide` takes their similarities as `others`.
    """
    _check(representative, edges)
    cluster = components(len(representative), edges.pairs)
    return _without(_direct(cluster, edges), cluster)


def decide(
    representative: Indices, edges: Edges, *, keep: Keep, others: Edges | None = None
) -> Decisions:
    """Return what becomes of every document; edges join representatives, earlier first.

    first_seen: in key order a document is dropped when it has an edge to an earlier kept one; its
    twin is the most similar of these, the earliest of equals.
    one_per_cluster: the earliest of a component is the twin of all others. `others` gives the exact
    Jaccard where no edge does (see `unmeasured`).
    An exact copy takes its representative as twin with 1.0, or that one's twin and similarity.
    """
    from corpus_platform.dedup import cluster_kernels as kernels

    _check(representative, edges)
    cluster = components(len(representative), edges.pairs)
    if keep == "first_seen":
        twin, similarity = _first_seen(len(representative), edges)
    else:
        twin, similarity = _one_per_cluster(cluster, edges, others)
    kind = np.empty(len(representative), np.int8)
    representative = kernels.array(representative, np.int64)
    size = kernels.follow_copies(
        representative, (KEPT, EXACT, NEAR), kind, twin, similarity, cluster
    )
    return Decisions(kind == KEPT, kind, twin, similarity, cluster, size)


def _check(representative: Indices, edges: Edges) -> None:
    from corpus_platform.dedup import cluster_kernels as kernels

    pairs = edges.pairs
    if len(pairs) != len(edges.similarity):
        raise UsageError(f"{len(pairs)} edges with {len(edges.similarity)} similarities: one each")
    fault, place = kernels.first_fault(
        kernels.array(representative, np.int64), kernels.array(pairs, np.int64)
    )
    if fault == 1:
        first = representative[place]
        raise UsageError(f"document {place} is represented by {first}, which stands for another")
    if fault:
        raise UsageError(f"edge {pairs[place].tolist()}{_FAULTS[fault]}")


_FAULTS = {
    2: " names a document that is not there",
    3: ": the earlier document stands first",
    4: " names an exact copy",
}


def _first_seen(count: int, edges: Edges) -> tuple[Indices, Similarities]:
    from corpus_platform.dedup import cluster_kernels as kernels

    twin, similarity = np.full(count, -1, np.int64), np.full(count, np.nan)
    pairs, weights = edges
    if (pairs[1:, 0] < pairs[:-1, 0]).any():
        order = np.argsort(pairs[:, 0], kind="stable")
        pairs, weights = pairs[order], weights[order]
    kernels.drop_seen(
        kernels.array(pairs, np.int64), kernels.array(weights, np.float64), twin, similarity
    )
    return twin, similarity


def _one_per_cluster(
    cluster: Indices, edges: Edges, others: Edges | None
) -> tuple[Indices, Similarities]:
    """Return the earliest member of the component as twin of all others."""
    similarity = _direct(cluster, edges)
    if others is not None:
        _fill_in(similarity, cluster, others)
    missing = _without(similarity, cluster)
    if len(missing):
        raise UsageError(
            f"one_per_cluster: neither an edge nor others give the similarity of"
            f" {missing[0].tolist()}, nor of {len(missing) - 1} other pairs; see unmeasured()"
        )
    return np.where(cluster == np.arange(len(cluster)), -1, cluster), similarity


def _direct(cluster: Indices, edges: Edges) -> Similarities:
    """Return the similarity that edges give of each document to the earliest of its component."""
    similarity = np.full(len(cluster), np.nan)
    _fill_in(similarity, cluster, edges)
    return similarity


def _fill_in(similarity: Similarities, cluster: Indices, edges: Edges) -> None:
    from corpus_platform.dedup import cluster_kernels as kernels

    kernels.drop_others(
        kernels.array(edges.pairs, np.int64),
        kernels.array(edges.similarity, np.float64),
        cluster,
        similarity,
    )


def _without(similarity: Similarities, cluster: Indices) -> Pairs:
    """Return (earliest, other) where there is no similarity."""
    dropped = np.flatnonzero((cluster != np.arange(len(cluster))) & np.isnan(similarity))
    return np.column_stack([cluster[dropped], dropped])
