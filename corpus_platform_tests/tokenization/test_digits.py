"""Each digit a token of its own: in training, encoding by either engine, and what is made of ids."""

import json
from unittest import mock

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.tokenization import encoder as module
from corpus_platform.tokenization.acceptance import HOSTILE, examine
from corpus_platform.tokenization.byte_lengths import text_lengths
from corpus_platform.tokenization.encoder import HuggingFaceEncoder, is_cuttable, load_encoder
from corpus_platform.tokenization.fast import load_fast
from corpus_platform_tests.tokenization.trained import EOS, NUMBERS, digits_encoder, trained

SINGLY = trained(NUMBERS, 320, single_digits=True)
TEXTS = st.text(st.sampled_from(" \n\t\u00a0the cat's中。،가²½٣ⅷ0123456789é\u0301.-"), max_size=60)


def tokens(encoder: HuggingFaceEncoder, text: str) -> list[str]:
    return [encoder.decode(np.array([i])) for i in encoder.encode([text]).flat]


def test_a_number_of_five_digits_is_five_tokens_and_comes_back() -> None:
    encoder = digits_encoder()
    assert tokens(encoder, "12345") == ["1", "2", "3", "4", "5"]
    assert tokens(encoder, "in 12345.") == ["in", " ", "1", "2", "3", "4", "5", "."]
    assert encoder.decode(encoder.encode(["12345"]).flat) == "12345"


def test_together_a_frequent_number_is_one_token() -> None:
    encoder = load_encoder(trained(NUMBERS, 320), eos_token=EOS)
    assert tokens(encoder, " 12345") == [" 12345"]


def test_no_token_holds_a_digit_and_anything_else() -> None:
    vocabulary = json.loads(SINGLY)["model"]["vocab"]
    digits = sorted(t for t in vocabulary if any(c in "0123456789" for c in t))
    assert digits == [*"0123456789"]


def test_a_tokenizer_with_digits_together_has_the_bytes_that_it_always_had() -> None:
    plain = tokenizers.Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(NUMBERS, trainer)
    assert trained(NUMBERS, 320) == (plain.to_str(pretty=True) + "\n").encode()


def test_the_acceptance_finds_nothing() -> None:
    data = trained(NUMBERS, 320, SPECIAL_TOKENS, single_digits=True)
    found = examine(data, [*NUMBERS, "7" * 500], special_tokens=SPECIAL_TOKENS)
    assert (found.round_trip_failures, found.hostile_failures) == (0, ())
    assert (found.missing_bytes, found.duplicate_ids, found.missing_ids) == (0, 0, 0)
    assert (found.specials_made_of_text, found.texts_with_special_ids) == ((), 0)
    assert found.fertility["und"].tokens > 500


@given(TEXTS)
@settings(deadline=None, max_examples=100)
def test_lengths_of_ids_add_up_to_those_of_the_text(text: str) -> None:
    lengths, flat = text_lengths(SINGLY), digits_encoder().encode([text]).flat
    assert int(lengths.bytes[flat].sum()) == len(text.encode())
    assert int(lengths.chars[flat].sum()) == len(text)


@given(st.lists(TEXTS, max_size=4))
@settings(deadline=None, max_examples=150)
def test_long_texts_are_cut_where_that_leaves_the_ids_as_they_are(texts: list[str]) -> None:
    encoder = digits_encoder()
    assert is_cuttable(encoder.tokenizer)
    with mock.patch.multiple(module, PIECE_CHARS=1, BATCH_CHARS=7):
        cut = encoder.encode(texts)
    plain = [encoder.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert cut.flat.tolist() == [i for ids in plain for i in ids]


def test_digits_by_another_rule_are_never_given_pieces() -> None:
    written = json.loads(SINGLY)
    written["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{N}+|\P{N}+"
    assert not is_cuttable(load_encoder(json.dumps(written).encode(), eos_token=None).tokenizer)


@given(st.lists(TEXTS, min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_the_fast_engine_makes_the_same_ids(texts: list[str]) -> None:
    pytest.importorskip("fastokens", reason="needs corpus-platform[fast]")
    reference = digits_encoder()
    every = [*texts, *HOSTILE.values(), "0" * 300]
    wanted, found = reference.encode(every), load_fast(SINGLY, reference).encode(every)
    assert np.array_equal(wanted.flat, found.flat)
    assert np.array_equal(wanted.ends, found.ends)


def test_ends_of_tokens_in_the_text_are_those_of_the_digits() -> None:
    spanned = digits_encoder().encode_spanned(["a 12"])
    assert spanned.last.tolist() == [0, 1, 2, 3]
