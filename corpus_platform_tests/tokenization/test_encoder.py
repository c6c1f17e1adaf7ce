import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import SettingsError
from corpus_platform.tokenization import encoder as module
from corpus_platform.tokenization.encoder import Encoded, load_encoder
from corpus_platform_tests.tokenization.trained import EOS, cat_encoder, trained


def documents(encoded: Encoded) -> list[list[int]]:
    starts = [0, *encoded.ends.tolist()][: len(encoded.ends)]
    return [encoded.flat[a:b].tolist() for a, b in zip(starts, encoded.ends, strict=True)]


def whole(data: bytes, text: str) -> list[int]:
    """Return the ids of one undivided call of the library."""
    return library(data).encode(text, add_special_tokens=False).ids


@functools.lru_cache(maxsize=8)
def library(data: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer as the library reads it, which takes longer than to encode a text."""
    tokenizer = tokenizers.Tokenizer.from_buffer(data)
    tokenizer.encode_special_tokens = True
    return tokenizer


def test_a_text_that_spells_the_end_token_stays_text() -> None:
    texts = ["a <|endoftext|> b", "<|endoftext|>", "plain"]
    encoder = cat_encoder()
    encoded = encoder.encode(texts)
    assert [len(ids) for ids in documents(encoded)] == [17, 13, 5]
    assert encoder.eos_id == 0
    assert 0 not in encoded.flat
    assert [encoder.decode(np.array(ids)) for ids in documents(encoded)] == texts


def test_bytes_never_seen_in_training_come_back() -> None:
    encoder = cat_encoder()
    ids = encoder.encode(["Привет 中🙂\x00"]).flat
    assert len(ids) == 21  # one per UTF-8 byte
    assert encoder.decode(ids) == "Привет 中🙂\x00"


def test_compatibility_forms_are_not_normalised() -> None:
    text = "ﬁ ① Ａ ︰ \u00a0 e\u0301 \u200d x\r\n"
    encoder = cat_encoder()
    ids = encoder.encode([text]).flat
    assert len(ids) == 30
    assert encoder.decode(ids) == text


def test_white_space_at_the_ends_is_kept() -> None:
    texts = ["hello", " hello", "  hello", "\thello\n", "", " "]
    encoder = cat_encoder()
    found = documents(encoder.encode(texts))
    assert [len(ids) for ids in found[:5]] == [4, 5, 6, 6, 0]
    assert len({tuple(ids) for ids in found[:3]}) == 3
    assert [encoder.decode(np.array(ids, dtype=np.uint32)) for ids in found] == texts


def test_the_encoder_says_size_and_fingerprint_of_its_tokenizer() -> None:
    data = trained(("tiny corpus only",) * 3, 32_000)
    encoder = load_encoder(data, eos_token=EOS)
    assert encoder.vocab_size == 270  # 1 special, 256 bytes, 13 merges
    assert encoder.fingerprint == module.fingerprint(data)


def test_the_end_token_is_spelled_out_when_decoded() -> None:
    assert cat_encoder().decode(np.array([0], dtype=np.uint16)) == EOS


def test_no_texts_give_no_ids() -> None:
    encoded = cat_encoder().encode([])
    assert (encoded.flat.dtype, len(encoded.flat)) == (np.uint32, 0)
    assert (encoded.ends.dtype, len(encoded.ends)) == (np.int64, 0)


def test_a_tokenizer_without_end_token_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"no end token '<\|endoftext\|>' among its 2"):
        load_encoder(trained(special_tokens=()), eos_token=EOS)


def test_an_end_token_that_text_can_make_is_refused() -> None:
    written = json.loads(trained())
    written["added_tokens"][0]["special"] = False
    with pytest.raises(SettingsError, match=r"end token '<\|endoftext\|>' is no special token"):
        load_encoder(json.dumps(written).encode(), eos_token=EOS)


def test_control_tokens_are_found_by_name_and_none_means_none() -> None:
    data = trained(special_tokens=SPECIAL_TOKENS)
    encoder = load_encoder(
        data, eos_token=SPECIAL_TOKENS[0], bos_token=SPECIAL_TOKENS[1], pad_token=SPECIAL_TOKENS[3]
    )
    assert (encoder.eos_id, encoder.bos_id, encoder.pad_id) == (0, 1, 3)
    plain = load_encoder(data, eos_token=None)
    assert (plain.eos_id, plain.bos_id, plain.pad_id) == (None, None, None)


@pytest.mark.parametrize(("role", "words"), [("eos", "end"), ("bos", "begin"), ("pad", "padding")])
def test_each_control_token_is_held_against_the_tokenizer(role: str, words: str) -> None:
    asked = {"eos_token": None, f"{role}_token": "cat"}
    with pytest.raises(SettingsError, match=rf"own\.json: the {words} token 'cat' is no special"):
        load_encoder(with_word("cat"), **asked, name="own.json")
    asked[f"{role}_token"] = "<|none|>"
    with pytest.raises(SettingsError, match=rf"own\.json: no {words} token '<\|none\|>' among"):
        load_encoder(trained(), **asked, name="own.json")


def with_word(word: str) -> bytes:
    """Return a tokenizer that has a plain added token."""
    tokenizer = tokenizers.Tokenizer.from_buffer(trained())
    tokenizer.add_tokens([word])
    return tokenizer.to_str().encode()


def test_a_tokenizer_without_special_tokens_serves_where_none_are_asked_for() -> None:
    encoder = load_encoder(trained(special_tokens=()), eos_token=None)
    assert encoder.decode(encoder.encode(["the cat"]).flat) == "the cat"


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]"])
def test_bytes_that_are_no_tokenizer_are_refused(data: bytes) -> None:
    with pytest.raises(SettingsError, match=r"tokenizer\.json: cannot be read"):
        load_encoder(data, eos_token=EOS)


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(deadline=None, max_examples=150)
def test_any_text_comes_back_from_its_ids(texts: list[str]) -> None:
    encoder = cat_encoder()
    found = documents(encoder.encode(texts))
    assert [encoder.decode(np.array(ids, dtype=np.uint32)) for ids in found] == texts


@given(
    st.lists(
        st.text(
            st.sampled_from(
                " \n\r\t\u00a0\u2028\u3000\x1c\u200bthe cat's'll中。，が가²٣é\u03017.-<|>"
            ),
            max_size=60,
        ),
        max_size=4,
    )
)
@settings(deadline=None, max_examples=150)
def test_cutting_at_every_safe_place_leaves_the_ids_as_they_are(texts: list[str]) -> None:
    with mock.patch.multiple(module, PIECE_CHARS=1, BATCH_CHARS=7):
        cut = documents(cat_encoder().encode(texts))
    assert cut == [whole(trained(), text) for text in texts]


def test_no_character_before_a_cut_changes_the_ids() -> None:
    characters = [chr(i) for i in range(0x3100) if not chr(i).isspace()]
    characters += ["中", "한", "\ufeff", "\ufffd", "🙂", "\U000e0001", "\U0010ffff"]
    text = "".join(f"a{c}\nb{c}  c{c} " for c in characters)
    with mock.patch.object(module, "PIECE_CHARS", 1):
        cut = cat_encoder().encode([text]).flat
    assert cut.tolist() == whole(trained(), text)


def test_no_letter_or_mark_of_a_cut_without_a_blank_changes_the_ids() -> None:
    of_classes = re.compile(f"[0-9{module._LETTERS}{module._PUNCTUATION}]")
    characters = [c for i in range(0x10000) if of_classes.fullmatch(c := chr(i))]
    marks = [c for c in characters if not c.isalpha()]
    letters = [c for c in characters if c.isalpha()][::40]
    assert (len(characters), len(marks)) == (38_946, 62)
    text = "".join(f"a{c}1{c}中{c}'s{c}{c}。{c}!" for c in marks + letters)
    with mock.patch.object(module, "PIECE_CHARS", 1):
        cut = cat_encoder().encode([text]).flat
    assert cut.tolist() == whole(trained(), text)


def test_a_tokenizer_with_another_rule_for_words_is_never_given_pieces() -> None:
    tokenizer = tokenizers.Tokenizer.from_buffer(trained())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    data = tokenizer.to_str().encode()
    with mock.patch.object(module, "PIECE_CHARS", 1):
        cut = load_encoder(data, eos_token=EOS).encode(["the cat sat\non"]).flat
    assert cut.tolist() == whole(data, "the cat sat\non")


def pieces_given(text: str) -> list[list[int]]:
    """Return the lengths of pieces in each batch that the engine gets."""
    return [
        [len(piece) for _, piece in batch]
        for batch in module._batches([text], cut=True, chars=module.BATCH_CHARS)
    ]


def test_a_long_document_reaches_the_engine_in_bounded_batches() -> None:
    batches = pieces_given("word and " * 200_000)
    assert sum(map(sum, batches)) == 1_800_000
    assert max(map(sum, batches)) <= module.BATCH_CHARS
    assert max(map(max, batches)) <= module.PIECE_CHARS + len("and ")


@pytest.mark.parametrize("unit", ["文章没有空格，", "aGVsbG8gd29ybGQ5", "x=1;y2"])
def test_a_text_without_blanks_is_cut_between_letters_and_marks_or_digits(unit: str) -> None:
    batches = pieces_given(unit * 200_000)
    assert sum(map(sum, batches)) == len(unit) * 200_000
    assert max(map(max, batches)) <= module.PIECE_CHARS + len(unit)


@pytest.mark.parametrize("letter", ["a", "-", "中"])
def test_a_run_without_a_safe_place_is_one_piece_and_exact(letter: str) -> None:
    text = letter * (module.PIECE_CHARS + 5)
    assert pieces_given(text) == [[module.PIECE_CHARS + 5]]
    encoder = cat_encoder()
    ids = encoder.encode([text]).flat
    assert ids.tolist() == whole(trained(), text)
    assert encoder.decode(ids) == text


def real_texts(shared: Path) -> Iterator[str]:
    with (shared / "corpus" / "crawl=2026-40" / "part-00007.jsonl").open(encoding="utf-8") as lines:
        for line, _ in zip(lines, range(150), strict=False):
            yield json.loads(line)["text"]


def test_real_documents_come_back_and_match_the_library(shared: Path) -> None:
    texts = tuple(real_texts(shared))
    data = trained(texts, 2000, SPECIAL_TOKENS)
    encoder = load_encoder(data, eos_token=EOS)
    with mock.patch.multiple(module, PIECE_CHARS=200, BATCH_CHARS=1000):
        found = documents(encoder.encode(texts))
    assert found == [whole(data, text) for text in texts]
    assert tuple(encoder.decode(np.array(ids, dtype=np.uint32)) for ids in found) == texts
