"""The audit of packed_bins: reads every token of the bins again and holds it against what is listed.

What is listed is the table of documents; `bins_listing` holds that against the verdict, and
`bins_sample` some of it against the cleaned texts. Tokens are read in blocks.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin, files_of, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages.bins_writing import Packing
from corpus_platform.storage.files import file_sha256

__all__ = ["measure_bin"]

BLOCK_TOKENS = 1 << 22
COUNTED = (
    "ids_out_of_range",
    "padding_tokens",
    "eos_count",
    "loss_masked_tokens",
    "bad_ends",
    "mask_faults",
)


class Entries(NamedTuple):
    """Where documents and padding begin and end by index and table, in tokens, rising."""

    begins: np.ndarray  # first tokens of documents
    closes: np.ndarray  # last tokens of documents
    padding_begins: np.ndarray
    padding_ends: np.ndarray
    faults: int


def measure_bin(
    folder: Path, name: str, listed: pl.DataFrame, policy: Policy, packing: Packing
) -> Counter[str]:
    """Count what is wrong in one bin, given the lines of its documents, and what is in it."""
    bin_ = open_token_bin(folder, name, expect_tokenizer=policy.tokenizer_sha256)
    lines = listed.filter(pl.col("tokens") > 0).sort("start")
    entries = _entries(bin_, lines)
    faults = entries.faults + _layout_faults(bin_, listed, lines, packing)
    # Named where a bin has no block too: it is empty where a shard keeps no document.
    counts = Counter({**dict.fromkeys(COUNTED, 0), "index_faults": faults})
    for start in range(0, len(bin_.tokens), BLOCK_TOKENS):
        counts.update(_measure_block(bin_, policy, entries, start))
        bin_.forget()
    placed = len(bin_.tokens) - counts["padding_tokens"]
    counts["tokens_unaccounted"] = abs(placed - int(lines["tokens"].sum())) + abs(
        bin_.header.padding - counts["padding_tokens"]
    )
    counts["bad_ends"] += Policy.of(bin_.header) != policy
    counts["files_differing"] = sum(
        file_sha256(folder / file) != hashed.sha256
        for file, hashed in files_of(name, bin_.header).items()
    )
    counts["documents"], counts["tokens"] = bin_.header.documents, placed
    return counts


def _entries(bin_: TokenBin, lines: pl.DataFrame) -> Entries:
    ends = bin_.ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    faults = int(np.count_nonzero(lengths < 0))
    ends = np.clip(ends, 0, len(bin_.tokens))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    padding, offsets = np.zeros(len(ends), np.bool_), np.zeros(len(ends), np.int64)
    if bin_.pieces is not None:
        padding, offsets = bin_.pieces["document"] < 0, bin_.pieces["offset"]
    real = np.flatnonzero(~padding & (lengths > 0))
    columns = [lines[name].to_numpy() for name in ("start", "tokens", "offset")]
    begins = closes = np.zeros(0, np.int64)
    if len(real) == len(lines):
        found = (starts[real], lengths[real], offsets[real])
        differs = [a != b for a, b in zip(found, columns, strict=True)]
        faults += int(np.count_nonzero(np.logical_or.reduce(differs)))
        begins, closes = starts[real[columns[2] == 0]], ends[real[lines["last"].to_numpy()]] - 1
    else:
        faults += abs(len(real) - len(lines))
    return Entries(
        np.sort(begins), np.sort(closes), np.sort(starts[padding]), np.sort(ends[padding]), faults
    )


def _layout_faults(
    bin_: TokenBin, listed: pl.DataFrame, lines: pl.DataFrame, packing: Packing
) -> int:
    """Count where a bin is not laid out as it was asked for, or its pieces mix up documents."""
    length = packing.row_tokens
    if bin_.header.row_tokens != length:
        return len(bin_) or 1
    if length is None or bin_.pieces is None:
        return abs(bin_.header.documents - len(listed))
    ends, padding = bin_.ends.astype(np.int64), bin_.pieces["document"] < 0
    borders = np.unique(ends[ends % length == 0])
    rows = bin_.header.rows
    faults = abs(int(np.count_nonzero(borders)) - rows)  # pieces that reach over the end of a row
    faults += int(np.count_nonzero(ends[padding] % length))
    begun = np.count_nonzero(~padding & (bin_.pieces["offset"] == 0))
    faults += abs(bin_.header.documents - int(begun))
    if packing.strategy == "pad":
        faults += abs(int(np.count_nonzero(~padding)) - rows)
    return faults + _mixed_up(bin_.pieces["document"][~padding], lines["row"].to_numpy())


def _mixed_up(numbers: np.ndarray, rows: np.ndarray) -> int:
    """Return by how many the numbers of documents and their rows are not one to one."""
    if len(numbers) != len(rows):
        return abs(len(numbers) - len(rows))
    pairs = pl.DataFrame({"number": numbers, "row": rows}).unique()
    return max(len(pairs) - pairs[name].n_unique() for name in pairs.columns)


def _measure_block(bin_: TokenBin, policy: Policy, entries: Entries, start: int) -> Counter[str]:
    tokens = bin_.tokens[start : start + BLOCK_TOKENS]
    stop = start + len(tokens)
    padded = _between(entries.padding_begins, entries.padding_ends, start, stop)
    counts: Counter[str] = Counter(
        ids_out_of_range=int(np.count_nonzero(tokens >= policy.vocab_size)),
        padding_tokens=int(np.count_nonzero(padded)),
    )
    begins = _marked(entries.begins, start, stop)
    closes = _marked(entries.closes, start, stop)
    for number in {policy.bos_id, policy.eos_id} - {None}:
        expected = np.zeros(len(tokens), np.bool_)
        expected |= begins if number == policy.bos_id else False
        expected |= closes if number == policy.eos_id else False
        found = tokens == number
        counts["bad_ends"] += int(np.count_nonzero(found != expected))
        counts["eos_count"] += int(np.count_nonzero(found & closes))
    if policy.pad_id is not None:
        counts["bad_ends"] += int(np.count_nonzero((tokens == policy.pad_id) != padded))
    if bin_.loss is not None:
        loss = bin_.loss[start:stop]
        counts["loss_masked_tokens"] += int(np.count_nonzero((loss == 0) & ~padded))
        counts["mask_faults"] += int(np.count_nonzero((loss > 1) | ((loss != 0) & padded)))
    elif padded.any():
        counts["mask_faults"] += int(np.count_nonzero(padded))
    return counts


def _between(begins: np.ndarray, ends: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Mark the tokens of a block that lie in one of some intervals; both borders rise."""
    near = slice(np.searchsorted(ends, start, side="right"), np.searchsorted(begins, stop))
    steps = np.zeros(stop - start + 1, np.int32)
    np.add.at(steps, np.maximum(begins[near], start) - start, 1)
    np.add.at(steps, np.minimum(ends[near], stop) - start, -1)
    return np.cumsum(steps[:-1]) > 0


def _marked(places: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Mark the tokens of a block that stand at one of some rising places."""
    marked = np.zeros(stop - start, np.bool_)
    marked[places[slice(*np.searchsorted(places, [start, stop]))] - start] = True
    return marked
