"""What strategies cost, worked out by hand and position by position."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import UsageError
from corpus_platform.packing.rows import plan_rows
from corpus_platform.packing.utilisation import Utilisation, compare


def test_three_strategies_stand_beside_each_other() -> None:
    # concat: |6 3 1.|.3 7 |.25........| tokens 0-44 in windows of 10; the 4 and the 25 are cut.
    assert compare(np.array([6, 3, 4, 7, 25]), row_tokens=10) == {
        "concat": Utilisation(5, 45, 5, 0.9, cut_documents=2, needless_cuts=1),
        "best_fit": Utilisation(5, 45, 5, 0.9, cut_documents=1, needless_cuts=0),
        "pad": Utilisation(7, 45, 25, 45 / 70, cut_documents=1, needless_cuts=0),
    }


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_no_tokens_take_no_rows(lengths: list[int]) -> None:
    found = compare(np.array(lengths, dtype=np.int64), row_tokens=10)
    assert set(found.values()) == {Utilisation(0, 0, 0, 1.0, 0, 0)}


def test_rows_without_tokens_are_refused() -> None:
    with pytest.raises(UsageError, match="rows of 0 tokens"):
        compare(np.array([1]), row_tokens=0)


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 16))
@settings(deadline=None, max_examples=60)
def test_windows_are_those_that_a_reader_of_the_stream_sees(lengths: list[int], size: int) -> None:
    stream = [number for number, length in enumerate(lengths) for _ in range(length)]
    windows = [stream[at : at + size] for at in range(0, len(stream), size)]
    cut = [n for n in range(len(lengths)) if sum(n in window for window in windows) > 1]
    found = compare(np.array(lengths, dtype=np.int64), row_tokens=size)["concat"]
    assert (found.rows, found.tokens) == (len(windows), len(stream))
    assert found.padding == len(windows) * size - len(stream)
    assert found.cut_documents == len(cut)
    assert found.needless_cuts == sum(lengths[n] <= size for n in cut)


@pytest.mark.parametrize("strategy", ["best_fit", "pad"])
@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 16))
@settings(deadline=None, max_examples=30)
def test_rows_and_cuts_are_those_of_the_plan(strategy: str, lengths: list[int], size: int) -> None:
    array = np.array(lengths, dtype=np.int64)
    found, plan = compare(array, row_tokens=size)[strategy], plan_rows(strategy, array, size)
    pieces = np.bincount(plan.document, minlength=len(lengths))
    assert found.rows == len(plan.row_ends)
    assert found.rows * size == found.tokens + found.padding
    assert found.cut_documents == int((pieces > 1).sum())
    assert found.needless_cuts == int(((pieces > 1) & (array <= size)).sum()) == 0


def test_short_rows_of_long_documents_are_counted_without_a_plan_of_them() -> None:
    found = compare(np.array([2**50, 2**50 + 1]), row_tokens=2)
    assert (found["best_fit"].rows, found["pad"].padding) == (2**50 + 1, 1)
