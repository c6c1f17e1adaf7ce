"""Tests of blocks of documents, and of where two token files differ first."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.formats.token_file import TokenFile
from corpus_platform.stages import export_blocks
from corpus_platform.stages.export_blocks import Span, blocks, first_difference

Documents = list[list[int]]


def _file(documents: Documents, mask: list[int] | None = None, *, ends: bool = True) -> TokenFile:
    tokens = np.array([i for d in documents for i in d], "<u2")
    borders = np.cumsum([len(d) for d in documents], dtype=np.uint64) if ends else None
    loss = None if mask is None else np.array(mask, np.uint8)
    return TokenFile(Path("f"), "native", tokens, borders, loss)


def _span(documents: Documents, mask: list[int] | None = None) -> Span:
    return Span.whole(_file(documents, mask))


@settings(max_examples=60)
@given(
    documents=st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8),
    size=st.integers(1, 12),
    cut=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_blocks_are_the_documents_whatever_their_size(
    documents: Documents, size: int, cut: tuple[int, int]
) -> None:
    begin, end = sorted(min(c, len(documents)) for c in cut)
    whole = _span(documents)
    span = Span("f", whole.tokens, whole.ends, None, begin, end)
    found: Documents = []
    for block in blocks(span, size):
        assert len(block.tokens) <= size or len(block.ends) == 1
        bounds = [0, *block.ends.tolist()]
        found += [block.tokens[a:b].tolist() for a, b in pairwise(bounds)]
    assert found == documents[begin:end]
    assert (span.count, span.documents) == (sum(map(len, found)), len(found))


@settings(max_examples=60)
@given(
    one=st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=5),
    other=st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=5),
    at=st.integers(0, 5),
)
def test_files_differ_where_their_documents_do(one: Documents, other: Documents, at: int) -> None:
    spans = [_span(other[:at]), _span(other[at:])]
    assert (first_difference(_file(one), spans) is None) == (one == other)
    kept = [[d for d in side if d] for side in (one, other)]
    same = first_difference(_file(kept[0]), spans, empty=False) is None
    assert same == (kept[0] == kept[1])


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ([[5, 6], [7]], [[5, 6], [8]], "document 1 of f, token 0 of it (token 2 here): 7 here and 8 there"),
        ([[5, 6, 7]], [[5, 6], [7]], "document 0 ends at token 3 here and at 2 there"),
        ([[5, 6], [7]], [[5, 6], [7], []], "2 documents, not 3"),
        ([[5, 6], [7]], [[5, 6]], "3 tokens, not 2"),
        ([[5, 6]], [[5, 6], [7]], "2 tokens, not 3"),
        ([], [], None),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(
    here: Documents, there: Documents, words: str | None
) -> None:
    assert first_difference(_file(here), [_span(there)]) == words


def test_masks_are_compared_and_none_is_one_of_ones() -> None:
    documents = [[5, 6], [7]]
    assert first_difference(_file(documents, [1, 1, 1]), [_span(documents)]) is None
    assert first_difference(_file(documents), [_span(documents, [1, 1, 1])]) is None
    words = "document 1 of f, token 0 of it (token 2 here): counts there and not here"
    assert first_difference(_file(documents, [1, 1, 0]), [_span(documents)]) == words
    words = "document 0 of f, token 1 of it (token 1 here): counts here and not there"
    assert first_difference(_file(documents), [_span(documents, [1, 0, 1])]) == words
    assert first_difference(_file(documents), [_span(documents, [1, 0, 1])], masks=False) is None


def test_a_file_without_documents_is_compared_by_tokens_and_named_by_the_other_side() -> None:
    bare = _file([[5, 6, 7]], ends=False)
    assert first_difference(bare, [_span([[5, 6], [7]])]) is None
    assert first_difference(_file([[5, 6], [7]]), [Span.whole(bare)]) is None
    words = "document 1, token 0 of it (token 2 here): 8 here and 7 there"
    assert first_difference(_file([[5, 6], [8]]), [Span.whole(bare)]) == words
    words = "token 2: 8 here and 7 there"
    assert first_difference(_file([[5, 6, 8]], ends=False), [Span.whole(bare)]) == words


def test_files_of_more_than_a_block_are_compared_to_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export_blocks, "BLOCK", 2)
    documents = [[1, 2, 3], [4], [5, 6], [7]]
    told = list[int]()
    spans = [_span(documents[:2]), _span(documents[2:])]
    assert first_difference(_file(documents), spans, told=told.append) is None
    assert told == [2, 2, 2, 1]
    changed = [[1, 2, 3], [4], [5, 6], [8]]
    words = "document 1 of f, token 0 of it (token 6 here): 8 here and 7 there"
    assert first_difference(_file(changed), spans) == words
    other = [[1, 2, 3], [4], [5], [6, 7]]
    words = "document 2 ends at token 5 here and at 6 there"
    assert first_difference(_file(other), spans) == words
