"""Random orders pass, and every order that somebody might take for one does not."""

import numpy as np
import pytest

from corpus_platform.packing.randomness import randomness

SHARDS = np.repeat(np.arange(4), 250)
PLACES = np.arange(1000)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_order_is_within_three_standard_errors(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(1000)
    assert randomness(PLACES[order], SHARDS[order]).sigmas < 3.5


@pytest.mark.parametrize(
    "order",
    [
        PLACES,
        PLACES[::-1],
        PLACES.reshape(4, 250).T.ravel(),  # in turns through the shards
        np.concatenate([np.random.default_rng(1).permutation(250) + 250 * i for i in (2, 0, 3, 1)]),
    ],
    ids=["as it was", "backwards", "in turns", "shuffled inside shards only"],
)
def test_an_order_that_is_none_is_far_off(order: np.ndarray) -> None:
    assert randomness(PLACES[order], SHARDS[order]).sigmas > 10


def test_the_statistics_are_those_worked_out_by_hand() -> None:
    found = randomness(np.array([3, 1, 2, 0]), np.array([1, 0, 1, 0]))
    assert found.rank_correlation == pytest.approx(-0.8)  # 1 - 6 (9 + 0 + 0 + 9) / (4 * 15)
    assert (found.neighbours, found.expected_neighbours) == (0, 1.0)  # 3 pairs, a third of them
    assert found.sigmas == 0.0


def test_one_shard_alone_has_all_neighbours_of_one_source() -> None:
    order = np.random.default_rng(7).permutation(500)
    found = randomness(order, np.zeros(500, np.int64))
    assert (found.neighbours, found.expected_neighbours) == (499, 499.0)
    assert found.sigmas < 4


def test_nothing_is_in_order() -> None:
    assert randomness(np.zeros(0), np.zeros(0)).sigmas == 0.0
