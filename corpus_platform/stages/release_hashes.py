"""Documents of token bins, or their pieces, by count and hash of tokens and of masks, to compare.

Sums of such hashes tell whether two sides hold the same lines, in whatever order each has them.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
import xxhash

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.stages.bins_writing import BIN_NAMES

__all__ = [
    "FOUND",
    "Placed",
    "entries_of",
    "hashed",
    "hashed_lines",
    "hashed_windows",
    "line_hashes",
    "mixed",
    "placed",
    "whole_documents",
]

HASH = ["low", "high"]  # halves of the 128-bit hash of a document's tokens
FOUND = {
    "train": pl.Boolean,
    "shard": pl.Int64,
    "row": pl.Int64,
    "offset": pl.Int64,
    "tokens": pl.Int64,
    **dict.fromkeys(HASH, pl.UInt64),
    "mask": pl.UInt64,  # hash of the mask, 0 where all tokens count
}
BLOCK_ENTRIES = 1 << 14  # of an index: what is read of a file before its pages are given back


class Entries(NamedTuple):
    """Where some documents or their pieces start and end by the index, and their offsets."""

    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray
    padding: int  # tokens between them that are none of theirs


def entries_of(bin_: TokenBin) -> Iterator[Entries]:
    """Yield the entries of an index in blocks, without those of padding."""
    before = 0
    for first in range(0, len(bin_.ends), BLOCK_ENTRIES):
        block = slice(first, first + BLOCK_ENTRIES)
        ends = bin_.ends[block].astype(np.int64)
        starts = np.append(before, ends[:-1])
        before = int(ends[-1])
        if bin_.pieces is None:
            yield Entries(starts, ends, np.zeros(len(ends), np.int64), 0)
            continue
        real = bin_.pieces["document"][block] >= 0
        padding = int((ends - starts)[~real].sum())
        yield Entries(starts[real], ends[real], bin_.pieces["offset"][block][real], padding)


class Placed(NamedTuple):
    """Lines of a table, and where the index has their tokens; a line too many has none."""

    lines: pl.DataFrame
    starts: np.ndarray
    ends: np.ndarray
    misplaced: int  # lines that say something else than the index

    def chosen(self, which: np.ndarray) -> "Placed":
        """Return some of the lines."""
        lines = self.lines.filter(pl.Series(which))
        return Placed(lines, self.starts[which], self.ends[which], 0)


def placed(bin_: TokenBin, lines: Iterable[pl.DataFrame]) -> Iterator[Placed]:
    """Yield all lines of a file, which come in its order, each with an entry of its index."""
    parts, held = iter(lines), None
    for entries in entries_of(bin_):
        count = len(entries.ends)
        while held is None or len(held) < count:
            if (more := next(parts, None)) is None:
                break
            held = more if held is None else pl.concat([held, more])
        if held is None:
            return
        yield _placed(held.head(count), entries)
        held = held.slice(count)
    for part in itertools.chain([] if held is None else [held], parts):
        none = np.zeros(len(part), np.int64)
        yield Placed(part, none, none, 0)


def _placed(lines: pl.DataFrame, entries: Entries) -> Placed:
    starts, ends, offsets = (values[: len(lines)] for values in entries[:3])
    said = [lines[name].to_numpy() for name in ("start", "tokens", "offset")]
    found = (starts, ends - starts, offsets)
    differs = np.logical_or.reduce([a != b for a, b in zip(found, said, strict=True)])
    return Placed(lines, starts, ends, int(np.count_nonzero(differs)))


def hashed(bin_: TokenBin, kind: str, lines: pl.DataFrame) -> pl.DataFrame:
    """Return count and hashes of the tokens between the ends of the index, by document or piece."""
    return pl.concat([hashed_lines(bin_, kind, part) for part in placed(bin_, [lines])])


def hashed_lines(bin_: TokenBin, kind: str, found: Placed) -> pl.DataFrame:
    """Return count and hashes of the tokens of some lines."""
    parts = [
        _hashes(bin_, found.starts[first : first + BLOCK_ENTRIES], found.ends[first : first + BLOCK_ENTRIES])
        for first in range(0, max(len(found.lines), 1), BLOCK_ENTRIES)
    ]  # fmt: skip
    halves, masks = (np.concatenate(values) for values in zip(*parts, strict=True))
    return found.lines.select(
        pl.lit(kind == BIN_NAMES["train"]).alias("train"),
        "shard",
        "row",
        "offset",
        pl.Series("tokens", found.ends - found.starts, pl.Int64),
        *(pl.Series(name, halves[:, i].copy()) for i, name in enumerate(HASH)),
        pl.Series("mask", masks),
    )


def _hashes(bin_: TokenBin, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of the tokens of each place, and of its mask."""
    bin_.forget()
    tokens, width = bin_.tokens.view(np.uint8).data, bin_.tokens.itemsize
    digest = xxhash.xxh3_128_digest
    # A slice of a view and a call are half a microsecond, more than the tokens of most documents.
    bounds = zip((starts * width).tolist(), (ends * width).tolist(), strict=True)
    found = b"".join([digest(tokens[start:end]) for start, end in bounds])
    masks = np.zeros(len(starts), np.uint64)
    if bin_.loss is not None:
        loss = bin_.loss.data
        for i in np.flatnonzero(_silent(bin_.loss, starts, ends)).tolist():
            masks[i] = xxhash.xxh3_64_intdigest(loss[int(starts[i]) : int(ends[i])])
    return np.frombuffer(found, "<u8").reshape(-1, 2), masks


def _silent(loss: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Tell which places have a token that does not count."""
    silent = np.zeros(len(starts), np.bool_)
    filled = np.flatnonzero((starts >= 0) & (starts < ends) & (starts < len(loss)))
    if len(filled):
        starts, ends = starts[filled], ends[filled]
        loss = loss[: int(ends.max())]  # what follows would be read too
        last = len(loss) - 1
        # Of start and end in turn every second minimum is that of what lies between two places.
        bounds = np.column_stack((starts, np.minimum(ends, last))).ravel()
        least = np.minimum.reduceat(loss, bounds)[::2]
        silent[filled] = (least == 0) | ((ends > last) & (loss[last] == 0))
    return silent


def hashed_windows(bin_: TokenBin, kind: str, lines: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return count and hashes of what windows of a length make of the documents of a stream."""
    ends = bin_.ends[: len(lines)].astype(np.int64)
    starts = np.append(0, ends[:-1])[: len(ends)]
    filled = ends > starts
    lines = lines.head(len(ends)).filter(pl.Series(filled))
    starts, ends = starts[filled], ends[filled]
    total = int(ends[-1]) if len(ends) else 0
    cut_ends = np.union1d(ends, np.arange(length, total, length))
    cut_starts = np.append(0, cut_ends)[: len(cut_ends)]
    document = np.searchsorted(ends, cut_starts, side="right")
    offset = pl.Series("offset", cut_starts - starts[document], pl.Int64)
    lines = lines[document].with_columns(offset)
    return hashed_lines(bin_, kind, Placed(lines, cut_starts, cut_ends, 0))


def mixed(values: np.ndarray) -> np.ndarray:
    """Return 64-bit numbers with all their bits mixed, one to one: the end of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def line_hashes(lines: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return two 64-bit hashes of each line of hashes: its place in its shard, and what is there."""
    low, high = (lines[name].to_numpy() for name in HASH)
    place = lines["mask"].to_numpy()
    for name in ("row", "offset", "tokens"):
        place = mixed(place + np.uint64(GOLDEN)) ^ lines[name].to_numpy().view(np.uint64)
    place = mixed(place + np.uint64(GOLDEN))
    return mixed(low ^ place), mixed(high + place)


GOLDEN = 0x9E3779B97F4A7C15  # an odd number without a pattern, as in SplitMix64


def whole_documents(lines: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return both halves of a hash of each document of which the lines are the pieces.

    What is alike must be cut alike. A line that begins a document never continues another.
    """
    if not (lines["offset"] > 0).any():
        return mixed(lines[HASH[0]].to_numpy()), mixed(lines[HASH[1]].to_numpy())
    lines = lines.sort("shard", "row", "offset", maintain_order=True)
    shards, rows, offsets = (lines[name].to_numpy() for name in ("shard", "row", "offset"))
    begins = offsets == 0
    begins[0] = True
    begins[1:] |= (shards[1:] != shards[:-1]) | (rows[1:] != rows[:-1])
    first = np.flatnonzero(begins)
    piece = np.arange(len(lines)) - np.repeat(first, np.diff(np.append(first, len(lines))))
    salt = mixed(piece.astype(np.uint64))
    low, high = (np.add.reduceat(mixed(lines[name].to_numpy() ^ salt), first) for name in HASH)
    return low, high
