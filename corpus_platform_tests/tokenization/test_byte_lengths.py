"""Tests of the lengths of ids: their sums are the bytes and characters of any text."""

import numpy as np
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.tokenization.byte_lengths import text_lengths
from corpus_platform.tokenization.encoder import encode_texts, read_tokenizer
from corpus_platform.tokenization.training import tokenizer_bytes, train

SPECIAL = ["<|endoftext|>", "<|im_start|>"]
TEXTS = ["the cat and the hat, 机器学习机器学习", "naïve Привет привет 😀😀"] * 20
DATA = tokenizer_bytes(train(iter(TEXTS), vocab_size=330, special_tokens=SPECIAL))


def test_a_letter_is_a_byte_and_an_ideograph_three() -> None:
    lengths, tokenizer = text_lengths(DATA), tokenizers.Tokenizer.from_buffer(DATA)
    ids = tokenizer.encode("a中").ids
    assert (int(lengths.bytes[ids].sum()), int(lengths.chars[ids].sum())) == (4, 2)


def test_control_tokens_stand_for_no_text() -> None:
    lengths = text_lengths(DATA)
    assert [lengths.bytes[i] for i in (0, 1)] == [0, 0]
    assert len(lengths.bytes) == read_tokenizer(DATA).get_vocab_size()
    assert int(np.count_nonzero(lengths.bytes == 0)) == len(SPECIAL)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_sums_over_the_ids_of_a_text_are_its_bytes_and_characters(text: str) -> None:
    lengths = text_lengths(DATA)
    ids = encode_texts(read_tokenizer(DATA), [text]).flat
    assert int(lengths.bytes[ids].sum()) == len(text.encode())
    assert int(lengths.chars[ids].sum()) == len(text)
