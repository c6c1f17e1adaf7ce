import json

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import SettingsError
from corpus_platform.tokenization.acceptance import HOSTILE, Fertility, examine
from corpus_platform_tests.tokenization.trained import EOS, trained


def plain(*, alphabet: bool = True, specials: tuple[str, ...] = (EOS,)) -> tokenizers.Tokenizer:
    """Return a byte-level tokenizer made with the library alone."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat"] * 3, trainer)
    return tokenizer


def changed(key: str, value: object) -> bytes:
    return json.dumps(json.loads(trained()) | {key: value}).encode()


def test_a_trained_tokenizer_passes_on_all_counts() -> None:
    data = trained(("the cat sat on the mat",) * 3, 300, SPECIAL_TOKENS)
    found = examine(data, ["Hello world", "机器学习模型训练"], special_tokens=SPECIAL_TOKENS)
    assert found.texts == 2
    # Merges: at, he, the, " the"; two each for " cat", " sat", " mat" and " on".
    assert found.vocab_size == 11 + 256 + 12
    assert found.round_trip_failures == found.missing_bytes == found.duplicate_ids == 0
    assert found.missing_ids == found.texts_with_special_ids == 0
    assert found.hostile_failures == found.missing_special_tokens == ()
    assert found.specials_made_of_text == ()


def test_a_tokenizer_without_the_byte_alphabet_loses_texts() -> None:
    data = plain(alphabet=False).to_str().encode()
    found = examine(data, ["the cat", "Привет 中🙂\x00"], special_tokens=[EOS])
    # " acehmnost" are seen in training, 10 of 256
    assert found.missing_bytes == 246
    assert found.round_trip_failures == 1
    assert "chinese" in found.hostile_failures


def test_a_normalizer_is_found_out_by_the_hostile_texts() -> None:
    found = examine(changed("normalizer", {"type": "NFKC"}), [], special_tokens=[EOS])
    assert "compatibility_forms" in found.hostile_failures
    assert "leading_blank" not in found.hostile_failures


def test_a_prefix_blank_is_found_out_by_the_hostile_texts() -> None:
    tokenizer = plain()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    found = examine(tokenizer.to_str().encode(), ["hello"], special_tokens=[EOS])
    assert found.round_trip_failures == 1
    assert "contractions" in found.hostile_failures


def test_a_missing_special_token_is_named() -> None:
    found = examine(trained(), [], special_tokens=[EOS, "<|im_start|>"])
    assert found.missing_special_tokens == ("<|im_start|>",)


def test_a_special_token_that_shares_an_id_is_counted() -> None:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [EOS, "<|pad|>"]
    tokenizer.add_special_tokens(specials)  # before training: the trainer counts from 0 again
    tokenizer.train_from_iterator(["aa bb"], trainers.BpeTrainer(show_progress=False))
    found = examine(tokenizer.to_str().encode(), [], special_tokens=specials)
    assert found.duplicate_ids == 2


def test_a_hole_in_the_ids_is_counted() -> None:
    written = json.loads(trained())
    del written["model"]["vocab"]["\u0122"]  # how byte 0x80 is written
    found = examine(json.dumps(written).encode(), [], special_tokens=[EOS])
    assert (found.missing_ids, found.missing_bytes) == (1, 1)


def test_a_marker_that_is_not_special_is_made_of_text() -> None:
    written = json.loads(trained())
    written["added_tokens"][0]["special"] = False
    texts = ["plain", f"see {EOS} here"]
    found = examine(json.dumps(written).encode(), texts, special_tokens=[EOS])
    assert found.specials_made_of_text == (EOS,)
    assert found.texts_with_special_ids == 1


def test_a_marker_that_is_an_ordinary_word_is_made_of_text() -> None:
    data = trained(("cat cat cat",), 300, ("cat",))
    assert examine(data, [], special_tokens=["cat"]).specials_made_of_text == ("cat",)


def test_characters_and_bytes_per_token_are_told_by_language() -> None:
    found = examine(
        trained(),
        ["the mat", "中文", "x", ""],
        special_tokens=[EOS],
        languages=["en", "zh", None, "en"],
    )
    # "the", " mat": 2 tokens; each Chinese character is 3 bytes and no merge covers them
    assert found.fertility == {
        "en": Fertility(documents=2, chars=7, bytes=7, tokens=2),
        "und": Fertility(documents=1, chars=1, bytes=1, tokens=1),
        "zh": Fertility(documents=1, chars=2, bytes=6, tokens=6),
    }
    assert found.fertility["en"].chars_per_token == 3.5
    assert found.fertility["zh"].bytes_per_token == 1.0
    assert Fertility(0, 0, 0, 0).chars_per_token == 0.0


def test_a_model_without_a_table_of_ids_is_refused() -> None:
    data = tokenizers.Tokenizer(models.Unigram([("a", 0.0)])).to_str().encode()
    with pytest.raises(SettingsError, match="'Unigram' has no table of ids"):
        examine(data, [], special_tokens=[])


def test_the_hostile_texts_hold_what_tokenizers_change() -> None:
    together = "".join(HOSTILE.values())
    for piece in (
        "\x00",
        "\r\n",
        "\ufeff",
        "\u2028",
        "\u200d",
        " " * 300,
        "ﬁ",
        "e\u0301",
        "ह",
        "ا",
        "ไ",
        "机",
    ):
        assert piece in together
