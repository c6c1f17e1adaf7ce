"""Compiled loops of joining and deciding: plain arrays in, plain arrays out.

Checks, messages and named results are those of `bands`, `clusters` and `verification`, which
import this module inside their functions: numba takes 0.6 s to import, and planning a chain needs
none of it. Inputs are given through `array`, so that each kernel is compiled for one type only.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = [
    "array",
    "count_agreements",
    "drop_seen",
    "fill_pairs",
    "fill_searched",
    "first_equal",
    "first_fault",
    "follow_copies",
    "hash_bands",
    "jaccards",
    "join_all",
    "link_equal",
    "link_searched",
    "merge",
    "place_distinct",
    "warm",
]

_HIGH = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0x00000000FFFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbours go to far slots
_ONE, _HALF = np.uint64(1), np.uint64(32)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


def array(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray:
    """Return `values` as a read-only array in C order: what comes out of Arrow is read-only."""
    view = np.ascontiguousarray(values, dtype).view()
    view.flags.writeable = False
    return view


# --- bands


@njit(cache=True, nogil=True)
def hash_bands(signatures, bands, rows):
    """Return [n, bands] hashes: splitmix64 over the band's number and its values."""
    hashes = np.empty((signatures.shape[0], bands), np.uint64)
    for document in range(signatures.shape[0]):
        for band in range(bands):
            mixed = np.uint64(band)
            for column in range(band * rows, (band + 1) * rows):
                z = (mixed ^ np.uint64(signatures[document, column])) + _SPREAD
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                mixed = z ^ (z >> np.uint64(31))
            hashes[document, band] = mixed
    return hashes


# --- buckets: rows stand in the order of their numbers


@njit(cache=True, nogil=True)
def _shift(count):
    """Return by how many bits a 64-bit product is cut to a slot; at most half the slots are used."""
    bits = 4
    while (1 << bits) < 2 * count:
        bits += 1
    return np.uint64(64 - bits)


@njit(cache=True, nogil=True)
def link_equal(hashes):
    """Chain the rows of equal hashes: the next one of each row (0: none), and its place from 0.

    One open table; a slot holds the high half of the hash and the last row that had it, plus one.
    """
    shift = _shift(hashes.size)
    slots = np.zeros(1 << (np.int64(64) - np.int64(shift)), np.uint64)
    following = np.zeros(hashes.size, np.uint32)
    place = np.zeros(hashes.size, np.uint32)
    mask = np.uint64(slots.size - 1)
    for row in range(hashes.size):
        value = hashes[row]
        slot = (value * _SPREAD) >> shift
        while slots[slot] != 0:
            if (slots[slot] ^ value) & _HIGH == 0:
                before = np.int64(slots[slot] & _LOW) - 1
                if hashes[before] == value:
                    following[before] = row
                    place[row] = place[before] + 1
                    break
            slot = (slot + _ONE) & mask
        slots[slot] = (value & _HIGH) | np.uint64(row + 1)
    return following, place


@njit(cache=True, nogil=True)
def fill_pairs(numbers, following, place, cap):
    """Return the codes of all rows with those of the first `cap` before them, and capped buckets.

    Rows in order as the earlier one, each with those that follow it: the codes come out ascending.
    """
    total, capped = 0, 0
    for row in range(place.size):
        total += min(np.int64(place[row]), cap)
        capped += np.int64(place[row]) == cap + 1
    codes = np.empty(total, np.uint64)
    filled = 0
    for row in range(place.size):
        if place[row] < cap:
            earlier = np.uint64(numbers[row]) << _HALF
            later = np.int64(following[row])
            while later:
                codes[filled] = earlier | np.uint64(numbers[later])
                filled += 1
                later = np.int64(following[later])
    return codes, capped


@njit(cache=True, nogil=True)
def link_searched(following, searched):
    """Return for each row the next searched one of its bucket, 0 where there is none."""
    link = np.zeros(following.size, np.uint32)
    for row in range(following.size - 1, -1, -1):
        later = following[row]
        if later:
            link[row] = later if searched[later] else link[later]
    return link


@njit(cache=True, nogil=True)
def fill_searched(numbers, following, place, searched, link, cap, codes):
    """Fill in the codes of searched rows with the first `cap` of their bucket; return how many.

    A row among the first `cap` meets those after it: if it is searched itself all that are among
    the first too, then the searched ones only. With no room in `codes` they are only counted.
    """
    filled = 0
    for row in range(place.size):
        if place[row] >= cap:
            continue
        earlier = np.uint64(numbers[row]) << _HALF
        at = row
        if searched[row]:
            while following[at] and place[following[at]] < cap:
                at = np.int64(following[at])
                if codes.size:
                    codes[filled] = earlier | np.uint64(numbers[at])
                filled += 1
        while link[at]:
            at = np.int64(link[at])
            if codes.size:
                codes[filled] = earlier | np.uint64(numbers[at])
            filled += 1
    return filled


@njit(cache=True, nogil=True)
def merge(a, b, out):
    """Fill in the distinct values of two ascending arrays of distinct values; return how many."""
    i, j, filled = 0, 0, 0
    while i < a.size and j < b.size:
        x, y = a[i], b[j]
        out[filled] = min(x, y)
        filled += 1
        i += x <= y
        j += y <= x
    for k in range(i, a.size):
        out[filled] = a[k]
        filled += 1
    for k in range(j, b.size):
        out[filled] = b[k]
        filled += 1
    return filled


# --- exact copies, components, decisions


@njit(cache=True, nogil=True)
def first_equal(digests):
    """Return the rows that have an earlier equal one, and the first of each; rows are 4 words."""
    shift = _shift(digests.shape[0])
    slots = np.zeros(1 << (np.int64(64) - np.int64(shift)), np.uint64)
    mask = np.uint64(slots.size - 1)
    copies, firsts = np.empty(16, np.int64), np.empty(16, np.int64)
    found = 0
    for row in range(digests.shape[0]):
        value = digests[row, 0]
        slot = (value * _SPREAD) >> shift
        first = -1
        while slots[slot] != 0:
            if (slots[slot] ^ value) & _HIGH == 0:
                before = np.int64(slots[slot] & _LOW) - 1
                if (
                    digests[before, 0] == value
                    and digests[before, 1] == digests[row, 1]
                    and digests[before, 2] == digests[row, 2]
                    and digests[before, 3] == digests[row, 3]
                ):
                    first = before
                    break
            slot = (slot + _ONE) & mask
        if first < 0:
            slots[slot] = (value & _HIGH) | np.uint64(row + 1)
            continue
        if found == copies.size:
            copies = np.append(copies, np.empty(found, np.int64))
            firsts = np.append(firsts, np.empty(found, np.int64))
        copies[found], firsts[found] = row, first
        found += 1
    return copies[:found].copy(), firsts[:found].copy()


@njit(cache=True, nogil=True)
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]  # halves the path for those who come after
        node = parent[node]
    return node


@njit(cache=True, nogil=True)
def join_all(count, pairs):
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
def first_fault(representative, pairs):
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
def drop_seen(pairs, weights, twin, similarity):
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
def drop_others(pairs, weights, cluster, similarity):
    """Fill in the similarities of pairs whose earlier document is kept for the later one."""
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        if cluster[b] == a and np.isnan(similarity[b]):
            similarity[b] = weights[k]


@njit(cache=True, nogil=True)
def follow_copies(representative, kinds, kind, twin, similarity, cluster):
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
def count_agreements(a, b):
    """Return the number of equal values in each row."""
    counts = np.empty(a.shape[0], np.int64)
    for row in range(a.shape[0]):
        equal = np.uint32(0)
        for column in range(a.shape[1]):
            equal += np.uint32(a[row, column] == b[row, column])
        counts[row] = equal
    return counts


@njit(cache=True, nogil=True)
def jaccards(flat, starts, ends, pairs):
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
def place_distinct(values, out):
    """Fill in the distinct values in ascending order and return how many, -1 when it gives up.

    Linear probing sort (Gonnet and Munro 1984): a table whose slots are the high bits, kept in
    order. Good for hashes only; where they are not spread it gives up after 64 steps.
    """
    shift = _shift(values.size)
    table = np.full((1 << (np.int64(64) - np.int64(shift))) + 64, _LAST, np.uint64)
    highest = False
    for k in range(values.size):
        value = values[k]
        if value == _LAST:  # stands for an empty slot
            highest = True
            continue
        slot = np.int64(value >> shift)
        end = min(slot + 64, table.size)
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
            out[filled] = table[slot]
            filled += 1
    if highest:
        out[filled] = _LAST
        filled += 1
    return filled


def warm() -> None:
    """Compile every kernel for the types it is used with, into numba's cache."""
    from corpus_platform.dedup import bands, clusters, verification

    signatures, hashes = np.zeros((2, 2), np.uint32), np.zeros(2, np.uint64)
    bands.band_hashes(signatures, 1, 2)
    found = bands.bucket_pairs(hashes, np.arange(2), cap=1, searched=np.ones(2, np.bool_))
    bands.merge_codes([found.codes, found.searched])
    clusters.collapse_exact(np.zeros((2, 32), np.uint8), np.arange(2))
    edges = verification.Edges(np.array([[0, 1]]), np.ones(1))
    clusters.decide(np.arange(2), edges, keep="first_seen")
    clusters.decide(np.arange(2), edges, keep="one_per_cluster")
    verification.agreements(signatures, signatures)
    ends = np.arange(1, 3)
    verification.compare_sets(hashes, ends - 1, ends, edges.pairs)
    place_distinct(array(hashes, np.uint64), hashes)
