"""Turns exact digests and verified edges into one decision a document: kept, or whose twin it is.

Documents are numbers in key order (crawl, shard, row), and earlier ones win. Exact copies collapse
first; of the rest, `first_seen` drops what resembles an earlier kept document, `one_per_cluster`
all but the earliest of a connected component. Finding edges is left to `verification`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from corpus_platform.dedup.verification import Edges, Pairs
from corpus_platform.errors import UsageError

__all__ = ["EXACT", "KEPT", "NEAR", "Decisions", "Keep", "collapse_exact", "components", "decide"]

Keep = Literal["first_seen", "one_per_cluster"]
Indices = npt.NDArray[np.int64]

KEPT, EXACT, NEAR = 0, 1, 2  # Decisions.kind

_EDGES_AT_A_TIME = 1 << 16


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


def collapse_exact(digests: Sequence[bytes] | pl.Series) -> Indices:
    """Return for each document the first one with the same digest, itself included."""
    frame = pl.DataFrame({"digest": pl.Series(digests, dtype=pl.Binary)}).with_row_index("number")
    first = pl.col("number").min().over("digest").cast(pl.Int64)
    return frame.select(first).to_series().to_numpy()


def components(n: int, edges: Pairs) -> Indices:
    """Return for each of `n` documents the smallest member of its connected component.

    Every root that has a smaller neighbour hooks onto its smallest one, then all paths are cut to
    length one. In two rounds each root joins another, so there are at most 2 log2(n) of them.
    """
    labels = np.arange(n, dtype=np.int64)
    while len(edges):
        ends = labels[edges]
        edges = ends[ends[:, 0] != ends[:, 1]]
        np.minimum.at(labels, edges.max(axis=1), edges.min(axis=1))
        while not np.array_equal(shorter := labels[labels], labels):
            labels = shorter
    return labels


def decide(
    representative: Indices,
    edges: Edges,
    *,
    keep: Keep,
    similarity_of: Callable[[int, int], float] | None = None,
) -> Decisions:
    """Return what becomes of every document; edges join representatives, earlier first.

    first_seen: in key order a document is dropped when it has an edge to an earlier kept one; its
    twin is the most similar of these, the earliest of equals.
    one_per_cluster: the earliest of a component is the twin of all others. `similarity_of(kept,
    dropped)` gives the exact Jaccard where no edge does.
    An exact copy takes its representative as twin with 1.0, or that one's twin and similarity.
    """
    count = len(representative)
    _check(representative, edges)
    cluster = components(count, edges.pairs)
    twin = np.full(count, -1, np.int64)
    similarity = np.full(count, np.nan)
    if keep == "first_seen":
        _drop_seen(twin, similarity, edges)
    else:
        _drop_all_but_one(twin, similarity, edges, cluster, similarity_of)
    kind = np.where(twin >= 0, NEAR, KEPT).astype(np.int8)
    copies = np.flatnonzero(representative != np.arange(count))
    _follow_representative(twin, similarity, copies, representative[copies])
    kind[copies] = EXACT
    cluster = cluster[representative]
    size = np.bincount(cluster, minlength=count)[cluster]
    return Decisions(kind == KEPT, kind, twin, similarity, cluster, size)


def _check(representative: Indices, edges: Edges) -> None:
    pairs = edges.pairs
    copies = np.flatnonzero(representative[pairs] != pairs)
    if copies.size:
        raise UsageError(
            f"edge {pairs.reshape(-1, 2)[copies[0] // 2].tolist()} names an exact copy"
        )
    if (pairs[:, 0] >= pairs[:, 1]).any():
        first = pairs[pairs[:, 0] >= pairs[:, 1]][0].tolist()
        raise UsageError(f"edge {first}: the earlier document stands first")


def _drop_seen(twin: Indices, similarity: npt.NDArray[np.float64], edges: Edges) -> None:
    """Fill in the twins of one pass in key order.

    A loop over edges, not rounds of arrays: whether a document is dropped hangs on all before it.
    """
    earlier, later = edges.pairs[:, 0], edges.pairs[:, 1]
    order = np.lexsort((earlier, -edges.similarity, later))  # the first kept one is the twin
    dropped = bytearray(len(twin))
    for start in range(0, len(order), _EDGES_AT_A_TIME):
        block = order[start : start + _EDGES_AT_A_TIME]
        for edge, a, b in zip(
            block.tolist(), earlier[block].tolist(), later[block].tolist(), strict=True
        ):
            if not dropped[b] and not dropped[a]:
                dropped[b] = 1
                twin[b], similarity[b] = a, edges.similarity[edge]


def _drop_all_but_one(
    twin: Indices,
    similarity: npt.NDArray[np.float64],
    edges: Edges,
    cluster: Indices,
    similarity_of: Callable[[int, int], float] | None,
) -> None:
    """Fill in the earliest member of the component as twin of all others."""
    dropped = np.flatnonzero(cluster != np.arange(len(cluster)))
    twin[dropped] = cluster[dropped]
    earlier, later = edges.pairs[:, 0], edges.pairs[:, 1]
    direct = earlier == cluster[later]
    similarity[later[direct]] = edges.similarity[direct]
    for document in dropped[np.isnan(similarity[dropped])].tolist():
        if similarity_of is None:
            raise UsageError("one_per_cluster: no edge to the kept document and no similarity_of")
        similarity[document] = similarity_of(int(twin[document]), document)


def _follow_representative(
    twin: Indices, similarity: npt.NDArray[np.float64], copies: Indices, originals: Indices
) -> None:
    stays = twin[originals] < 0
    twin[copies] = np.where(stays, originals, twin[originals])
    similarity[copies] = np.where(stays, 1.0, similarity[originals])
