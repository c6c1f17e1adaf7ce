"""Units that come in parts go where they would go in one piece."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.packing.files import cut_files
from corpus_platform.packing.placement import Filled, Placement, Run


def test_a_file_goes_on_where_the_part_before_ended() -> None:
    placement = Placement(10)
    assert placement.place(np.array([4, 3]), np.array([1, 1])) == [Run(0, 0, 0, 0, 2)]
    assert placement.place(np.array([3, 1]), np.array([1, 2])) == [
        Run(0, 7, 2, 0, 1),
        Run(1, 0, 0, 1, 2),
    ]
    assert placement.files == [Filled(10, 3), Filled(1, 2)]


def test_a_unit_longer_than_a_file_gets_one_of_its_own_and_is_counted() -> None:
    placement = Placement(10)
    placement.place(np.array([4, 25]), np.array([1, 1]))
    placement.place(np.array([4]), np.array([1]))
    assert [f.tokens for f in placement.files] == [4, 25, 4]
    assert placement.oversized == 1


def test_units_that_fit_all_go_on_in_the_file_in_any_order() -> None:
    placement = Placement(10)
    placement.place(np.array([4]), np.array([1]))
    assert placement.place_all(3, Filled(6, 5)) == Run(0, 4, 1, 0, 3)
    assert placement.place_all(1, Filled(1, 1)) is None
    assert placement.files == [Filled(10, 6)]
    assert placement.place(np.array([1]), np.array([1])) == [Run(1, 0, 0, 0, 1)]


def test_nothing_makes_one_empty_file() -> None:
    placement = Placement(10)
    assert placement.place(np.zeros(0, np.int64), np.zeros(0, np.int64)) == []
    assert placement.files == [Filled(0, 0)]


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6), st.integers(1, 20))
@settings(deadline=None, max_examples=60)
def test_parts_are_cut_as_the_whole_is(parts: list[list[int]], limit: int) -> None:
    placement, found = Placement(limit), []
    for part in parts:
        if run := placement.place_all(len(part), Filled(sum(part), len(part))):
            found += [run.file] * (run.after - run.first)
            continue
        for run in placement.place(np.array(part, np.int64), np.ones(len(part), np.int64)):
            found += [run.file] * (run.after - run.first)
    whole = np.array([n for part in parts for n in part], dtype=np.int64)
    assert found == cut_files(whole, max_tokens=limit).file.tolist()
    assert sum(f.tokens for f in placement.files) == whole.sum()
