"""What two sides have in common, counted by hand."""

import numpy as np

from corpus_platform.stages.release_leaks import Common


def _halves(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.array(pairs, np.uint64).reshape(-1, 2).T
    return low, high


def test_what_is_held_often_counts_often_and_what_is_met_often_counts_once() -> None:
    common = Common()
    common.hold(*_halves((1, 1), (2, 2), (1, 1)))
    common.hold(*_halves((1, 1), (3, 3)))
    assert common.meet(*_halves((1, 1), (9, 9), (1, 1), (3, 3))) == 3
    assert (common.met, common.met_times) == (2, 4)


def test_hashes_of_which_one_half_is_alike_are_different() -> None:
    common, same = Common(), 1 << 63
    common.hold(*_halves((same, 5), (same, 2), (same, 9), (7, 7)))
    assert common.meet(*_halves((same, 3), (same, 9), (7, 5), (same, 10))) == 1
    assert common.met == 1
    assert common.meet(*_halves((same, 2), (same, 5), (7, 7))) == 3


def test_nothing_has_nothing_in_common() -> None:
    common = Common()
    assert common.met == common.met_times == 0
    assert common.meet(*_halves((1, 1))) == 0
    common.hold(*_halves())
    assert Common().meet(*_halves()) == 0


def test_sides_of_many_random_hashes_have_in_common_what_sets_have() -> None:
    random = np.random.default_rng(1)
    held, met = (
        random.integers(0, 60, (2, 2_000)).astype(np.uint64) << np.uint64(58) for _ in "ab"
    )
    common = Common()
    common.hold(*held)
    sets = [set(zip(*side.tolist(), strict=True)) for side in (held, met)]
    assert common.meet(*met) == sum(pair in sets[0] for pair in zip(*met.tolist(), strict=True))
    assert common.met == len(sets[0] & sets[1])
