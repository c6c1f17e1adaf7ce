"""Turns unit hashes into shingle hashes, and sets of shingle hashes into signatures, in machine code.

A window is hashed as a tree: of two neighbours each, of two such pairs, and so on, as long as they
fit into the width; the last step joins the first and the last such span of the window, which may
overlap. It takes log2(width) passes, none of which waits for its own results as a rolling hash does.
What is stored depends on this arithmetic: it never changes without a new version.

Order and repetition of shingles change no signature.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["fast_signatures", "least_values", "warm", "window_hashes"]

# Digits of e: nobody chose them. Factors are odd, so that no bit falls out of a product.
_JOIN_FACTOR = np.uint64(0xB7E151628AED2A6B)
_LAST_FACTOR = np.uint64(0xBF7158809CF4F3C7)
_ROUND_FACTOR = np.uint64(0x62E7160F38B4DA57)
_ROUND_STEP = np.uint64(0x9E3779B97F4A7C15)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True)
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
    for text in range(counts.size):
        units = counts[text]
        used = min(width, units)
        held = _join(hashes, start, units, used) if units else 1
        for i in range(held):
            hashes[place + i] = _finish(hashes[start + i], used)
        start += max(units, 1)
        place += held
        ends[text] = place
    return place


@njit(nogil=True)
def _join(hashes: npt.NDArray[np.uint64], start: int, units: int, width: int) -> int:
    """Join `width` neighbours each, in place; return how many windows there are."""
    span = 1
    while span < width:
        step = min(span, width - span)
        units -= step
        for i in range(start, start + units):
            product = hashes[i] * _JOIN_FACTOR + hashes[i + step]
            hashes[i] = product ^ (product >> _HALF)
        span += step
    return units


@njit(nogil=True)
def _finish(joined: np.uint64, units: int) -> np.uint64:
    """Mix the number of units in: four units never equal a window of five."""
    product = (joined ^ np.uint64(units)) * _LAST_FACTOR
    return product ^ (product >> _HALF)


@njit(cache=True, nogil=True)
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


@njit(nogil=True)
def _sketch(hashes: npt.NDArray[np.uint64], seed: np.uint64, slots: npt.NDArray[np.uint64]) -> None:
    """Fill the slots with round << 32 | value: the least is that of the earliest round."""
    slots[:] = _EMPTY
    left = slots.size
    for turn in range(2 * slots.size):
        salt = _salt(seed, turn)
        if turn < slots.size:
            left -= _throw(hashes, salt, np.uint64(turn) << _HALF, slots)
        elif slots[turn - slots.size] == _EMPTY:
            slots[turn - slots.size] = _least(hashes, salt)
            left -= 1
        if not left:
            return


@njit(nogil=True)
def _salt(seed: np.uint64, turn: int) -> np.uint64:
    """Return what makes the hash of a round: a step of splitmix64."""
    z = (seed << _HALF) + np.uint64(turn + 1) * _ROUND_STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True)
def _round_hash(shingle: np.uint64, salt: np.uint64) -> np.uint64:
    product = (shingle ^ salt) * _ROUND_FACTOR
    return product ^ (product >> _HALF)


@njit(nogil=True)
def _throw(
    hashes: npt.NDArray[np.uint64],
    salt: np.uint64,
    base: np.uint64,
    slots: npt.NDArray[np.uint64],
) -> int:
    """Throw all shingles into bins; return how many bins were empty before."""
    bins, filled = np.uint64(slots.size), 0
    for shingle in hashes:
        mixed = _round_hash(shingle, salt)
        bin = ((mixed >> _HALF) * bins) >> _HALF  # by the high half: k need be no power of two
        value = base | (mixed & _LOW)
        held = slots[bin]
        if value < held:
            filled += held == _EMPTY
            slots[bin] = value
    return filled


@njit(nogil=True)
def _least(hashes: npt.NDArray[np.uint64], salt: np.uint64) -> np.uint64:
    least = _LOW
    for shingle in hashes:
        least = min(least, _round_hash(shingle, salt) & _LOW)
    return least


@njit(cache=True, nogil=True)
def least_values(
    hashes: npt.NDArray[np.uint64],
    ends: npt.NDArray[np.int64],
    factors: npt.NDArray[np.uint32],
    terms: npt.NDArray[np.uint32],
    signatures: npt.NDArray[np.uint32],
) -> None:
    """Write for each set the least factor * fmix32(low half) + term of each permutation."""
    start = 0
    signatures[:] = np.uint32(0xFFFFFFFF)
    for text in range(ends.size):
        row = signatures[text]
        for i in range(start, ends[text]):
            mixed = _fmix32(np.uint32(hashes[i] & _LOW))
            for j in range(row.size):
                row[j] = min(row[j], np.uint32(factors[j] * mixed + terms[j]))
        start = ends[text]


@njit(nogil=True)
def _fmix32(value: np.uint32) -> np.uint32:
    """Mix by the finaliser of MurmurHash3, as datasketch does before it permutes."""
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    value = np.uint32((value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(value ^ (value >> np.uint32(16)))


def warm() -> list[str]:
    """Compile the kernels, or load them from numba's cache; return their names."""
    hashes, ends = np.zeros(1, np.uint64), np.array([1])
    signatures, ones = np.empty((1, 8), np.uint32), np.ones(8, np.uint32)
    window_hashes(hashes, ends.copy(), 5, ends)
    fast_signatures(hashes, ends, np.uint64(1), signatures)
    least_values(hashes, ends, ones, ones, signatures)
    return ["window_hashes", "fast_signatures", "least_values"]
