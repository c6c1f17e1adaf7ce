"""Compiled loops of joining: band hashes, chains of equal keys, codes of pairs, codes merged.

Rows are cut by the high bits of their mixed keys into parts that fit the second-level cache; each
part is chained and written out before the next, so that nothing of the size of all rows is met in
random order: on a million rows that is twice as fast as one table. Checks and messages are those
of `bands` and `clusters`.
"""

import numpy as np
import numpy.typing as npt

from corpus_platform.text.compiling import kernel

__all__ = ["copy_codes", "count_union", "hash_bands", "merge", "pair_codes"]

Codes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.uint32]
Marks = npt.NDArray[np.bool_]
Count = int | np.integer

_SPREAD = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 / golden ratio: a bijection whose high bits are mixed
_ONE, _HALF, _WORD = np.uint64(1), np.uint64(32), np.uint64(64)
_PART_ROWS, _PART_BITS = 1 << 12, 10  # more parts at a time than 1024 cost more than they save
_SLOTS = 4  # a row: the fewer are taken, the better the processor guesses


@kernel
def hash_bands(signatures: npt.NDArray[np.uint32], bands: int, rows: int) -> Codes:
    """Return [bands, n] hashes: splitmix64 over the band's number and its values.

    Bands side by side: one alone waits for its own multiplications.
    """
    hashes = np.empty((bands, signatures.shape[0]), np.uint64)
    mixed = np.empty(bands, np.uint64)
    for document in range(signatures.shape[0]):
        for band in range(bands):
            mixed[band] = band
        for row in range(rows):
            for band in range(bands):
                z = (mixed[band] ^ np.uint64(signatures[document, band * rows + row])) + _SPREAD
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                mixed[band] = z ^ (z >> np.uint64(31))
        for band in range(bands):
            hashes[band, document] = mixed[band]
    return hashes


@kernel
def _bits(count: int) -> int:
    """Return the least number of bits, of 4 at least, that `count` values need."""
    bits = 4
    while (1 << bits) < count:
        bits += 1
    return bits


@kernel
def _cut(keys: Codes) -> tuple[int, Codes, Places, npt.NDArray[np.int64]]:
    """Return bits, mixed first words and rows by part, in order inside it, and where parts begin."""
    bits = max(1, min(_PART_BITS, _bits(keys.shape[0] // _PART_ROWS)))
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for row in range(keys.shape[0]):
        starts[np.int64((keys[row, 0] * _SPREAD) >> shift) + 1] += 1
    for part in range(1 << bits):
        starts[part + 1] += starts[part]
    free = starts[:-1].copy()
    mixed, rows = np.empty(keys.shape[0], np.uint64), np.empty(keys.shape[0], np.uint32)
    for row in range(keys.shape[0]):
        value = keys[row, 0] * _SPREAD
        part = np.int64(value >> shift)
        mixed[free[part]], rows[free[part]] = value, row
        free[part] += 1
    return bits, mixed, rows, starts


@kernel
def _rest_equal(keys: Codes, a: Count, b: Count) -> bool:
    """Tell whether all words but the first are equal; the first ones are known to be."""
    equal = True
    for word in range(1, keys.shape[1]):
        equal &= keys[a, word] == keys[b, word]
    return equal


@kernel
def _chain(
    keys: Codes, mixed: Codes, rows: Places, bits: int, slots: Places, links: Places, place: Places
) -> None:
    """Fill in the next member with the same key (0: none) and the place, from 0, of each member.

    A slot holds the last member with its key, plus one; the first `bits` of a part are all equal.
    """
    width = _bits(_SLOTS * mixed.size)
    slots[: 1 << width] = 0
    skip, shift = np.uint64(bits), _WORD - np.uint64(width)
    mask = np.uint64((1 << width) - 1)
    for member in range(mixed.size):
        links[member], place[member] = 0, 0
        slot = (mixed[member] << skip) >> shift
        while slots[slot] != 0:
            before = np.int64(slots[slot]) - 1
            if mixed[before] == mixed[member] and _rest_equal(
                keys, np.int64(rows[before]), np.int64(rows[member])
            ):
                links[before] = member
                place[member] = place[before] + np.uint32(1)
                break
            slot = (slot + _ONE) & mask
        slots[slot] = member + 1


@kernel
def _tables(starts: npt.NDArray[np.int64]) -> tuple[Places, Places, Places]:
    """Return slots, links and places for the largest part."""
    largest = 0
    for part in range(starts.size - 1):
        largest = max(largest, starts[part + 1] - starts[part])
    slots = np.empty(1 << _bits(_SLOTS * largest), np.uint32)
    return slots, np.empty(largest, np.uint32), np.empty(largest, np.uint32)


@kernel
def _with_room(codes: Codes, filled: Count, more: Count) -> Codes:
    """Return an array with the first `filled` codes and room for `more`."""
    if filled + more <= codes.size:
        return codes
    wider = np.empty(max(filled + more, codes.size + codes.size // 2), np.uint64)
    wider[:filled] = codes[:filled]
    return wider


@kernel
def _trimmed(codes: Codes, filled: Count) -> Codes:
    """Return the first `filled` codes; copied where that gives more than a quarter back."""
    return codes[:filled] if 4 * filled > 3 * codes.size else codes[:filled].copy()


@kernel
def _fill(
    labels: npt.NDArray[np.int64], rows: Places, links: Places, place: Places, cap: int, out: Codes
) -> int:
    """Fill in the codes of all members with the first `cap` before them; return how many."""
    filled = 0
    for member in range(rows.size):
        later = np.int64(links[member])
        if later == 0 or place[member] >= cap:
            continue
        earlier = np.uint64(labels[rows[member]]) << _HALF
        while later:
            out[filled] = earlier | np.uint64(labels[rows[later]])
            filled += 1
            later = np.int64(links[later])
    return filled


@kernel
def _fill_first(rows: Places, links: Places, place: Places, out: Codes) -> int:
    """Fill in row << 32 | first row of all members but the first of each key; return how many."""
    filled = 0
    for member in range(rows.size):
        if place[member] == 0:
            later = np.int64(links[member])
            while later:
                out[filled] = (np.uint64(rows[later]) << _HALF) | np.uint64(rows[member])
                filled += 1
                later = np.int64(links[later])
    return filled


@kernel
def copy_codes(keys: Codes) -> Codes:
    """Return row << 32 | first row, in no order, of all rows that have an earlier equal key."""
    bits, mixed, rows, starts = _cut(keys)
    slots, links, place = _tables(starts)
    codes = np.empty(keys.shape[0] // 8, np.uint64)
    filled = 0
    for part in range(starts.size - 1):
        start, end = starts[part], starts[part + 1]
        _chain(keys, mixed[start:end], rows[start:end], bits, slots, links, place)
        codes = _with_room(codes, filled, end - start)
        filled += _fill_first(rows[start:end], links, place, codes[filled:])
    return _trimmed(codes, filled)


@kernel
def _link_searched(rows: Places, links: Places, searched: Marks, found: Places) -> None:
    """Fill in the next searched member with the same key, 0 where there is none."""
    for member in range(rows.size - 1, -1, -1):
        later = links[member]
        found[member] = 0 if later == 0 else (later if searched[rows[later]] else found[later])


@kernel
def _fill_searched(
    labels: npt.NDArray[np.int64],
    rows: Places,
    links: Places,
    place: Places,
    searched: Marks,
    found: Places,
    cap: int,
    out: Codes,
) -> int:
    """Fill in the codes of searched members with the first `cap` of their key; return how many.

    A member among the first meets those after it: if it is searched all that are among the first
    too, and then the searched ones only. With no room in `out` they are only counted.
    """
    filled = 0
    for member in range(rows.size):
        if place[member] >= cap:
            continue
        earlier = np.uint64(labels[rows[member]]) << _HALF
        at, among = np.int64(member), searched[rows[member]]
        while True:
            later = np.int64(links[at]) if among else 0
            if later == 0 or place[later] >= cap:
                among, later = False, np.int64(found[at])
            if later == 0:
                break
            if out.size:
                out[filled] = earlier | np.uint64(labels[rows[later]])
            filled += 1
            at = later
    return filled


@kernel
def _count(place: Places, size: int, cap: int) -> tuple[Count, Count]:
    """Return the number of pairs of a part, and of keys that had pairs left out."""
    pairs, capped = 0, 0
    for member in range(size):
        pairs += min(np.int64(place[member]), cap)
        capped += np.int64(place[member]) == cap + 1
    return pairs, capped


@kernel
def pair_codes(
    keys: Codes, labels: npt.NDArray[np.int64], searched: Marks, cap: int, search_cap: int
) -> tuple[Codes, Codes, Count]:
    """Return the codes of pairs, those of searched rows, and the number of keys over the cap.

    Rows stand in the order of their labels; the codes do in none. `searched` is empty for none.
    """
    bits, mixed, rows, starts = _cut(keys)
    slots, links, place = _tables(starts)
    found = np.empty(links.size if searched.size else 0, np.uint32)
    codes, of_searched = np.empty(keys.shape[0] // 8, np.uint64), np.empty(256, np.uint64)
    filled, filled_searched, capped = 0, 0, 0
    for part in range(starts.size - 1):
        some = rows[starts[part] : starts[part + 1]]
        _chain(keys, mixed[starts[part] : starts[part + 1]], some, bits, slots, links, place)
        more, over = _count(place, some.size, cap)
        capped += over
        codes = _with_room(codes, filled, more)
        filled += _fill(labels, some, links, place, cap, codes[filled:])
        if not searched.size:
            continue
        _link_searched(some, links, searched, found)
        chains = (labels, some, links, place, searched, found, search_cap)
        of_searched = _with_room(of_searched, filled_searched, _fill_searched(*chains, codes[:0]))
        filled_searched += _fill_searched(*chains, of_searched[filled_searched:])
    return _trimmed(codes, filled), _trimmed(of_searched, filled_searched), capped


@kernel
def count_union(a: Codes, b: Codes) -> Count:
    """Return how many distinct values two ascending arrays of distinct values have together."""
    i, j, both = 0, 0, 0
    while i < a.size and j < b.size:  # no branches: which is less cannot be guessed
        x, y = a[i], b[j]
        both += x == y
        i += x <= y
        j += y <= x
    return a.size + b.size - both


@kernel
def merge(a: Codes, b: Codes, out: Codes) -> None:
    """Fill in the distinct values of two ascending arrays of distinct values, ascending."""
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
