"""Permutations by key: each place once, other orders for other keys, the same for ever."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.loader.permutation import drawn, key_of, permuted

few = settings(deadline=None, max_examples=50)
keys = st.integers(0, (1 << 64) - 1)


@few
@given(st.integers(1, 3000), keys)
def test_every_number_comes_once(count: int, key: int) -> None:
    assert sorted(permuted(np.arange(count), count, key).tolist()) == list(range(count))


@few
@given(st.integers(1, 1 << 62), keys, st.data())
def test_a_place_does_not_depend_on_what_else_is_asked(
    count: int, key: int, data: st.DataObject
) -> None:
    asked = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=5)))
    together = permuted(asked, count, key).tolist()
    assert together == [int(permuted(asked[i : i + 1], count, key)[0]) for i in range(len(asked))]
    assert all(0 <= place < count for place in together)


def test_what_a_key_gives_never_changes() -> None:
    """Written down once: runs that are resumed with a later version go on in the same order."""
    assert key_of(1, 0) == 704968905590560514
    assert permuted(np.arange(10), 10, key_of(1, 0)).tolist() == [5, 0, 6, 2, 1, 7, 4, 8, 3, 9]
    assert permuted(np.arange(2), 10**12, 7).tolist() == [100967522435, 391226211427]
    assert drawn(np.arange(4), 1000, 7).tolist() == [487, 804, 346, 203]


@few
@given(st.integers(1, 1 << 62), keys, st.data())
def test_the_network_is_the_one_that_is_described(
    count: int, key: int, data: st.DataObject
) -> None:
    """Against the same in Python's own integers, number by number."""
    at = data.draw(st.integers(0, count - 1))
    assert int(permuted(np.array([at]), count, key)[0]) == _plainly_permuted(at, count, key)


def _plainly_permuted(at: int, count: int, key: int) -> int:
    bits = max(1, (count - 1).bit_length())
    low_bits = bits - bits // 2
    keys = [_mixed(number, key) for number in range(20 if bits <= 8 else 8)]
    while True:
        high, low = at >> low_bits, at % (1 << low_bits)
        for number, one in enumerate(keys):
            if number % 2:
                low ^= _mixed(high, one) % (1 << low_bits)
            else:
                high ^= _mixed(low, one) % (1 << bits // 2)
        at = (high << low_bits) + low
        if at < count:
            return at


def _mixed(value: int, key: int) -> int:
    golden, whole = 0x9E3779B97F4A7C15, 1 << 64
    mixed = (value * golden + key + golden) % whole
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % whole
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % whole
    return mixed ^ (mixed >> 31)


def test_all_orders_of_four_come_about_equally_often() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for key in range(720):
        order = tuple(permuted(np.arange(4), 4, key).tolist())
        seen[order] = seen.get(order, 0) + 1
    # 30 each: chi-squared of 23 degrees is above 58 once in 10,000 times.
    assert len(seen) == 24
    assert sum((n - 30) ** 2 / 30 for n in seen.values()) < 58


def test_neighbours_stay_neighbours_only_by_chance() -> None:
    """Of 100,000 positions one pair is expected whose second number is the first one plus 1."""
    for key in range(3):
        order = permuted(np.arange(100_000), 100_000, key)
        assert np.count_nonzero(np.diff(order) == 1) < 10


def test_draws_are_spread_evenly_and_reach_both_ends() -> None:
    found = np.bincount(drawn(np.arange(100_000), 10, 3), minlength=10)
    # 10,000 each, standard deviation 95
    assert found.min() > 9_500
    assert found.max() < 10_500


def test_keys_depend_on_the_order_of_their_numbers() -> None:
    assert len({key_of(1, 2), key_of(2, 1), key_of(1), key_of(1, 2, 0)}) == 4
