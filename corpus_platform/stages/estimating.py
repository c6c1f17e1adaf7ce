"""Merges the codes of candidate pairs, and counts on how many values their signatures agree.

The codes of all pieces are cut into blocks by value; a block is merged, looked up among the known
pairs, and of the others the signatures are read: each document's once a block, in the order in which
they lie.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import merge_codes
from corpus_platform.dedup.verification import agreements
from corpus_platform.engines.local import map_pieces, worth
from corpus_platform.stages.known_pairs import KnownPairs, Pairs, lookup
from corpus_platform.stages.minhash_signatures import signature_values
from corpus_platform.stages.numbering import Numbering, parts_by_shard
from corpus_platform.stages.project import Progress

__all__ = ["Estimated", "estimate_pairs"]

BLOCK_CODES = 1 << 18  # 512 MB of signatures where no two pairs share a document
WORKER_CODES = 1 << 21  # that a worker of its own is worth
GATHERED = 1 << 12  # pairs whose signatures are laid side by side
END = 1 << 64


class _Block(NamedTuple):
    files: Sequence[Path]
    low: int
    high: int
    known: KnownPairs
    stored: "_Stored"
    dedup: DedupSettings


class _Stored(NamedTuple):
    """Where signatures lie: folders of the shards, ends of their positions, positions by number.

    Positions are in a file that all blocks map: they are as many as there are documents.
    """

    folders: Sequence[Path]
    ends: np.ndarray
    positions: Path


class Estimated(NamedTuple):
    """All candidate pairs with what is known of them; signatures and known pairs that were read."""

    pairs: Pairs
    signatures_read: int
    reused: int


def estimate_pairs(
    files: Sequence[Path],
    known: KnownPairs,
    numbering: Numbering,
    dedup: DedupSettings,
    scratch: Path,
    *,
    workers: int,
    progress: Progress,
) -> Estimated:
    """Return the distinct pairs of some files of codes, each with its count of equal values."""
    mapped = [_mapped(path) for path in files]
    folders = [signed.folder for signed in numbering.signed]
    stored = _Stored(folders, numbering.ends, scratch / "positions.i64")
    numbering.position.tofile(stored.positions)
    blocks = [
        _Block(files, low, high, known, stored, dedup) for low, high in _blocks(mapped, 0, END)
    ]
    parts, read, reused = [Pairs(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0))], 0, 0
    workers = worth(workers, sum(map(len, mapped)), share=WORKER_CODES)
    for done, one in enumerate(map_pieces(_estimate, blocks, workers=workers)):
        parts.append(one.pairs)
        read, reused = read + one.signatures_read, reused + one.reused
        progress(done + 1, len(blocks))
    whole = Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return Estimated(whole, read, reused)


def _mapped(path: Path) -> np.ndarray:
    return np.memmap(path, np.uint64, mode="r") if path.stat().st_size else np.empty(0, np.uint64)


def _blocks(files: Sequence[np.ndarray], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of codes, ascending, that hold at most BLOCK_CODES of all files together."""
    count = sum(_place(codes, high) - _place(codes, low) for codes in files)
    if count > BLOCK_CODES and high - low > 1:
        yield from _blocks(files, low, (low + high) // 2)
        yield from _blocks(files, (low + high) // 2, high)
    elif count:
        yield low, high


def _place(codes: np.ndarray, bound: int) -> int:
    return len(codes) if bound == END else int(np.searchsorted(codes, np.uint64(bound)))


def _estimate(block: _Block) -> Estimated:
    mapped = [_mapped(path) for path in block.files]
    codes = merge_codes(c[_place(c, block.low) : _place(c, block.high)] for c in mapped)
    agreeing, similarity, found = lookup(block.known.read(), codes)
    new = np.flatnonzero(~found)
    earlier, later = codes[new] >> np.uint64(32), codes[new] & np.uint64(0xFFFFFFFF)
    numbers = np.unique(np.concatenate([earlier, later])).astype(np.int64)
    values = _signatures(block.stored, numbers, block.dedup)
    a, b = np.searchsorted(numbers, earlier), np.searchsorted(numbers, later)
    for start in range(0, len(new), GATHERED):
        part = slice(start, start + GATHERED)
        agreeing[new[part]] = agreements(values[a[part]], values[b[part]])
    return Estimated(Pairs(codes, agreeing, similarity), len(numbers), int(found.sum()))


def _signatures(stored: _Stored, numbers: np.ndarray, dedup: DedupSettings) -> np.ndarray:
    """Return the signatures of some documents, read shard by shard in the order of the files."""
    positions = np.memmap(stored.positions, np.int64, mode="r")[numbers]
    order = np.argsort(positions)
    values = np.empty((len(numbers), dedup.permutations), np.uint32)
    for shard, part in parts_by_shard(stored.ends, positions[order]):
        start = int(stored.ends[shard - 1]) if shard else 0
        mapped = signature_values(stored.folders[shard], dedup)
        values[order[part]] = mapped[positions[order[part]] - start]
    return values
