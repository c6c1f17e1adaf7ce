"""A sweep meets every code point, and names the first text on which two engines differ."""

from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
import pytest

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import EngineFailed
from corpus_platform.tokenization import exactness
from corpus_platform.tokenization.encoder import Encoded, Encoder, HuggingFaceEncoder, load_encoder
from corpus_platform.tokenization.exactness import Difference, differing, sweep
from corpus_platform.tokenization.fast import load_fast
from corpus_platform_tests.tokenization.altered import AlteredEncoder
from corpus_platform_tests.tokenization.trained import cat_encoder, trained


@pytest.fixture(autouse=True)
def few_probes() -> Iterator[None]:
    """A thousand code points, and runs of a thousand characters."""
    few = ((range(0x600), exactness.CONTEXTS),)
    with mock.patch.multiple(exactness, CODE_POINTS=few, LONG=1000):
        yield


def swept(engine: Encoder, documents: Sequence[str] = ()) -> Difference | None:
    return sweep(cat_encoder(), engine, documents=documents, progress=lambda done, total: None)


def test_the_reference_is_equal_to_itself_and_progress_ends_at_the_total() -> None:
    heard: list[tuple[int, int]] = []
    documents = ["the cat", "sat on"]
    found = sweep(
        cat_encoder(),
        cat_encoder(),
        documents=documents,
        progress=lambda done, total: heard.append((done, total)),
    )
    assert found is None
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] > 1000


@pytest.mark.parametrize("code", [0x5D0, 0xAD, 0x1])
def test_a_single_code_point_that_differs_is_named(code: int) -> None:
    found = swept(AlteredEncoder(cat_encoder(), f"!{chr(code)}{chr(code)}"))
    assert found is not None
    assert found.where == f"code point U+{code:04X}"
    assert found.found is not None
    assert found.found[0] == found.wanted[0] + 1
    assert chr(code) in found.text


@pytest.mark.parametrize(
    ("spoiled", "where"),
    [
        ("a" * 1000, "a run of 'a'"),
        ("\u200d\U0001f467", "family_emoji"),
        ("\ufffd\ufffd", "random bytes"),
        ("<|endoftext|><|endoftext|>", "the spelling of <|endoftext|>"),
        ("of the cat", "a document"),
    ],
)
def test_a_text_that_differs_is_named_by_its_kind(spoiled: str, where: str) -> None:
    found = swept(AlteredEncoder(cat_encoder(), spoiled), ["plain", "tail of the cat"])
    assert found is not None
    assert found.where == where


def test_a_difference_is_told_in_one_line_however_long_the_text() -> None:
    words = str(Difference("a run", "中" * 1000, np.arange(100), np.array([7])))
    assert words.startswith("a run: '\\u4e2d")
    assert "940 more characters" in words
    assert "[0, 1, 2" in words
    assert "100 in all] to the reference, [7] to the engine" in words
    assert len(words) < 700


def test_an_engine_that_gives_up_differs() -> None:
    class Tired(AlteredEncoder):
        def encode(self, texts: Sequence[str]) -> Encoded:
            raise EngineFailed("too many steps")

    found = swept(Tired(cat_encoder(), ""))
    assert found is not None
    assert "too many steps" in str(found)


def test_documents_differ_where_their_ids_do_and_not_where_only_others_are_longer() -> None:
    wanted = Encoded(np.array([1, 2, 3, 4]), np.array([1, 3, 4]))
    found = Encoded(np.array([1, 2, 2, 3, 4]), np.array([1, 4, 5]))
    assert differing(wanted, found) == [1]


@pytest.mark.slow
def test_every_code_point_but_surrogates_is_probed() -> None:
    with mock.patch.object(exactness, "CODE_POINTS", (*exactness.PLANES, *exactness.REST)):
        text = "".join("".join(texts) for _, texts in exactness._code_points())
    found = np.bincount(np.frombuffer(text.encode("utf-32-le"), "<u4"), minlength=0x110000)
    assert found[0xD800:0xE000].sum() == 0
    assert found[:0xD800].min() == found[0xE000:0x40000].min() == 5
    assert found[0xE0000:0xF0000].min() == 5
    assert found[0x40000:].min() == 1


@pytest.mark.slow
@pytest.mark.parametrize("single_digits", [False, True])
def test_fastokens_is_exact_for_our_tokenizers(*, single_digits: bool) -> None:
    pytest.importorskip("fastokens", reason="needs corpus-platform[fast]")
    texts = ("the cat sat on the mat", "ein Tag in 北京", "12345 and 2024")
    data = trained(texts, 400, SPECIAL_TOKENS, single_digits=single_digits)
    reference: HuggingFaceEncoder = load_encoder(data, eos_token=SPECIAL_TOKENS[0])
    whole = (*exactness.PLANES, *exactness.REST)
    with mock.patch.multiple(exactness, CODE_POINTS=whole, LONG=100_000):
        found = sweep(
            reference, load_fast(data, reference), documents=(), progress=lambda done, total: None
        )
    assert found is None
