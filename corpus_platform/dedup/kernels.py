"""Turns unit hashes into shingle hashes, and sets of shingle hashes into signatures, in machine code.

A window is hashed as a tree: of two neighbours each, of two such pairs, and so on, as long as they
fit into the width; the last step joins the first and the last such span of the window, which may
overlap. It takes log2(width) passes, none of which waits for its own results as a rolling hash does.
What is stored depends on this arithmetic: it never changes without a new version.

Order and repetition of shingles change no signature.
"""

import numpy as np
import numpy.typing as npt

from corpus_platform.text.compiling import inner, kernel

__all__ = ["fast_signatures", "least_values", "warm", "window_hashes"]

# Digits of e: nobody chose them. Factors are odd, so that no bit falls out of a product.
_JOIN_FACTOR = np.uint64(0xB7E151628AED2A6B)
_LAST_FACTOR = np.uint64(0xBF7158809CF4F3C7)
_ROUND_FACTOR = np.uint64(0x62E7160F38B4DA57)
_ROUND_STEP = np.uint64(0x9E3779B97F4A7C15)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_BLOCK = 1024  # windows joined at a time: two arrays of 8 KiB stay in the first-level cache
_REPEATS_SHOW = 4  # rounds: k distinct shingles have left 2 % of the bins empty then
_FEW = 1 << 13  # distinct shingles: with more no bin of 1024 is empty by then
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def window_hashes(
    hashes: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    width: int,
    ends: npt.NDArray[np.int64],
) -> int:
    """Overwrite the unit hashes of texts by those of their windows; return how many there are.

    `counts` and the hashes are as `text.kernels.hash_units` gives them; `ends` gets the place behind
    the windows of each text.
    """
    start, place = 0, 0
    first = np.empty(_BLOCK + width, np.uint64)
    second = np.empty(_BLOCK + width, np.uint64)  # not rows of one: numba would step through them
    for text in range(counts.size):
        units = max(counts[text], 1)  # without a unit there is the hash of the text
        used = min(width, units)
        windows = units - used + 1
        for at in range(0, windows, _BLOCK):
            held = min(_BLOCK, windows - at)
            joined = _join(hashes[start + at : start + units], first, second, held, used)
            _finish(joined, min(used, counts[text]), hashes[place + at : place + at + held])
        start += units
        place += windows
        ends[text] = place
    return place


@inner
def _join(
    units: npt.NDArray[np.uint64],
    spare: npt.NDArray[np.uint64],
    other: npt.NDArray[np.uint64],
    windows: int,
    width: int,
) -> npt.NDArray[np.uint64]:
    """Return the joined hashes of the first windows, in one of the three arrays."""
    span = 1
    while span < width:
        step = min(span, width - span)
        span += step
        _pair(units, units[step:], spare[: windows + width - span])
        units, spare, other = spare, other, spare
    return units


@inner
def _pair(
    left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64], pairs: npt.NDArray[np.uint64]
) -> None:
    for i in range(pairs.size):
        product = left[i] * _JOIN_FACTOR + right[i]
        pairs[i] = product ^ (product >> _HALF)


@inner
def _finish(joined: npt.NDArray[np.uint64], units: int, windows: npt.NDArray[np.uint64]) -> None:
    """Mix the number of units in: four units never equal a window of five."""
    salt = np.uint64(units)
    for i in range(windows.size):
        product = (joined[i] ^ salt) * _LAST_FACTOR
        windows[i] = product ^ (product >> _HALF)


@kernel
def fast_signatures(
    hashes: npt.NDArray[np.uint64],
    ends: npt.NDArray[np.int64],
    seed: np.uint64,
    signatures: npt.NDArray[np.uint32],
) -> None:
    """Write the Fast Similarity Sketch (arXiv:1704.04370) of each set, none of them empty.

    Round t of the first k throws every shingle into a bin and keeps the least value there, unless
    the bin was filled in a round before; round k + t fills bin t from all of them. It ends when no
    bin is empty. The value is 32 bits of the round's hash, not the round itself.
    """
    start = 0
    slots = np.empty(signatures.shape[1], np.uint64)
    for text in range(ends.size):
        _sketch(hashes[start : ends[text]], seed, slots)
        for bin in range(slots.size):
            signatures[text, bin] = np.uint32(slots[bin] & _LOW)
        start = ends[text]


@inner
def _sketch(hashes: npt.NDArray[np.uint64], seed: np.uint64, slots: npt.NDArray[np.uint64]) -> None:
    """Fill the slots with round << 32 | value: the least is that of the earliest round."""
    slots[:] = _EMPTY
    left = slots.size
    for turn in range(2 * slots.size):
        if turn == _REPEATS_SHOW and hashes.size > slots.size:
            hashes = _distinct_if_few(hashes)
        salt = _salt(seed, turn)
        if turn < slots.size:
            _throw(hashes, salt, np.uint64(turn) << _HALF, slots)
            left = _count_empty(slots)
        elif slots[turn - slots.size] == _EMPTY:
            slots[turn - slots.size] = _least(hashes, salt)
            left -= 1
        if not left:
            return


@inner
def _distinct_if_few(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the distinct hashes, or all where they are more than a table of `_FEW` holds.

    A million times 'x' is one shingle, which would be thrown a million times in every round.
    """
    table, few = np.zeros(4 * _FEW, np.uint64), np.empty(_FEW, np.uint64)
    count = 0
    for shingle in hashes:
        slot = shingle % np.uint64(table.size)
        while table[slot] != 0 and table[slot] != shingle:
            slot = (slot + np.uint64(1)) % np.uint64(table.size)
        if table[slot] != shingle or shingle == 0:
            if count == _FEW:
                return hashes
            few[count], table[slot] = shingle, shingle
            count += 1
    return few[:count]


@inner
def _salt(seed: np.uint64, turn: int) -> np.uint64:
    """Return what makes the hash of a round: a step of splitmix64."""
    z = (seed << _HALF) + np.uint64(turn + 1) * _ROUND_STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def _round_hash(shingle: np.uint64, salt: np.uint64) -> np.uint64:
    product = (shingle ^ salt) * _ROUND_FACTOR
    return product ^ (product >> _HALF)


@inner
def _throw(
    hashes: npt.NDArray[np.uint64],
    salt: np.uint64,
    base: np.uint64,
    slots: npt.NDArray[np.uint64],
) -> None:
    """Throw all shingles into bins; without a branch, since which value is the least is a guess."""
    bins = np.uint64(slots.size)
    for shingle in hashes:
        mixed = _round_hash(shingle, salt)
        bin = ((mixed >> _HALF) * bins) >> _HALF  # by the high half: k need be no power of two
        slots[bin] = min(slots[bin], base | (mixed & _LOW))


@inner
def _count_empty(slots: npt.NDArray[np.uint64]) -> int:
    empty = 0
    for slot in slots:
        empty += slot == _EMPTY
    return empty


@inner
def _least(hashes: npt.NDArray[np.uint64], salt: np.uint64) -> np.uint64:
    least = _LOW
    for shingle in hashes:
        least = min(least, _round_hash(shingle, salt) & _LOW)
    return least


@kernel
def least_values(
    hashes: npt.NDArray[np.uint64],
    ends: npt.NDArray[np.int64],
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    signatures: npt.NDArray[np.uint32],
) -> None:
    """Write for each set the least factor * fmix32(low half) + term of each permutation."""
    start = 0
    for text in range(ends.size):
        _permute(hashes[start : ends[text]], factors, terms, signatures[text])
        start = ends[text]


@inner
def _permute(
    hashes: npt.NDArray[np.uint64],
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    row: npt.NDArray[np.uint32],
) -> None:
    row[:] = np.uint32(0xFFFFFFFF)
    for shingle in hashes:
        mixed = _fmix32(np.uint32(shingle & _LOW))
        for i in range(row.size):
            row[i] = min(row[i], np.uint32(factors[i] * mixed + terms[i]))


@inner
def _fmix32(value: np.uint32) -> np.uint32:
    """Mix by the finaliser of MurmurHash3, as datasketch does before it permutes."""
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    value = np.uint32((value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(value ^ (value >> np.uint32(16)))


def warm() -> None:
    """Compile every kernel for the types it is used with."""
    from corpus_platform.dedup.minhash import MinHasher
    from corpus_platform.dedup.shingles import shingles_of

    hashes, ends = shingles_of([b"a"], kind="char", width=1)
    MinHasher(8, scheme="fast").signatures(hashes, ends)
    MinHasher(8, scheme="datasketch").signatures(hashes, ends)
