"""Numbers drawn by key: a permutation of 0..N-1 and uniform draws, both without a table.

Each is a pure function of key and position, so any process finds its part of an order by itself,
and to go on with an order a position is enough. The permutation is a Feistel network over the least
power of two that holds N; what falls out of range goes through again until it does not. What a key
gives never changes: training runs that are resumed depend on it.
"""

import numpy as np

__all__ = ["drawn", "key_of", "permuted"]

# All orders of 5 and of 6 come equally often with 20 rounds, and not with 12 (chi-squared over 20,000
# keys); from 16 numbers on 8 are enough for neighbours to stay neighbours no more than by chance.
_ROUNDS, _ROUNDS_OF_FEW, _FEW_BITS = 8, 20, 8
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # of splitmix64 (Steele, Lea, Flood 2014), like the constants below


def key_of(*numbers: int) -> int:
    """Return one key of 64 bits that depends on all numbers and on their order."""
    key = 0
    for number in numbers:
        key = int(_mixed(np.array([(key ^ number) & _MASK], np.uint64), key)[0])
    return key


def permuted(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Return where a permutation of 0..count-1 sends positions (int64 each)."""
    bits = max(1, (count - 1).bit_length())
    rounds = _ROUNDS_OF_FEW if bits <= _FEW_BITS else _ROUNDS
    keys = _mixed(np.arange(rounds, dtype=np.uint64), key).tolist()
    found = _network(positions.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(found >= count)
    while len(outside):  # fewer than half of them each time
        found[outside] = _network(found[outside], bits, keys)
        outside = outside[found[outside] >= count]
    return found.astype(np.int64)


def drawn(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Return for each position a number of 0..count-1 (int64), independent of all others."""
    # That 2^64 is no multiple of count makes some numbers likelier by count / 2^64.
    return (_mixed(positions.astype(np.uint64), key) % np.uint64(count)).astype(np.int64)


def _network(values: np.ndarray, bits: int, keys: list[int]) -> np.ndarray:
    """Return a permutation of all numbers of some bits, applied to values."""
    low_bits = np.uint64(bits - bits // 2)
    high_mask, low_mask = np.uint64((1 << bits // 2) - 1), np.uint64((1 << int(low_bits)) - 1)
    high, low = values >> low_bits, values & low_mask
    for number, key in enumerate(keys):
        if number % 2:
            low = low ^ (_mixed(high, key) & low_mask)
        else:
            high = high ^ (_mixed(low, key) & high_mask)
    return (high << low_bits) | low


def _mixed(values: np.ndarray, key: int) -> np.ndarray:
    """Return 64 well mixed bits of each value and a key: splitmix64."""
    mixed = values * np.uint64(_GOLDEN)
    mixed += np.uint64((key + _GOLDEN) & _MASK)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
