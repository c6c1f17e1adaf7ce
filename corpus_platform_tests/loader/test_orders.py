"""Which window comes when: each once, all legal places, another phase in each epoch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.loader.orders import Order, RandomStarts, Rows, Windows

few = settings(deadline=None, max_examples=60)
CASES = [(17, 8), (16, 8), (9, 8), (8, 8), (0, 8), (100, 16)]


def whole(order: Order, seed: int = 1, epoch: int = 0) -> list[int]:
    """Return an epoch."""
    return order.places(seed, epoch, np.arange(order.count(seed, epoch))).tolist()


def test_pk_06_windows_are_those_that_were_counted_by_hand() -> None:
    assert [len(whole(Windows(n, t))) for n, t in CASES] == [2, 1, 1, 0, 0, 6]
    assert [len(whole(RandomStarts(n, t))) for n, t in CASES] == [2, 1, 1, 0, 0, 6]


@few
@given(st.integers(0, 200), st.integers(1, 20), st.booleans(), st.integers(0, 9))
def test_every_window_comes_once_an_epoch(
    tokens: int, length: int, in_order: bool, epoch: int
) -> None:
    found = whole(Windows(tokens, length, in_order=in_order), epoch=epoch)
    every = list(range(0, tokens - length, length))
    assert (found if in_order else sorted(found)) == every


@few
@given(st.integers(0, 200), st.integers(1, 20), st.integers(0, 30))
def test_with_jitter_windows_lie_side_by_side_from_some_phase_on(
    tokens: int, length: int, epoch: int
) -> None:
    found = sorted(whole(Windows(tokens, length, jitter=True), epoch=epoch))
    if tokens <= length:
        assert found == []
        return
    phase = found[0]
    assert phase < length
    assert found == list(range(phase, tokens - length, length))


def test_jitter_takes_every_phase_in_time() -> None:
    order = Windows(100, 8, jitter=True)
    assert {min(whole(order, epoch=epoch)) for epoch in range(100)} == set(range(8))


def test_random_starts_are_all_places_from_the_first_to_the_last() -> None:
    found = {start for epoch in range(40) for start in whole(RandomStarts(100, 16), epoch=epoch)}
    assert min(found) == 0
    assert max(found) == 83  # whose last label is token 99
    assert len(found) > 75


@pytest.mark.parametrize("order", [Windows(1000, 8), RandomStarts(1000, 8), Rows(100)])
def test_seeds_and_epochs_give_other_orders_and_the_same_ones_again(order: Order) -> None:
    different = [whole(order, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(found) for found in different}) == 4
    assert different[3] == whole(order, 1, 1)


def test_rows_without_an_order_of_their_own_come_as_they_lie() -> None:
    assert whole(Rows(5, in_order=True)) == [0, 1, 2, 3, 4]
    assert sorted(whole(Rows(5))) == [0, 1, 2, 3, 4]


def test_an_order_of_a_corpus_takes_no_memory() -> None:
    """10^15 tokens: a table of its windows would take 4 TB."""
    order = Windows(10**15, 2048)
    places = order.places(1, 0, np.array([0, order.count(1, 0) - 1]))
    assert ((places >= 0) & (places < 10**15 - 2048) & (places % 2048 == 0)).all()
