"""Documents with ranges without loss are encoded among others at the same ids, cut or not."""

import json
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.tokenization import encoder as module
from corpus_platform.tokenization.documents import encode_documents
from corpus_platform.tokenization.encoder import Encoder
from corpus_platform.tokenization.fast import load_fast
from corpus_platform_tests.tokenization.altered import AlteredEncoder
from corpus_platform_tests.tokenization.trained import cat_encoder, trained

TEXTS = ["the cat sat", "", "on the mat", "a🙂b the end", "the mat"]


def engines() -> list[Encoder]:
    """Return the encoders that there are here."""
    try:
        return [cat_encoder(), load_fast(trained(), cat_encoder())]
    except ImportError:
        return [cat_encoder()]


def meta(*ranges: list[int]) -> str:
    return json.dumps({"source": "x", "no_loss_ranges": list(ranges)})


def test_documents_without_the_field_have_no_mask() -> None:
    for encoder in engines():
        found = encode_documents(encoder, cat_encoder(), TEXTS, ["{}"] * 5)
        assert found.loss is None
        assert found.bad_no_loss_ranges == 0
        assert found.flat.tolist() == cat_encoder().encode(TEXTS).flat.tolist()


def test_a_mixed_batch_has_the_ids_and_order_of_a_plain_one() -> None:
    metas = ["{}", meta([0, 1]), meta([0, 3]), "{}", meta([3, 7])]
    wanted = cat_encoder().encode(TEXTS)
    for encoder in engines():
        found = encode_documents(encoder, cat_encoder(), TEXTS, metas)
        assert found.flat.tolist() == wanted.flat.tolist()
        assert found.ends.tolist() == wanted.ends.tolist()
        assert (found.flat.dtype, found.ends.dtype) == (np.uint32, np.int64)
        assert found.loss is not None
        masks = [part.tolist() for part in np.split(found.loss, found.ends[:-1])]
        assert masks[0] == [True] * 3
        assert masks[1] == []
        assert masks[2] == [False, True, True]  # "on", " the", " mat"
        assert all(masks[3])
        assert masks[4] == [True, False]


def test_a_batch_of_documents_with_ranges_alone_is_encoded_too() -> None:
    found = encode_documents(cat_encoder(), cat_encoder(), TEXTS[:2], [meta([0, 11]), meta()])
    assert found.loss is not None
    assert not found.loss.any()
    assert found.ends.tolist() == [3, 3]


def test_ranges_that_mask_nothing_leave_no_mask_and_bad_ones_are_counted() -> None:
    metas = [meta([4, 4], [9, 3]), "{}", meta([0, True]), '{"no_loss_ranges": 7}', "{}"]
    found = encode_documents(cat_encoder(), cat_encoder(), TEXTS, metas)
    assert found.loss is None
    assert found.bad_no_loss_ranges == 3


def test_a_document_with_ranges_is_encoded_by_the_reference() -> None:
    spoiled = AlteredEncoder(cat_encoder(), "the cat")
    found = encode_documents(spoiled, cat_encoder(), ["the cat"], [meta([0, 3])])
    assert found.flat.tolist() == cat_encoder().encode(["the cat"]).flat.tolist()


@given(
    st.text(st.sampled_from("the cat 🙂é中\n "), max_size=80),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 20)), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=60)
def test_a_text_that_is_cut_into_pieces_has_the_mask_of_the_whole(
    text: str, places: list[tuple[int, int]]
) -> None:
    metas = ["{}", meta(*([start, start + length] for start, length in places))]
    texts = ["the cat sat", text]
    whole = encode_documents(cat_encoder(), cat_encoder(), texts, metas)
    with mock.patch.multiple(module, PIECE_CHARS=1, BATCH_CHARS=7):
        cut = encode_documents(cat_encoder(), cat_encoder(), texts, metas)
    assert [part if part is None else np.asarray(part).tolist() for part in cut] == [
        part if part is None else np.asarray(part).tolist() for part in whole
    ]


@pytest.mark.parametrize("trimming", [True, False])
def test_blanks_that_a_tokenizer_would_trim_off_offsets_are_none_of_the_matter(
    *, trimming: bool
) -> None:
    written = json.loads(trained())
    written["post_processor"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trimming, "use_regex": True}  # fmt: skip
    encoder = module.load_encoder(json.dumps(written).encode(), eos_token=None)
    assert encoder.encode_spanned(["the  cat\n\n"]).last.tolist() == [2, 3, 7, 8, 9]
