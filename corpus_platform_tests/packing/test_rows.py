"""Plans of rows keep every token, cut no document that fits, and are those of the slow packers."""

import math
from collections.abc import Callable
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import UsageError
from corpus_platform.packing.rows import RowPlan, best_fit, pad, permuted, plan_rows

Planner = Callable[..., RowPlan]
planners = pytest.mark.parametrize("planner", [best_fit, pad])
few = settings(deadline=None, max_examples=40)


def documents(row_tokens: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[list[int], int]]:
    """Draw a row length, and lengths around its multiples."""
    return row_tokens.flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 3 * n + 1) | st.sampled_from([0, 1, n - 1, n, n + 1, 2 * n])),
            st.just(n),
        )
    )


def rows_of(plan: RowPlan) -> list[list[tuple[int, int, int]]]:
    """Return (document, offset, length) of the pieces of each row."""
    pieces = [*zip(*(part.tolist() for part in plan[:3]), strict=True)]
    ends = [0, *plan.row_ends.tolist()]
    return [pieces[a:b] for a, b in pairwise(ends)]


def best_fit_decreasing(sizes: list[int], room: int) -> int:
    """Return the rows of the textbook's algorithm, piece by piece."""
    left: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [i for i, free in enumerate(left) if free >= size]
        if fitting:
            left[min(fitting, key=left.__getitem__)] -= size
        else:
            left.append(room - size)
    return len(left)


def first_fit_decreasing(sizes: list[int], room: int) -> int:
    """Return the rows that open when each piece goes into the first that takes it."""
    left: list[int] = []
    for size in sorted(sizes, reverse=True):
        at = next((i for i, free in enumerate(left) if free >= size), None)
        if at is None:
            left.append(room - size)
        else:
            left[at] -= size
    return len(left)


def fewest(sizes: list[int], room: int) -> int:
    """Return the least number of rows there can be, by trying all."""
    sizes, best = sorted(sizes, reverse=True), len(sizes)

    def place(number: int, left: list[int]) -> None:
        nonlocal best
        if len(left) >= best:
            return
        if number == len(sizes):
            best = len(left)
            return
        for free in {*left}:
            if free >= sizes[number]:
                at = left.index(free)
                place(number + 1, [*left[:at], free - sizes[number], *left[at + 1 :]])
        place(number + 1, [*left, room - sizes[number]])

    place(0, [])
    return best


def tails(lengths: list[int], room: int) -> list[int]:
    return [n % room for n in lengths if n % room]


def test_documents_that_fill_rows_together_share_them() -> None:
    plan = best_fit(np.array([6, 3, 4, 7]), row_tokens=10)
    assert rows_of(plan) == [[(1, 0, 3), (3, 0, 7)], [(0, 0, 6), (2, 0, 4)]]


def test_a_long_document_takes_whole_rows_and_its_tail_is_packed() -> None:
    plan = best_fit(np.array([4, 25, 10]), row_tokens=10)
    assert rows_of(plan) == [[(1, 0, 10)], [(1, 10, 10)], [(2, 0, 10)], [(0, 0, 4), (1, 20, 5)]]


def test_padding_gives_each_document_its_own_rows() -> None:
    plan = pad(np.array([4, 0, 25, 10]), row_tokens=10)
    assert rows_of(plan) == [
        [(0, 0, 4)],
        [(2, 0, 10)],
        [(2, 10, 10)],
        [(2, 20, 5)],
        [(3, 0, 10)],
    ]


def test_rows_go_by_their_keys_and_then_by_their_number() -> None:
    plan = best_fit(np.array([6, 3, 4, 7, 10]), row_tokens=10)
    moved = permuted(plan, np.array([2**63 + 1, 2**63, 2**63], dtype=np.uint64))
    assert rows_of(moved) == [[(1, 0, 3), (3, 0, 7)], [(0, 0, 6), (2, 0, 4)], [(4, 0, 10)]]


@planners
def test_no_document_and_empty_ones_make_no_row(planner: Planner) -> None:
    for lengths in ([], [0, 0, 0]):
        plan = planner(np.array(lengths, dtype=np.int32), row_tokens=7)
        assert rows_of(plan) == []
        assert {part.dtype for part in plan} == {np.dtype(np.int64)}
        assert rows_of(permuted(plan, np.zeros(0, dtype=np.uint64))) == []


@planners
def test_rows_of_one_token_take_a_document_apart(planner: Planner) -> None:
    plan = planner(np.array([2, 0, 1]), row_tokens=1)
    assert rows_of(plan) == [[(0, 0, 1)], [(0, 1, 1)], [(2, 0, 1)]]


def test_a_row_longer_than_all_documents_takes_all() -> None:
    plan = best_fit(np.array([1, 70_000, 0, 3_000_000_000]), row_tokens=10**13)
    assert rows_of(plan) == [[(0, 0, 1), (1, 0, 70_000), (3, 0, 3_000_000_000)]]


@planners
def test_lengths_beyond_32_bits_are_cut_where_they_should(planner: Planner) -> None:
    half = 2**32
    plan = planner(np.array([2 * half + 1, half - 1]), row_tokens=half)
    assert rows_of(plan)[:2] == [[(0, 0, half)], [(0, half, half)]]
    assert sorted(chain(*rows_of(plan)[2:])) == [(0, 2 * half, 1), (1, 0, half - 1)]


@planners
@pytest.mark.parametrize("row_tokens", [0, -1])
def test_a_row_without_tokens_is_refused(planner: Planner, row_tokens: int) -> None:
    with pytest.raises(UsageError, match=f"rows of {row_tokens} tokens: a row holds at least 1"):
        planner(np.array([1]), row_tokens=row_tokens)


@planners
def test_a_negative_length_is_refused_by_its_document(planner: Planner) -> None:
    with pytest.raises(UsageError, match="document 1 of -3 tokens"):
        planner(np.array([1, -3]), row_tokens=8)


def test_a_strategy_is_chosen_by_its_name() -> None:
    lengths = np.array([3, 3])
    assert rows_of(plan_rows("best_fit", lengths, 6)) == [[(0, 0, 3), (1, 0, 3)]]
    assert rows_of(plan_rows("pad", lengths, 6)) == [[(0, 0, 3)], [(1, 0, 3)]]
    with pytest.raises(UsageError, match="strategy 'concat' makes no rows"):
        plan_rows("concat", lengths, 6)


@planners
@given(drawn=documents(st.sampled_from([1, 2, 3, 8, 20, 100, 4095, 4096, 65_536, 10**9])))
@few
def test_every_token_lies_in_one_row_once(planner: Planner, drawn: tuple[list[int], int]) -> None:
    lengths, row_tokens = drawn
    plan = planner(np.array(lengths, dtype=np.int64), row_tokens=row_tokens)
    rows = rows_of(plan)
    assert all(rows)
    assert all(sum(n for _, _, n in row) <= row_tokens for row in rows)
    assert [[d for d, _, _ in row] for row in rows] == [sorted({d for d, _, _ in r}) for r in rows]
    found = sorted(piece for row in rows for piece in row)
    expected = [
        (d, at, min(row_tokens, n - at))
        for d, n in enumerate(lengths)
        for at in range(0, n, row_tokens)
    ]
    assert found == expected  # whole rows and a tail, contiguous


@given(documents(st.integers(1, 60)))
@few
def test_there_are_the_rows_of_a_piece_by_piece_fit(drawn: tuple[list[int], int]) -> None:
    lengths, row_tokens = drawn
    expected = sum(n // row_tokens for n in lengths)
    expected += best_fit_decreasing(tails(lengths, row_tokens), row_tokens)
    assert len(best_fit(np.array(lengths, dtype=int), row_tokens=row_tokens).row_ends) == expected


@given(st.integers(4, 30).flatmap(lambda n: st.tuples(st.lists(st.integers(1, n), max_size=9), st.just(n))))  # fmt: skip
@few
def test_rows_are_within_eleven_ninths_of_the_fewest(drawn: tuple[list[int], int]) -> None:
    lengths, row_tokens = drawn
    rows = len(best_fit(np.array(lengths, dtype=int), row_tokens=row_tokens).row_ends)
    assert 9 * rows <= 11 * fewest(lengths, row_tokens) + 9


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 20), st.randoms())
@few
def test_rows_in_another_order_are_the_same_rows(lengths, row_tokens, dice) -> None:
    plan = best_fit(np.array(lengths, dtype=int), row_tokens=row_tokens)
    keys = [dice.randrange(2**64) for _ in plan.row_ends]
    expected = [row for _, row in sorted(zip(keys, rows_of(plan), strict=True), key=lambda p: p[0])]
    assert rows_of(permuted(plan, np.array(keys, dtype=np.uint64))) == expected


@pytest.mark.parametrize(
    ("middle", "spread", "row_tokens"),
    [(450, 1.25, 2048), (300, 0.9, 2048), (900, 1.6, 4096)],
    ids=["web", "chat", "code"],
)
def test_texts_take_no_more_rows_than_by_the_slow_packers(
    middle: int, spread: float, row_tokens: int
) -> None:
    drawn = np.random.default_rng(7).lognormal(math.log(middle), spread, 1_500)
    lengths = np.clip(drawn, 8, 50_000).astype(np.int64)
    rows = len(best_fit(lengths, row_tokens=row_tokens).row_ends)
    whole, sizes = int((lengths // row_tokens).sum()), tails(lengths.tolist(), row_tokens)
    assert rows == whole + best_fit_decreasing(sizes, row_tokens)
    assert rows <= whole + first_fit_decreasing(sizes, row_tokens)
    assert lengths.sum() / (rows * row_tokens) > 0.99


def test_rows_of_a_million_tokens_are_those_of_a_piece_by_piece_fit() -> None:
    lengths = np.random.default_rng(0).integers(1, 10**6, 3_000)
    plan = best_fit(lengths, row_tokens=10**6)
    assert len(plan.row_ends) == best_fit_decreasing(lengths.tolist(), 10**6)


def test_equal_lengths_give_equal_plans() -> None:
    lengths = np.random.default_rng(3).integers(0, 900, 2_000)
    first, second = (best_fit(lengths.copy(), row_tokens=512) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
