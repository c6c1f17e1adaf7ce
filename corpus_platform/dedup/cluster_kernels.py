"""Compiled loops of deciding and verifying: plain arrays in, plain arrays out.

Checks, messages and named results are those of `clusters` and `verification`, which import this
module inside their functions: numba takes 0.6 s to import, and planning a chain needs none of it.
Inputs are given through `array`, so that each kernel is compiled for one type only. Joining has
loops of its own in `join_kernels`.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = [
    "array",
    "count_agreements",
    "drop_others",
    "drop_seen",
    "fill_buckets",
    "first_fault",
    "follow_copies",
    "jaccards",
    "join_all",
    "place_distinct",
    "warm",
]

Indices = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_STEPS = 64  # from its slot to where a hash is put; evenly spread ones need 20 in ten million


def array(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray:
    """Return `values` as a read-only array in C order: what comes out of Arrow is read-only."""
    view = np.ascontiguousarray(values, dtype).view()
    view.flags.writeable = False
    return view


# --- components and decisions


@njit(cache=True, nogil=True)
def _root(parent: Indices, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]  # halves the path for those who come after
        node = parent[node]
    return node


@njit(cache=True, nogil=True)
def join_all(count: int, pairs: Indices) -> Indices:
    """Return the smallest member of each node's component; all pairs are of 0..count-1.

    Greater roots hang on smaller ones, so a parent is never greater than its child, and one pass
    in ascending order flattens the forest.
    """
    parent = np.arange(count)
    for k in range(pairs.shape[0]):
        a, b = _root(parent, pairs[k, 0]), _root(parent, pairs[k, 1])
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b
    for node in range(count):
        parent[node] = parent[parent[node]]
    return parent


@njit(cache=True, nogil=True)
def first_fault(representative: Indices, pairs: Indices) -> tuple[int, int]:
    """Return (0, -1), or what is wrong with the first faulty pair or representative, and where.

    1: a representative is no earlier document that stands for itself; 2: a pair names no document;
    3: the earlier one does not stand first; 4: a pair names a copy.
    """
    count = representative.size
    for document in range(count):
        first = representative[document]
        if first < 0 or first > document or representative[first] != first:
            return 1, document
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        if min(a, b) < 0 or max(a, b) >= count:
            return 2, k
        if a >= b:
            return 3, k
        if representative[a] != a or representative[b] != b:
            return 4, k
    return 0, -1


@njit(cache=True, nogil=True)
def drop_seen(
    pairs: Indices, weights: Similarities, twin: Indices, similarity: Similarities
) -> None:
    """Fill in twins and similarities of one pass in key order; pairs ascend by the earlier one.

    When the pairs of an earlier document are met all pairs that could drop it have been.
    """
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        if twin[a] >= 0:
            continue
        if twin[b] < 0 or weights[k] > similarity[b]:  # of equals the earliest stays
            twin[b], similarity[b] = a, weights[k]


@njit(cache=True, nogil=True)
def drop_others(
    pairs: Indices, weights: Similarities, cluster: Indices, similarity: Similarities
) -> None:
    """Fill in the similarities of pairs whose earlier document is kept for the later one."""
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        if cluster[b] == a and np.isnan(similarity[b]):
            similarity[b] = weights[k]


@njit(cache=True, nogil=True)
def follow_copies(
    representative: Indices,
    kinds: tuple[int, int, int],
    kind: npt.NDArray[np.int8],
    twin: Indices,
    similarity: Similarities,
    cluster: Indices,
) -> Indices:
    """Fill in kinds, and give copies what became of their representatives; return cluster sizes."""
    size = np.zeros(representative.size, np.int64)
    for document in range(representative.size):
        first = representative[document]
        if first == document:
            kind[document] = kinds[0] if twin[document] < 0 else kinds[2]
        else:
            kind[document] = kinds[1]
            stays = twin[first] < 0
            twin[document] = first if stays else twin[first]
            similarity[document] = 1.0 if stays else similarity[first]
            cluster[document] = cluster[first]
        size[cluster[document]] += 1
    for document in range(representative.size - 1, -1, -1):  # a cluster's own entry comes last
        size[document] = size[cluster[document]]
    return size


# --- verification


@njit(cache=True, nogil=True)
def count_agreements(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> Indices:
    """Return the number of equal values in each row."""
    counts = np.empty(a.shape[0], np.int64)
    for row in range(a.shape[0]):
        equal = np.uint32(0)
        for column in range(a.shape[1]):
            equal += np.uint32(a[row, column] == b[row, column])
        counts[row] = equal
    return counts


@njit(cache=True, nogil=True)
def jaccards(flat: Hashes, starts: Indices, ends: Indices, pairs: Indices) -> Similarities:
    """Return the Jaccard of each pair of ascending sets flat[start:end]; 0 for two empty ones."""
    found = np.zeros(pairs.shape[0])
    for k in range(pairs.shape[0]):
        i, j = starts[pairs[k, 0]], starts[pairs[k, 1]]
        i_end, j_end = ends[pairs[k, 0]], ends[pairs[k, 1]]
        both, total = 0, i_end - i + j_end - j
        while i < i_end and j < j_end:
            x, y = flat[i], flat[j]
            both += x == y
            i += x <= y
            j += y <= x
        if total:
            found[k] = both / (total - both)
    return found


@njit(cache=True, nogil=True)
def place_distinct(values: Hashes, table: Hashes) -> int:
    """Leave the distinct values at the beginning of `table`, ascending; return how many.

    Linear probing sort (Gonnet and Munro 1984): a hash table whose slots are the high bits, kept
    in order; three times as fast as sorting where it fits a cache. `table` has 2^b + 64 entries,
    2^b at least twice the values. Returns -1, having done nothing of use, where values are no
    evenly spread hashes.
    """
    shift = np.uint64(64)
    while (1 << (64 - np.int64(shift))) + _STEPS < table.size:
        shift -= np.uint64(1)
    table[:] = _LAST
    highest = 0
    for k in range(values.size):
        value = values[k]
        if value == _LAST:  # stands for an empty slot
            highest = 1
            continue
        slot = np.int64(value >> shift)
        end = slot + _STEPS
        while slot < end and table[slot] < value:
            slot += 1
        while slot < end and table[slot] != value:
            value, table[slot] = table[slot], value
            if value == _LAST:
                break
            slot += 1
        if slot == end:
            return -1
    filled = 0
    for slot in range(table.size):
        if table[slot] != _LAST:
            table[filled] = table[slot]
            filled += 1
    if highest:
        table[filled] = _LAST
    return filled + highest


@njit(cache=True, nogil=True)
def fill_buckets(pairs, sizes, budget):
    """Return a bucket for each pair, ascending: a new one where its documents have no room left."""
    inside = np.full(sizes.size, -1, np.int64)  # the last bucket that a document is in
    buckets = np.empty(pairs.shape[0], np.int64)
    bucket, used = 0, 0
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        more = (sizes[a] if inside[a] != bucket else 0) + (sizes[b] if inside[b] != bucket else 0)
        if used and used + more > budget:
            bucket, used, more = bucket + 1, 0, sizes[a] + sizes[b]
        inside[a] = inside[b] = bucket
        used += more
        buckets[k] = bucket
    return buckets


def warm() -> None:
    """Compile every kernel of joining and deciding for the types it is used with."""
    from corpus_platform.dedup import bands, clusters, verification

    signatures, numbers = np.zeros((2, 2), np.uint32), np.arange(2)
    hashes = bands.band_hashes(signatures, 1, 2)[:, 0]
    found = bands.bucket_pairs(hashes, numbers, cap=1, searched=numbers == 0)
    bands.merge_codes([found.codes, found.searched])
    clusters.collapse_exact(np.zeros((2, 32), np.uint8), numbers)
    edges = verification.Edges(np.array([[0, 1]]), np.ones(1))
    clusters.decide(numbers, edges, keep="first_seen")
    clusters.decide(numbers, edges, keep="one_per_cluster")
    verification.agreements(signatures, signatures)
    verification.compare_sets(hashes, numbers, numbers + 1, edges.pairs)
    place_distinct(array(hashes, np.uint64), np.empty(4 + _STEPS, np.uint64))
    fill_buckets(array(edges.pairs, np.int64), array(numbers, np.int64), 1)
