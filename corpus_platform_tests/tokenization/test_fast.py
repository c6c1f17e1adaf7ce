"""The fast engine makes the ids of the reference, and ends cleanly where it cannot."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import EngineFailed, MissingExtra, StageFailed
from corpus_platform.tokenization import encoder as module
from corpus_platform.tokenization.acceptance import HOSTILE
from corpus_platform.tokenization.encoder import Encoder
from corpus_platform.tokenization.fast import BATCH_CHARS, FastEncoder, load_fast
from corpus_platform_tests.tokenization.trained import EOS, cat_encoder, trained

pytest.importorskip("fastokens", reason="needs corpus-platform[fast]")


def fast() -> FastEncoder:
    return load_fast(trained(), cat_encoder())


def ids(encoder: Encoder, texts: Sequence[str]) -> list[list[int]]:
    flat, ends = encoder.encode(texts)
    return [part.tolist() for part in np.split(flat, ends[:-1])] if len(ends) else []


def test_hostile_texts_have_the_ids_of_the_reference() -> None:
    texts = [*HOSTILE.values(), EOS, f"a {EOS} b{EOS}", EOS * 3]
    assert ids(fast(), texts) == ids(cat_encoder(), texts)


def test_a_text_that_spells_the_end_token_stays_text() -> None:
    assert 0 not in fast().encode([f"a {EOS} b", EOS]).flat


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(deadline=None, max_examples=60)
def test_any_text_has_the_ids_of_the_reference(texts: list[str]) -> None:
    assert ids(fast(), texts) == ids(cat_encoder(), texts)


def test_cutting_at_every_safe_place_leaves_the_ids_as_they_are() -> None:
    texts = ["the cat  sat\n\non the\tmat " * 9, "", "don't  x"]
    wanted = ids(cat_encoder(), texts)
    with mock.patch.object(module, "PIECE_CHARS", 1):
        assert ids(fast(), texts) == wanted


def test_the_ids_are_plain_arrays_of_the_documented_types() -> None:
    flat, ends = fast().encode(["the cat", ""])
    assert (flat.dtype, ends.dtype, ends.tolist()) == (np.uint32, np.int64, [len(flat)] * 2)
    assert fast().decode(flat) == "the cat"


def test_size_fingerprint_and_control_tokens_are_those_of_the_reference() -> None:
    names = ("vocab_size", "fingerprint", "eos_id", "bos_id", "pad_id")
    assert [getattr(fast(), n) for n in names] == [getattr(cat_encoder(), n) for n in names]


@pytest.mark.parametrize("encoder", [fast, cat_encoder])
def test_a_lone_surrogate_is_named_and_ends_the_call(encoder: Callable[[], Encoder]) -> None:
    with pytest.raises(StageFailed, match=r"text 1 of 2 .* character 3 .* U\+DC80"):
        encoder().encode(["whole", "the\udc80"])


def test_a_long_document_reaches_the_engine_in_bounded_calls() -> None:
    engine = fast()
    given: list[int] = []

    def encode(batch: Sequence[tuple[int, str]]) -> module.Encoded:
        given.append(sum(len(piece) for _, piece in batch))
        return FastEncoder._encode(engine, batch)

    with mock.patch.object(engine, "_encode", encode):
        engine.encode(["word and " * 300_000])
    assert sum(given) == 2_700_000
    assert max(given) <= BATCH_CHARS


def test_a_model_that_the_engine_does_not_know_is_refused() -> None:
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)], unk_id=0))
    with pytest.raises(EngineFailed, match=r"fastokens cannot use this tokenizer: .*Unigram"):
        load_fast(unigram.to_str().encode(), cat_encoder())


def test_padding_and_cutting_that_a_file_asks_for_are_left_out() -> None:
    written = json.loads(trained())
    written["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}  # fmt: skip
    data = json.dumps(written).encode()
    reference = module.load_encoder(data, eos_token=EOS)
    assert len(reference.encode(["the cat sat"]).flat) == 3
    assert ids(load_fast(data, reference), ["the cat sat"]) == ids(reference, ["the cat sat"])


def test_without_the_package_the_pip_line_is_told() -> None:
    with (
        mock.patch.dict(sys.modules, {"fastokens": None}),
        pytest.raises(MissingExtra, match=r"pip install 'corpus-platform\[fast\]'"),
    ):
        fast()


MEMORY = """
import sys
from corpus_platform.tokenization.fast import load_fast
from corpus_platform_tests.tokenization.trained import cat_encoder, trained
def peak(): return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) >> 10
engine, text = load_fast(trained(), cat_encoder()), eval(sys.argv[1])
engine.encode(["the cat"])
before = peak()
engine.encode([text])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "limit"),
    [("'the cat sat on the mat ' * 435_000", 200), ("'a' * 10_000_000", 700)],
    ids=["words", "one run"],
)
def test_ten_million_characters_take_bounded_memory(text: str, limit: int) -> None:
    command = [sys.executable, "-c", MEMORY, text]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(found.stdout) < limit
