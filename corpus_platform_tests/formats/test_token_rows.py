"""Tests of rows: borders, positions, and that no token sees another document."""

from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_bin import TokenBin, open_token_bin, pieces_of
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter
from corpus_platform.formats.token_rows import document_mask, row

POLICY = Policy(10, "5e" * 32, eos_id=0, pad_id=9)


@pytest.fixture
def rows(tmp_path: Path) -> TokenBin:
    """Two rows of six: a document and the begin of another; its rest, a third one, padding."""
    with RowBinWriter(tmp_path, "x", POLICY, row_tokens=6) as writer:
        writer.append_rows(
            np.array([1, 2, 3, 0, 4, 5, 6, 0, 7, 0, 9, 9]),
            np.array([4, 6, 8, 10, 12]),
            pieces_of(np.array([0, 1, 1, 2, -1]), np.array([0, 0, 2, 0, 0])),
        )
    return open_token_bin(tmp_path, "x")


def test_borders_are_those_that_attention_over_variable_lengths_takes(rows: TokenBin) -> None:
    first, second = row(rows, 0), row(rows, 1)
    assert (first.cu_seqlens.tolist(), first.cu_seqlens.dtype) == ([0, 4, 6], np.int32)
    assert (second.cu_seqlens.tolist(), second.max_seqlen) == ([0, 2, 4, 6], 2)


def test_a_continuation_and_padding_are_marked(rows: TokenBin) -> None:
    second = row(rows, 1)
    assert second.document.tolist() == [1, 2, -1]
    assert second.offset.tolist() == [2, 0, 0]
    assert second.padding.tolist() == [False] * 4 + [True] * 2
    assert second.loss.tolist() == [True] * 4 + [False] * 2


def test_positions_begin_anew_with_each_piece_or_go_on_in_the_document(rows: TokenBin) -> None:
    assert row(rows, 0).position_ids().tolist() == [0, 1, 2, 3, 0, 1]
    assert row(rows, 1).position_ids().tolist() == [0, 1, 0, 1, 0, 1]
    assert row(rows, 1).position_ids(continued=True).tolist() == [2, 3, 0, 1, 0, 1]


def test_no_token_sees_another_document_a_later_token_or_padding(rows: TokenBin) -> None:
    assert document_mask(row(rows, 1)).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_attention_through_the_mask_is_that_of_each_document_alone(rows: TokenBin) -> None:
    """Softmax over masked scores equals softmax over the document by itself."""
    random = np.random.default_rng(5)
    queries, keys, values = random.normal(size=(3, 6, 4))
    one = row(rows, 0)
    together = _attention(queries, keys, values, document_mask(one))
    for begin, end in zip(one.cu_seqlens[:-1], one.cu_seqlens[1:], strict=True):
        part = slice(begin, end)
        causal = np.tril(np.ones((end - begin, end - begin), np.bool_))
        alone = _attention(queries[part], keys[part], values[part], causal)
        np.testing.assert_allclose(together[part], alone, rtol=1e-12)


def _attention(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    scores = np.where(mask, queries @ keys.T, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


def test_a_row_that_is_not_there_is_an_index_error(rows: TokenBin) -> None:
    with pytest.raises(IndexError, match="row 2 of 2"):
        row(rows, 2)


def test_a_stream_of_documents_has_no_rows(tmp_path: Path) -> None:
    with TokenBinWriter(tmp_path, "x", Policy(10, "5e" * 32, eos_id=0)) as writer:
        writer.append(np.array([1, 2]))
    with pytest.raises(UsageError, match="documents back to back, not rows"):
        row(open_token_bin(tmp_path, "x"), 0)
