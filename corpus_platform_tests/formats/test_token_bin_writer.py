"""Tests of what the native writer adds and refuses: control tokens, masks, rows."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StageFailed, UsageError
from corpus_platform.formats.token_bin import Header, open_token_bin, pieces_of
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter

TOKENIZER = "5e" * 32
ROWS = Policy(10, TOKENIZER, eos_id=0, pad_id=9)
# Two documents of four tokens, the second begun in the first row, and one of two.
FLAT = [1, 2, 3, 0, 4, 5, 6, 0, 7, 0, 9, 9]
ENDS = [4, 6, 8, 10, 12]
DOCUMENT, OFFSET = [0, 1, 1, 2, -1], [0, 0, 2, 0, 0]


def _pieces(document: list[int] = DOCUMENT, offset: list[int] = OFFSET) -> np.ndarray:
    return pieces_of(np.array(document), np.array(offset))


def _rows(
    folder: Path, flat: list[int], ends: list[int], pieces: np.ndarray, *, length: int = 6
) -> Header:
    with RowBinWriter(folder, "train", ROWS, row_tokens=length) as writer:
        writer.append_rows(np.array(flat), np.array(ends), pieces)
    return Header.read(folder / "train.json")


@pytest.mark.parametrize(
    ("bos", "eos", "stream", "ends"),
    [
        (None, None, [5, 6, 7], [2, 3, 3]),
        (None, 0, [5, 6, 0, 7, 0, 0], [3, 5, 6]),
        (1, None, [1, 5, 6, 1, 7, 1], [3, 5, 6]),
        (1, 0, [1, 5, 6, 0, 1, 7, 0, 1, 0], [4, 7, 9]),
        (0, 0, [0, 5, 6, 0, 0, 7, 0, 0, 0], [4, 7, 9]),  # one token for both, as GPT-2 has it
    ],
)
def test_each_policy_of_control_tokens_adds_those_and_no_others(
    bos: int | None, eos: int | None, stream: list[int], ends: list[int], tmp_path: Path
) -> None:
    with TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos, bos)) as writer:
        writer.append_many(np.array([5, 6, 7]), np.array([2, 3, 3]))
    opened = open_token_bin(tmp_path, "x")
    assert (opened.tokens.tolist(), opened.ends.tolist()) == (stream, ends)
    fields = json.loads((tmp_path / "x.json").read_bytes())
    assert fields["bos"] == ("none" if bos is None else "before_each_document")
    assert fields["eos"] == ("none" if eos is None else "after_each_document")
    assert (fields["bos_id"], fields["eos_id"]) == (bos, eos)
    with TokenBinWriter(tmp_path, "y", Policy.of(opened.header)) as writer:
        writer.append_many(opened.tokens, opened.ends, complete=True)
    assert (tmp_path / "y.bin").read_bytes() == (tmp_path / "x.bin").read_bytes()


def test_a_begin_token_that_is_missing_or_inside_is_refused(tmp_path: Path) -> None:
    writer = TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0, bos_id=1))
    with pytest.raises(StageFailed, match="document 0 lacks its begin token 1"):
        writer.append_many(np.array([5, 0]), np.array([2]), complete=True)
    with pytest.raises(StageFailed, match="document 1 holds inside it the begin token 1"):
        writer.append_many(np.array([5, 6, 1]), np.array([1, 3]))
    with pytest.raises(StageFailed, match="document 0 lacks its begin token 1 or end token 0"):
        writer.append_many(np.array([1]), np.array([1]), complete=True)


def test_a_mask_is_begun_with_the_first_token_that_does_not_count(tmp_path: Path) -> None:
    with TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0)) as writer:
        writer.append_many(np.array([1, 2]), np.array([2]))
        writer.append_many(np.array([3, 4, 5]), np.array([2, 3]), loss=np.array([1, 0, 1]))
        writer.append_many(np.array([6]), np.array([1]))
    opened = open_token_bin(tmp_path, "x")
    assert opened.tokens.tolist() == [1, 2, 0, 3, 4, 0, 5, 0, 6, 0]
    assert opened.loss is not None
    # The end token counts as the last token of its document does.
    assert opened.loss.tolist() == [1, 1, 1, 1, 0, 0, 1, 1, 1, 1]


def test_no_mask_is_written_where_all_tokens_count(tmp_path: Path) -> None:
    with TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0)) as writer:
        writer.append_many(np.array([1, 2]), np.array([2]), loss=np.array([True, True]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.bin", "x.index", "x.json"]
    assert open_token_bin(tmp_path, "x").loss is None


def test_an_end_token_alone_counts_in_a_file_with_a_mask(tmp_path: Path) -> None:
    with TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0)) as writer:
        writer.append_many(np.array([1]), np.array([1, 1]), loss=np.array([0]))
    loss = open_token_bin(tmp_path, "x").loss
    assert loss is not None
    assert loss.tolist() == [0, 0, 1]


def test_an_error_in_the_block_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(StageFailed, match="token id 10 in document 1 is outside"),
        TokenBinWriter(tmp_path, "train", ROWS) as writer,
    ):
        _write_a_bad_id(writer)
    assert list(tmp_path.iterdir()) == []


def _write_a_bad_id(writer: TokenBinWriter) -> None:
    """Write into all three files, then what cannot be written."""
    writer.append_many(np.array([1, 2]), np.array([2]), loss=np.array([True, False]))
    writer.append(np.array([10]))


def test_ids_that_are_no_whole_numbers_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(StageFailed, match="train: token ids must be integers, found float64"),
        TokenBinWriter(tmp_path, "train", ROWS) as writer,
    ):
        writer.append(np.array([1.0, 2.5]))


def test_a_mask_of_another_length_is_refused(tmp_path: Path) -> None:
    writer = TokenBinWriter(tmp_path, "x", ROWS)
    with pytest.raises(StageFailed, match="a mask of 1 for 2 tokens"):
        writer.append_many(np.array([1, 2]), np.array([2]), loss=np.array([0]))


def test_the_files_of_rows_are_the_golden_bytes(tmp_path: Path) -> None:
    header = _rows(tmp_path, FLAT, ENDS, _pieces())
    words = {"bin": "<u2", "index": "<u8", "loss": "u1", "pieces": "<i8"}
    found = {end: np.fromfile(tmp_path / f"train.{end}", t).tolist() for end, t in words.items()}
    assert found == {
        "bin": FLAT,
        "index": ENDS,
        "loss": [1] * 10 + [0, 0],
        "pieces": [0, 0, 1, 0, 1, 2, 2, 0, -1, 0],
    }
    fields = json.loads((tmp_path / "train.json").read_bytes())
    assert (fields["layout"], fields["row_tokens"], header.rows) == ("rows", 6, 2)
    assert (fields["tokens"], fields["padding"], fields["pad_id"]) == (12, 2, 9)
    assert (fields["documents"], header.entries) == (3, 5)
    for end in words:
        data = (tmp_path / f"train.{end}").read_bytes()
        assert fields[end] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_document_is_collected_from_its_pieces(tmp_path: Path) -> None:
    _rows(tmp_path, FLAT, ENDS, _pieces())
    opened = open_token_bin(tmp_path, "train")
    assert [opened.document(i).tolist() for i in range(3)] == [[1, 2, 3, 0], [4, 5, 6, 0], [7, 0]]
    with pytest.raises(IndexError, match="document 3 has no piece"):
        opened.document(3)


def test_full_rows_have_no_mask(tmp_path: Path) -> None:
    header = _rows(tmp_path, FLAT[:6], [4, 6], _pieces([0, 1], [0, 0]))
    assert (header.loss, header.padding) == (None, 0)


@pytest.mark.parametrize(
    ("flat", "ends", "document", "message"),
    [
        (FLAT, [4, 7, 8, 10, 12], DOCUMENT, "reaches over a row of 6"),
        (FLAT[:-1], [4, 6, 8, 10, 11], DOCUMENT, "reaches over a row of 6"),
        (FLAT, ENDS, [0, 1, 1, -1, 2], "padding before the end of a row"),
        (FLAT, ENDS, [0, 1, 1, 2], "4 pieces for 5 ends"),
        ([*FLAT[:-1], 8], ENDS, DOCUMENT, "token 8 of piece 4 is no padding"),
        ([9, *FLAT[1:]], ENDS, DOCUMENT, "token 9 of piece 0 is padding"),
        ([10, *FLAT[1:]], ENDS, DOCUMENT, r"token id 10 in piece 0 is outside the vocabulary 0\.\.9"),
    ],
)  # fmt: skip
def test_rows_that_are_none_are_refused(
    flat: list[int], ends: list[int], document: list[int], message: str, tmp_path: Path
) -> None:
    writer = RowBinWriter(tmp_path, "train", ROWS, row_tokens=6)
    with pytest.raises(StageFailed, match=message):
        writer.append_rows(np.array(flat), np.array(ends), _pieces(document, [0] * len(document)))
    assert writer.close().tokens == 0


def test_padding_needs_a_token_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pad_id 0 is the end or begin token too"):
        RowBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0, pad_id=0), row_tokens=4)
    with pytest.raises(UsageError, match="rows need a length of 1 or more and a pad_id"):
        RowBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=0), row_tokens=4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"row_tokens": 6', '"row_tokens": 5'),
        ('"row_tokens": 6', '"row_tokens": null'),
        ('"documents": 3', '"documents": -3'),
        ('"tokens": 12', '"tokens": true'),
        ('"row_tokens": 6', '"row_tokens": 6.0'),
        ('"padding": 2', '"padding": 13'),
        ('"pad_id": 9', '"pad_id": 10'),
        ('"eos_id": 0', '"eos_id": 0.0'),
        (f'"tokenizer_sha256": "{TOKENIZER}"', '"tokenizer_sha256": 5'),
        ('"bytes": 24', '"bytes": 24.0'),
        ("{", "[" * 100_000),
    ],
)
def test_a_header_of_rows_that_disagrees_is_refused(old: str, new: str, tmp_path: Path) -> None:
    _rows(tmp_path, FLAT, ENDS, _pieces())
    path = tmp_path / "train.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(Exception, match=r"train\.json") as caught:
        open_token_bin(tmp_path, "train")
    assert type(caught.value).__name__ == "StorageError"


@pytest.mark.parametrize("end", ["loss", "pieces"])
def test_a_cut_side_file_is_refused_when_opened(end: str, tmp_path: Path) -> None:
    _rows(tmp_path, FLAT, ENDS, _pieces())
    path = tmp_path / f"train.{end}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Exception, match=rf"train\.{end}: \d+ bytes, expected"):
        open_token_bin(tmp_path, "train")
