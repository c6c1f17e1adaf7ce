"""Documents of token bins, or their pieces, by count and hash of tokens and of masks, to compare."""

import numpy as np
import polars as pl
import xxhash

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.stages.bins_writing import BIN_NAMES

__all__ = ["FOUND", "HASH", "hashed", "hashed_windows", "places"]

HASH = ["low", "high"]  # halves of the 128-bit hash of a document's tokens
FOUND = {
    "train": pl.Boolean,
    "shard": pl.Int32,
    "row": pl.Int64,
    "offset": pl.Int64,
    "tokens": pl.Int64,
    **dict.fromkeys(HASH, pl.UInt64),
    "mask": pl.UInt64,  # hash of the mask, 0 where all tokens count
}
FORGOTTEN_AFTER = 1 << 14  # documents


def places(bin_: TokenBin) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where documents or their pieces start and end by the index, and their offsets."""
    ends = bin_.ends.astype(np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
    if bin_.pieces is None:
        return starts, ends, np.zeros(len(ends), np.int64)
    real = bin_.pieces["document"] >= 0
    return starts[real], ends[real], bin_.pieces["offset"][real]


def hashed(bin_: TokenBin, kind: str, lines: pl.DataFrame) -> pl.DataFrame:
    """Return count and hashes of the tokens between the ends of the index, by document or piece."""
    starts, ends, _ = places(bin_)
    return _hashes(bin_, kind, lines, starts, ends)


def _hashes(
    bin_: TokenBin, kind: str, lines: pl.DataFrame, starts: np.ndarray, ends: np.ndarray
) -> pl.DataFrame:
    """Return count and hashes of the tokens of each line; one that has no ends has none."""
    count = min(len(lines), len(ends))
    tokens = np.zeros(len(lines), np.int64)
    tokens[:count] = (ends - starts)[:count]
    hashes, masks = bytearray(16 * len(lines)), np.zeros(len(lines), np.uint64)
    for i in range(len(lines)):
        if i % FORGOTTEN_AFTER == 0:
            bin_.forget()
        place = slice(int(starts[i]), int(ends[i])) if i < count else slice(0)
        hashes[16 * i : 16 * i + 16] = xxhash.xxh3_128_digest(bin_.tokens[place].tobytes())
        if bin_.loss is not None and not bin_.loss[place].all():
            masks[i] = xxhash.xxh3_64_intdigest(bin_.loss[place].tobytes())
    halves = np.frombuffer(hashes, "<u8").reshape(-1, 2)
    return lines.select(
        pl.lit(kind == BIN_NAMES["train"]).alias("train"),
        "shard",
        "row",
        "offset",
        pl.Series("tokens", tokens),
        *(pl.Series(name, halves[:, i].copy()) for i, name in enumerate(HASH)),
        pl.Series("mask", masks),
    )


def hashed_windows(bin_: TokenBin, kind: str, lines: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return count and hashes of what windows of a length make of the documents of a stream."""
    starts, ends, _ = places(bin_)
    lines = lines.head(len(ends))
    starts, ends = starts[: len(lines)], ends[: len(lines)]
    filled = ends > starts
    lines, starts, ends = lines.filter(pl.Series(filled)), starts[filled], ends[filled]
    total = int(ends[-1]) if len(ends) else 0
    cut_ends = np.union1d(ends, np.arange(length, total, length))
    cut_starts = np.append(0, cut_ends)[: len(cut_ends)]
    document = np.searchsorted(ends, cut_starts, side="right")
    offset = pl.Series("offset", cut_starts - starts[document], pl.Int64)
    return _hashes(bin_, kind, lines[document].with_columns(offset), cut_starts, cut_ends)
