"""Laws of all strategies: no token lost, every document whole again, no row over its length."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpus_platform.document import PACKED_DOCUMENTS
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.formats.token_rows import row
from corpus_platform.stages.bins_writing import Batch, Packing, write_bins
from corpus_platform.tokenization.documents import EncodedDocuments

LENGTH = 8
PAD, BOS, EOS, FIRST_ID = 0, 1, 2, 3
POLICIES = {
    "both": Policy(70_000, "5e" * 32, eos_id=EOS, bos_id=BOS, pad_id=PAD),
    "eos": Policy(70_000, "5e" * 32, eos_id=EOS, pad_id=PAD),
    "none": Policy(70_000, "5e" * 32, eos_id=None, pad_id=PAD),
}


def example_documents(lengths: Sequence[int]) -> list[np.ndarray]:
    """Return documents of different ids, so that a token tells whose it is."""
    ends = np.cumsum(lengths)
    return [np.arange(e - n, e) % 60_000 + FIRST_ID for n, e in zip(lengths, ends, strict=True)]


def _batches(count: int, held_out: set[int]) -> Iterator[Batch]:
    for first in range(0, count, 3):
        rows = np.arange(first, min(first + 3, count))
        columns = pa.record_batch(
            {
                "id": pa.array([f"d{r}" for r in rows], pa.string()),
                "lang": pa.array(["en"] * len(rows), pa.string()),
            }
        )
        yield Batch(rows, np.isin(rows, list(held_out)), columns)


def write_example(
    folder: Path,
    documents: Sequence[np.ndarray],
    packing: Packing,
    policy: Policy,
    *,
    masked: bool = False,
    held_out: set[int] = frozenset(),  # ty: ignore[invalid-parameter-default]
) -> pl.DataFrame:
    """Write the bins of both splits as a stage does; return the table of their documents."""

    def encode(batch: Batch) -> EncodedDocuments:
        parts = [documents[r] for r in batch.rows]
        flat = np.concatenate([np.empty(0, np.int64), *parts]).astype(np.uint32)
        loss = flat % 3 > 0 if masked else None
        return EncodedDocuments(flat, np.cumsum([len(p) for p in parts], dtype=np.int64), loss)

    table = write_bins(
        folder,
        "c/s",
        _batches(len(documents), held_out),
        encode=encode,
        policy=policy,
        packing=packing,
    )
    assert table.schema.equals(PACKED_DOCUMENTS)
    return pl.DataFrame(table)


def _collected(bin_: TokenBin, lines: pl.DataFrame) -> dict[int, tuple[list[int], list[int]]]:
    """Return tokens and mask of each document from its lines, in the order of the document."""
    loss = np.ones(len(bin_.tokens), np.uint8) if bin_.loss is None else bin_.loss
    found: dict[int, tuple[list[int], list[int]]] = {}
    for number, start, tokens in lines.sort("row", "offset").select("row", "start", "tokens").iter_rows():  # fmt: skip
        ids, mask = found.setdefault(number, ([], []))
        ids += bin_.tokens[start : start + tokens].tolist()
        mask += loss[start : start + tokens].tolist()
    return found


def _wanted(document: np.ndarray, policy: Policy) -> list[int]:
    begin = [] if policy.bos_id is None else [policy.bos_id]
    end = [] if policy.eos_id is None else [policy.eos_id]
    return [*begin, *document.tolist(), *end]


LENGTHS = st.lists(st.one_of(st.sampled_from([0, 1, 7, 8, 9, 16, 17]), st.integers(0, 40)), max_size=12)  # fmt: skip


@pytest.mark.parametrize("strategy", ["concat", "best_fit", "pad"])
@given(lengths=LENGTHS, name=st.sampled_from(sorted(POLICIES)), masked=st.booleans())
@example(lengths=[], name="eos", masked=False)
@example(lengths=[0, 0], name="none", masked=True)
@example(lengths=[1] * 30, name="none", masked=True)
@settings(deadline=None, max_examples=30)
def test_every_document_is_whole_again_and_no_token_is_lost(
    strategy: str, lengths: list[int], name: str, masked: bool
) -> None:
    policy, documents = POLICIES[name], example_documents(lengths)
    packing = Packing(strategy, None if strategy == "concat" else LENGTH, None)
    with tempfile.TemporaryDirectory() as folder:
        lines = write_example(Path(folder), documents, packing, policy, masked=masked)
        bin_ = open_token_bin(Path(folder), "train")
        found = _collected(bin_, lines)
    assert {r: ids for r, (ids, _) in found.items()} == {
        r: _wanted(document, policy) for r, document in enumerate(documents)
    }
    placed = sum(len(ids) for ids, _ in found.values())
    assert len(bin_.tokens) == placed + bin_.header.padding
    if masked:
        for ids, mask in found.values():
            text = [(i, m) for i, m in zip(ids, mask, strict=True) if i >= FIRST_ID]
            assert all(m == (i % 3 > 0) for i, m in text)
    for number in range(bin_.header.rows):
        one = row(bin_, number)
        assert len(one.tokens) == LENGTH
        assert (one.tokens == PAD).tolist() == one.padding.tolist()
        assert not one.loss[one.padding].any()


@given(lengths=LENGTHS)
@settings(deadline=None, max_examples=30)
def test_the_lines_of_rows_are_their_pieces_in_order(lengths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        packing = Packing("best_fit", LENGTH, None)
        lines = write_example(Path(folder), example_documents(lengths), packing, POLICIES["none"])
        bin_ = open_token_bin(Path(folder), "train")
    assert bin_.pieces is not None
    real = bin_.pieces["document"] >= 0
    listed = lines.filter(pl.col("tokens") > 0)
    assert listed["row"].to_list() == bin_.pieces["document"][real].tolist()
    assert listed["offset"].to_list() == bin_.pieces["offset"][real].tolist()
    assert (listed["start"] + listed["tokens"]).to_list() == bin_.ends[real].tolist()


def test_a_document_over_the_limit_is_cut_and_still_ends_in_its_end_token(tmp_path: Path) -> None:
    packing = Packing("concat", None, 5)
    lines = write_example(tmp_path, example_documents([3, 4, 10]), packing, POLICIES["both"])
    bin_ = open_token_bin(tmp_path, "train")
    assert [bin_.document(i).tolist() for i in range(3)] == [
        [1, 3, 4, 5, 2],
        [1, 6, 7, 8, 2],
        [1, 10, 11, 12, 2],
    ]
    assert lines.select("tokens", "cut").rows() == [(5, 0), (5, 1), (5, 7)]


def test_a_cut_is_counted_once_for_a_document_in_several_rows(tmp_path: Path) -> None:
    lines = write_example(tmp_path, example_documents([50]), Packing("pad", 8, 20), POLICIES["eos"])
    assert lines.sort("offset").select("offset", "tokens", "cut").rows() == [
        (0, 8, 31),
        (8, 8, 0),
        (16, 4, 0),
    ]


def test_documents_that_are_held_out_go_to_a_bin_of_their_own(tmp_path: Path) -> None:
    documents = example_documents([2, 3, 1, 4])
    lines = write_example(
        tmp_path, documents, Packing("concat", None, None), POLICIES["eos"], held_out={1}
    )
    held_out = open_token_bin(tmp_path, "val")
    assert held_out.tokens.tolist() == [*documents[1].tolist(), EOS]
    assert lines["file"].to_list() == ["train.bin", "val.bin", "train.bin", "train.bin"]
    assert lines["start"].to_list() == [0, 0, 3, 5]


def test_rows_stand_in_an_order_that_their_length_does_not_tell(tmp_path: Path) -> None:
    """The planner opens rows with the longest pieces; what a reader meets is no such order."""
    random = np.random.default_rng(3)
    lengths = random.integers(1, 64, 400).tolist()
    lines = write_example(
        tmp_path, example_documents(lengths), Packing("best_fit", 64, None), POLICIES["none"]
    )
    longest = lines.group_by(pl.col("start") // 64).agg(pl.col("tokens").max()).sort("start")
    first, second = (np.mean(half["tokens"].to_numpy()) for half in (longest[:100], longest[-100:]))
    assert abs(first - second) < 5  # sorted by length they are about 30 apart


def test_no_stream_is_left_beside_the_rows(tmp_path: Path) -> None:
    write_example(tmp_path, example_documents([2]), Packing("pad", 8, None), POLICIES["eos"])
    assert sorted({p.suffix for p in tmp_path.iterdir()}) == [".bin", ".index", ".json", ".loss", ".pieces"]  # fmt: skip
