"""Compiled loops of deciding and verifying: plain arrays in, plain arrays out.

Checks, messages and named results are those of `clusters` and `verification`, which import this
module inside their functions: numba takes 0.6 s to import, and planning a chain needs none of it.
Inputs are given through `array`, so that each kernel is compiled for one type only. Joining has
loops of its own in `join_kernels`.
"""

import numpy as np
import numpy.typing as npt

from corpus_platform.text.compiling import kernel

__all__ = [
    "array",
    "count_agreements",
    "distinct_sets",
    "drop_others",
    "drop_seen",
    "fill_buckets",
    "first_fault",
    "follow_copies",
    "jaccards",
    "join_all",
    "warm",
]

Indices = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.uint32]

_DIGIT = np.uint64(255)
_FEW = 1 << 14  # fewer hashes rarely share 16 bits


def array(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray:
    """Return `values` as a read-only array in C order: what comes out of Arrow is read-only."""
    view = np.ascontiguousarray(values, dtype).view()
    view.flags.writeable = False
    return view


# --- components and decisions


@kernel
def _root(parent: Indices, node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]  # halves the path for those who come after
        node = parent[node]
    return node


@kernel
def join_all(parent: Indices, pairs: Indices) -> None:
    """Turn 0..n-1 into the smallest member of each node's component; all pairs are of 0..n-1.

    Greater roots hang on smaller ones, so a parent is never greater than its child, and one pass
    in ascending order flattens the forest.
    """
    for k in range(pairs.shape[0]):
        a, b = _root(parent, pairs[k, 0]), _root(parent, pairs[k, 1])
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b
    for node in range(parent.size):
        parent[node] = parent[parent[node]]


@kernel
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


@kernel
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


@kernel
def drop_others(
    pairs: Indices, weights: Similarities, cluster: Indices, similarity: Similarities
) -> None:
    """Fill in the similarities of pairs whose earlier document is kept for the later one."""
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        if cluster[b] == a and np.isnan(similarity[b]):
            similarity[b] = weights[k]


@kernel
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


@kernel
def count_agreements(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> Indices:
    """Return the number of equal values in each row."""
    counts = np.empty(a.shape[0], np.int64)
    for row in range(a.shape[0]):
        equal = np.uint32(0)
        for column in range(a.shape[1]):
            equal += np.uint32(a[row, column] == b[row, column])
        counts[row] = equal
    return counts


@kernel
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


@kernel
def _begins(counts: Places) -> None:
    """Turn the number of values with each digit into the place of the first of them."""
    begin = np.uint32(0)
    for digit in range(counts.size):
        count = counts[digit]
        counts[digit] = begin
        begin += count


@kernel
def _scatter(values: Hashes, out: Hashes, skip: np.uint64, places: Places) -> None:
    """Put the values in the order of a digit; of equals the order stays."""
    for k in range(values.size):
        digit = np.int64((values[k] >> skip) & _DIGIT)
        out[places[digit]] = values[k]
        places[digit] += np.uint32(1)


@kernel
def _by_two_digits(values: Hashes, between: Hashes, out: Hashes, skip: int) -> None:
    """Put the values in the order of 16 bits; both digits are counted in one pass."""
    low, high = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    skip_low, skip_high = np.uint64(skip), np.uint64(skip + 8)
    for k in range(values.size):
        low[np.int64((values[k] >> skip_low) & _DIGIT)] += np.uint32(1)
        high[np.int64((values[k] >> skip_high) & _DIGIT)] += np.uint32(1)
    _begins(low)
    _begins(high)
    _scatter(values, between, skip_low, low)
    _scatter(between, out, skip_high, high)


@kernel
def _settle(ordered: Hashes, out: Hashes, moves: int) -> int:
    """Fill in the distinct values of a nearly ascending array, ascending, and return how many.

    Returns -1 when that takes more moves than allowed.
    """
    filled, last = 0, np.uint64(0)
    for k in range(ordered.size):
        value = ordered[k]
        if k == 0 or value >= last:
            out[filled] = value
            filled += k == 0 or value != last  # no branch: equals cannot be guessed
            last = value
            continue
        at = filled
        while at > 0 and out[at - 1] > value:
            at -= 1
        moves -= filled - at
        if moves < 0:
            return -1
        if at > 0 and out[at - 1] == value:
            continue
        for place in range(filled, at, -1):
            out[place] = out[place - 1]
        out[at] = value
        filled += 1
    return filled


@kernel
def distinct_sets(values: Hashes, ends: Indices) -> tuple[Hashes, Indices]:
    """Return the distinct values of each array, ascending, one after the other, and new ends.

    Hashes are spread so evenly that their high bits all but order them: two digits, or four, and a
    few moves. Where that is not so all eight digits are sorted: never more than linear.
    """
    largest, start = 0, 0
    for k in range(ends.size):
        largest, start = max(largest, ends[k] - start), ends[k]
    one, other = np.empty(largest, np.uint64), np.empty(largest, np.uint64)
    flat, new_ends = np.empty(values.size, np.uint64), np.empty(ends.size, np.int64)
    start, filled = 0, 0
    for k in range(ends.size):
        some, size = values[start : ends[k]], ends[k] - start
        found = -1
        for first in (48 if size < _FEW else 32, 0):
            _by_two_digits(some, one[:size], other[:size], first)
            for skip in range(first + 16, 64, 16):
                _by_two_digits(other[:size], one[:size], other[:size], skip)
            found = _settle(other[:size], flat[filled:], 8 * size)
            if found >= 0:
                break
        filled += found
        start, new_ends[k] = ends[k], filled
    return flat[:filled].copy(), new_ends


@kernel
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
    distinct_sets(array(hashes, np.uint64), array(numbers + 1, np.int64))
    fill_buckets(array(edges.pairs, np.int64), array(numbers, np.int64), 1)
