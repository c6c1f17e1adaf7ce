"""Bins of a pack that were changed, headers and hashes with them: the audit finds what is wrong."""

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.formats.token_bin import Hashed, Header, TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages import bins_audit
from corpus_platform.stages.bins_audit import measure_bin
from corpus_platform.stages.bins_listing import whole_documents
from corpus_platform.stages.bins_writing import Packing
from corpus_platform_tests.stages.test_bins_writing import (
    LENGTH,
    PAD,
    POLICIES,
    example_documents,
    write_example,
)

FAULTS = ("index_faults", "bad_ends", "mask_faults", "ids_out_of_range", "files_differing")
FAULTS += ("tokens_unaccounted",)
LENGTHS = [3, 12, 1, 6, 20]  # of texts; two control tokens more
PACKINGS = {
    "concat": Packing("concat", None, None),
    "best_fit": Packing("best_fit", LENGTH, None),
    "pad": Packing("pad", LENGTH, None),
}


def rewrite(
    bin_: TokenBin, folder: Path, arrays: dict[str, np.ndarray | None], **header: object
) -> None:
    """Write a bin anew with other arrays, sizes and hashes right again, and fields of the header."""
    given = {"bin": bin_.tokens, "index": bin_.ends, "loss": bin_.loss, "pieces": bin_.pieces}
    files: dict[str, Hashed | None] = {}
    for end, values in (given | arrays).items():
        if values is not None:
            data = np.ascontiguousarray(values).tobytes()
            (folder / f"train.{end}").write_bytes(data)
            files[end] = Hashed(len(data), hashlib.sha256(data).hexdigest())
    changed = dataclasses.replace(bin_.header, **files, **header)
    (folder / "train.json").write_bytes(changed.to_json())


def found_faults(
    folder: Path, listed: pl.DataFrame, packing: Packing, policy: Policy
) -> dict[str, int]:
    """Return the counts of the audit that are not 0."""
    lines, broken = whole_documents(listed, row_tokens=packing.row_tokens)
    counts = measure_bin(folder, "train", lines, policy, packing)
    counts["index_faults"] += broken
    return {name: counts[name] for name in FAULTS if counts[name]}


@pytest.mark.parametrize("strategy", sorted(PACKINGS))
@given(
    lengths=st.lists(st.integers(0, 30), max_size=8), name=st.sampled_from(sorted(POLICIES)), masked=st.booleans()
)  # fmt: skip
@settings(deadline=None, max_examples=15)
def test_what_was_written_has_no_fault(
    strategy: str, lengths: list[int], name: str, masked: bool
) -> None:
    packing = PACKINGS[strategy]
    policy = POLICIES[name]._replace(pad_id=None if strategy == "concat" else PAD)
    with tempfile.TemporaryDirectory() as folder:
        lines = write_example(
            Path(folder), example_documents(lengths), packing, policy, masked=masked
        )
        assert found_faults(Path(folder), lines, packing, policy) == {}


def _other_id(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    tokens = np.array(bin_.tokens)
    tokens[1] = 70_001
    return {"bin": tokens}


def _no_end_token(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    tokens = np.array(bin_.tokens)
    tokens[int(np.flatnonzero(tokens == 2)[1])] = 9
    return {"bin": tokens}


def _second_end_token(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    tokens = np.array(bin_.tokens)
    tokens[1] = 2
    return {"bin": tokens}


def _later_end(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    ends = np.array(bin_.ends)
    ends[0] += 1
    return {"index": ends}


def _learned_padding(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    assert bin_.loss is not None
    loss = np.array(bin_.loss)
    loss[int(np.flatnonzero(loss == 0)[0])] = 1
    return {"loss": loss}


def _text_as_padding(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    tokens = np.array(bin_.tokens)
    tokens[1] = PAD
    return {"bin": tokens}


def _one_number_for_all(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    assert bin_.pieces is not None
    pieces = np.array(bin_.pieces)
    pieces["document"][pieces["document"] >= 0] = 0
    return {"pieces": pieces}


def _other_numbers(bin_: TokenBin) -> dict[str, np.ndarray | None]:
    """Let a piece that goes on with a document be one of another."""
    assert bin_.pieces is not None
    pieces = np.array(bin_.pieces)
    pieces["document"][int(np.flatnonzero(pieces["offset"])[0])] += 100
    return {"pieces": pieces}


CHANGES: list[tuple[str, Callable[[TokenBin], dict], dict[str, object], dict[str, int]]] = [
    ("concat", _other_id, {}, {"ids_out_of_range": 1}),
    ("concat", _no_end_token, {}, {"bad_ends": 1}),
    ("concat", _second_end_token, {}, {"bad_ends": 1}),
    ("concat", _later_end, {}, {"index_faults": 2, "bad_ends": 4}),
    ("best_fit", _learned_padding, {}, {"mask_faults": 1}),
    ("best_fit", _text_as_padding, {}, {"bad_ends": 1}),
    ("best_fit", _one_number_for_all, {}, {"index_faults": 4}),
    ("best_fit", _other_numbers, {}, {"index_faults": 1}),
    ("best_fit", lambda _: {}, {"documents": 8}, {"index_faults": 3}),
    ("best_fit", lambda _: {}, {"padding": 0}, {"tokens_unaccounted": 4}),
    ("pad", lambda _: {}, {"row_tokens": 4}, {"index_faults": 12}),
]


@pytest.mark.parametrize(
    ("strategy", "change", "header", "expected"),
    CHANGES,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_changed_is_counted(
    strategy: str,
    change: Callable[[TokenBin], dict[str, np.ndarray | None]],
    header: dict[str, object],
    expected: dict[str, int],
    tmp_path: Path,
) -> None:
    packing = PACKINGS[strategy]
    policy = POLICIES["both"]._replace(pad_id=None if strategy == "concat" else PAD)
    lines = write_example(tmp_path, example_documents(LENGTHS), packing, policy)
    bin_ = open_token_bin(tmp_path, "train")
    rewrite(bin_, tmp_path, change(bin_), **header)
    assert found_faults(tmp_path, lines, packing, policy) == expected


def test_bins_of_another_strategy_are_no_rows_of_this_one(tmp_path: Path) -> None:
    """Whole hashes, whole documents: but not what was asked for."""
    policy = POLICIES["both"]
    lines = write_example(tmp_path, example_documents([1, 2]), PACKINGS["best_fit"], policy)
    assert found_faults(tmp_path, lines, PACKINGS["pad"], policy) == {"index_faults": 1}
    streams = tmp_path / "streams"
    streams.mkdir()
    lines = write_example(streams, example_documents([1, 2]), PACKINGS["concat"], policy)
    found = found_faults(streams, lines, PACKINGS["best_fit"], policy)
    assert found == {"index_faults": 2, "bad_ends": 1}  # and its header knows no padding


def test_a_document_in_more_rows_than_it_needs_is_a_fault(tmp_path: Path) -> None:
    policy = POLICIES["none"]
    lines = write_example(tmp_path, example_documents([4]), PACKINGS["pad"], policy)
    number = {name: pl.lit(value, pl.Int64) for name, value in (("tokens", 2), ("offset", 2))}
    halves = [lines.with_columns(tokens=number["tokens"]), lines.with_columns(**number)]
    _, broken = whole_documents(pl.concat(halves), row_tokens=LENGTH)
    assert broken == 1


def test_a_fault_on_the_border_of_two_blocks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packing, policy = PACKINGS["best_fit"], POLICIES["both"]
    lines = write_example(tmp_path, example_documents(LENGTHS), packing, policy, masked=True)
    bin_ = open_token_bin(tmp_path, "train")
    rewrite(bin_, tmp_path, _no_end_token(bin_))
    for block in (1, 3, LENGTH, 1000):
        monkeypatch.setattr(bins_audit, "BLOCK_TOKENS", block)
        assert found_faults(tmp_path, lines, packing, policy) == {"bad_ends": 1}


def test_a_file_that_is_not_that_of_its_hash_is_counted(tmp_path: Path) -> None:
    packing, policy = PACKINGS["concat"], POLICIES["none"]._replace(pad_id=None)
    lines = write_example(tmp_path, example_documents([4]), packing, policy)
    header = Header.read(tmp_path / "train.json")
    told = dataclasses.replace(header, bin=header.bin._replace(sha256="0" * 64))
    (tmp_path / "train.json").write_bytes(told.to_json())
    assert found_faults(tmp_path, lines, packing, policy) == {"files_differing": 1}
