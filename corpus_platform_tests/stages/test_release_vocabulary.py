"""Tests of how many tokens train has hardly any of: the slow obvious count says the same."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_platform.stages.release_vocabulary import Occurrences, vocabulary_of
from corpus_platform.tokenization.byte_lengths import TextLengths, text_ids
from corpus_platform.tokenization.encoder import read_tokenizer
from corpus_platform.tokenization.training import tokenizer_bytes, train

DATA = tokenizer_bytes(
    train(iter(["the cat and the hat, 机器学习机器学习"] * 20), vocab_size=300, special_tokens=["<e>", "<pad>"])
)  # fmt: skip


def _lengths(size: int) -> TextLengths:
    """Each id is as long as it says."""
    return TextLengths(np.arange(size), np.arange(size))


def _plain(ids: list[int], blocks: list[list[int]]) -> dict[str, float]:
    counts = Counter(token for block in blocks for token in block)
    rare = [i for i in ids if counts[i] < 5]
    listed = {f"rare_token/{i}": counts[i] for i in sorted(rare, reverse=True)[:20]}
    never = sum(counts[i] == 0 for i in rare)
    return {
        "vocabulary": len(ids),
        "vocabulary_rare": len(rare),
        "vocabulary_never": never,
        **listed,
    }


@given(
    ids=st.lists(st.integers(0, 40), unique=True, min_size=1).map(sorted),
    blocks=st.lists(st.lists(st.integers(0, 45), max_size=60), max_size=8),
    wide=st.booleans(),
)
def test_counts_are_those_of_all_tokens_in_any_blocks(
    ids: list[int], blocks: list[list[int]], wide: bool
) -> None:
    found = Occurrences(np.array(ids))
    for block in blocks:
        found.add(np.array(block, np.uint32 if wide else np.uint16))
    assert found.numbers(_lengths(50)) == _plain(ids, blocks)


@pytest.mark.parametrize("before", [4, 5])
def test_five_occurrences_are_enough_and_four_are_not(before: int) -> None:
    """Few enough are rare to be looked for one by one."""
    found = Occurrences(np.arange(3))
    found.add(np.array([0] * 5 + [1] * before + [2] * 5, np.uint16))
    found.add(np.array([0, 2], np.uint16))
    assert found.numbers(_lengths(3)) == {
        "vocabulary": 3,
        "vocabulary_rare": 5 - before,
        "vocabulary_never": 0,
        **({"rare_token/1": 4} if before == 4 else {}),
    }


def test_ids_beyond_two_bytes_are_told_from_those_that_end_in_the_same_two() -> None:
    found = Occurrences(np.arange(70_000))
    found.add(np.repeat(np.arange(70_000, dtype=np.uint32), 5)[:-5])
    found.add(np.full(2, 69_999, np.uint32))
    numbers = found.numbers(_lengths(70_000))
    assert numbers == {
        "vocabulary": 70_000,
        "vocabulary_rare": 1,
        "vocabulary_never": 0,
        "rare_token/69999": 2,
    }


def test_an_id_that_is_damaged_takes_no_memory_and_is_none_of_the_vocabulary() -> None:
    found = Occurrences(np.arange(10))
    found.add(np.array([2**32 - 1, 3, 11], np.uint32))
    numbers = found.numbers(_lengths(10))
    assert (numbers["vocabulary_rare"], numbers["vocabulary_never"]) == (10, 9)
    assert numbers["rare_token/3"] == 1


def test_nothing_counts_of_a_vocabulary_without_text() -> None:
    found = Occurrences(np.zeros(0, np.int64))
    found.add(np.array([1, 2], np.uint16))
    assert set(found.numbers(_lengths(0)).values()) == {0}


def test_a_text_may_hold_all_tokens_but_control_tokens_and_the_bytes_that_utf_8_never_has() -> None:
    """0xC0, 0xC1 and 0xF5 to 0xFF (RFC 3629) begin too long a form, or what is beyond U+10FFFF."""
    tokenizer, ids = read_tokenizer(DATA), text_ids(DATA)
    size = tokenizer.get_vocab_size()
    others = sorted(set(range(size)) - set(ids.tolist()))
    assert [tokenizer.id_to_token(i) for i in others[:2]] == ["<e>", "<pad>"]
    assert len(others) == 2 + 13
    # GPT-2 shows a byte that can be shown as the same letter of Latin-1.
    letters = {chr(byte) for byte in (0xC0, 0xC1, *range(0xF5, 0x100))}
    assert {tokenizer.id_to_token(i) for i in others[2:]} == letters


def test_the_listed_tokens_have_their_texts_the_longest_first() -> None:
    tokenizer = read_tokenizer(DATA)
    the, with_blank, e = (tokenizer.token_to_id(t) for t in ("the", "Ġthe", "e"))
    numbers = {"vocabulary": 285.0, "vocabulary_rare": 3.0, "vocabulary_never": 1.0}
    listed = {f"rare_token/{i}": float(n) for i, n in ((e, 4), (with_blank, 0), (the, 1))}
    assert vocabulary_of(numbers | listed, DATA) == (
        5,
        285,
        3,
        1,
        [(with_blank, " the", 4, 0), (the, "the", 3, 1), (e, "e", 1, 4)],
    )
