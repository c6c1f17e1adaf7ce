"""Ranges of characters without loss become masks of tokens, by the rule that datatrove has."""

import json
import tracemalloc

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.tokenization.loss import loss_mask, ranges_of, valid_ranges
from corpus_platform_tests.tokenization.trained import cat_encoder, trained

PAIRS = st.lists(
    st.tuples(st.integers(0, 45), st.integers(0, 45)).map(lambda p: (min(p), max(p))), max_size=4
)
TEXTS = st.text(st.sampled_from("the cat sat🙂é中\n "), max_size=40)


def counting(text: str, ranges: list[tuple[int, int]]) -> list[bool]:
    """Return which tokens of a text count."""
    valid, bad = valid_ranges([list(pair) for pair in ranges], chars=len(text))
    assert bad == 0
    return loss_mask(cat_encoder().encode_spanned([text]).last, valid).tolist()


def test_tokens_of_a_range_do_not_count() -> None:
    assert counting("the cat", [(0, 3)]) == [False, True]  # "the", " cat"
    assert counting("the cat", [(3, 7)]) == [True, False]
    assert counting("the cat", []) == [True, True]


def test_a_token_goes_by_its_last_character() -> None:
    assert counting("the cat", [(0, 2)]) == [True, True]  # "the" ends outside
    assert counting("the cat", [(2, 3)]) == [False, True]
    assert counting("the cat", [(3, 6)]) == [True, True]


def test_tokens_of_one_character_go_together() -> None:
    assert counting("a🙂b", [(1, 2)]) == [True, False, False, False, False, True]
    assert counting("a🙂b", [(0, 1)]) == [False, True, True, True, True, True]


def test_an_empty_range_masks_nothing_and_overlapping_ones_mask_once() -> None:
    assert counting("the cat", [(2, 2)]) == [True, True]
    assert counting("the cat", [(0, 3), (0, 3), (2, 7)]) == [False, False]


def test_a_token_of_no_character_counts() -> None:
    assert loss_mask(np.array([-1, 0]), [(0, 5)]).tolist() == [True, False]


def test_a_mask_takes_memory_by_tokens_and_not_by_the_characters_of_the_text() -> None:
    last = np.arange(0, 50_000_000, 100_000)
    tracemalloc.start()
    loss = loss_mask(last, [(10_000_000, 20_000_000), (0, 1), (10, 20)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.flatnonzero(~loss).tolist() == [0, *range(100, 200)]
    assert peak < 100_000


def datatrove_mask(text: str, ranges: list[tuple[int, int]]) -> list[bool]:
    """Return which tokens count by datatrove's rule (from the first token that holds the start to
    the one that holds the end), without cutting off the tokens after a range that reaches the end."""
    tokenizer = tokenizers.Tokenizer.from_buffer(trained())
    encoding = tokenizer.encode(text)
    loss = np.ones(len(encoding.ids))
    for start, end in ranges:
        if start < len(text):  # no token holds a later one: datatrove would mask from the beginning
            loss[encoding.char_to_token(start) : encoding.char_to_token(end)] = 0
    return [bool(value) for value in loss]


@given(TEXTS, PAIRS)
@settings(deadline=None, max_examples=60)
def test_the_mask_is_that_of_datatrove(text: str, ranges: list[tuple[int, int]]) -> None:
    assert counting(text, ranges) == datatrove_mask(text, ranges)


@given(TEXTS, PAIRS)
@settings(deadline=None, max_examples=60)
def test_the_mask_is_that_of_looking_at_each_token(
    text: str, ranges: list[tuple[int, int]]
) -> None:
    last = cat_encoder().encode_spanned([text]).last.tolist()
    slow = [not any(start <= character < end for start, end in ranges) for character in last]
    assert counting(text, ranges) == slow


@pytest.mark.parametrize(
    ("given", "ranges", "bad"),
    [
        ([], [], 0),
        ([[0, 3], [5, 10]], [(0, 3), (5, 10)], 0),
        ([[5, 99], [10, 10**30]], [(5, 10), (10, 10)], 0),
        ([[3, 2], [-1, 2], [1], [1, 2, 3], 7, None, [1, None]], [], 7),
        ([[True, 2], [0.0, 2], ["0", 2], [2, 4]], [(2, 4)], 3),
        ({"start": 0}, [], 1),
        ("0-3", [], 1),
        (7, [], 1),
        (False, [], 1),
    ],
)
def test_ranges_are_cut_to_the_text_and_bad_ones_counted(
    given: object, ranges: list[tuple[int, int]], bad: int
) -> None:
    assert valid_ranges(given, chars=10) == (ranges, bad)


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ("{}", None),
        ('{"source": "x"}', None),
        ('{"no_loss_ranges": null}', None),
        ('{"no_loss_ranges": [[0, 4]], "x": 1}', [[0, 4]]),
        ('{"no_loss_ranges": []}', []),
        (json.dumps({"note": 'the field "no_loss_ranges"'}), None),
        ('{"inner": {"no_loss_ranges": [[0, 4]]}}', None),
    ],
)
def test_ranges_are_the_field_of_the_record_itself(meta: str, found: object) -> None:
    assert ranges_of(meta) == found


@pytest.mark.parametrize(
    "meta",
    [
        f'{{"no_loss_ranges":[[0,1{"0" * 5000}]]}}',
        f'{{"no_loss_ranges":[[0,10]],"x":-1{"0" * 5000}}}',
    ],
    ids=["in a range", "elsewhere"],
)
def test_a_number_of_five_thousand_digits_is_read(meta: str) -> None:
    """Cleaned records keep all digits, and Python by itself reads 4,300 at most."""
    assert valid_ranges(ranges_of(meta), chars=7) == ([(0, 7)], 0)


def test_a_large_negative_number_is_no_offset() -> None:
    meta = f'{{"no_loss_ranges":[[-1{"0" * 5000},3]]}}'
    assert valid_ranges(ranges_of(meta), chars=7) == ([], 1)
