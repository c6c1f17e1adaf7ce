"""Merges the codes of candidate pairs, and counts on how many values their signatures agree.

The codes of all pieces are cut into blocks by value; a block is merged, looked up among the known
pairs, and of the others the signatures are read: each document's once a block, in the order in which
they lie.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import merge_codes
from corpus_platform.dedup.hashes import distinct
from corpus_platform.dedup.verification import agreements
from corpus_platform.engines.local import map_pieces, worth
from corpus_platform.formats.slices import write_array
from corpus_platform.stages.known_pairs import KnownPairs, Pairs, lookup
from corpus_platform.stages.minhash_signatures import signature_values
from corpus_platform.stages.numbering import Numbering, parts_by_shard
from corpus_platform.stages.project import Progress

__all__ = ["Estimated", "estimate_pairs"]

BLOCK_VALUES = (
    1 << 26
)  # of signatures, 4 bytes each, where no two pairs of a block share a document
WORKER_CODES = 1 << 21  # that a worker of its own is worth
GATHERED = 1 << 12  # pairs whose signatures are laid side by side
CODE = np.dtype(np.uint64)


class _Block(NamedTuple):
    """Of each file the codes from a place to another."""

    files: Sequence[Path]
    starts: np.ndarray
    ends: np.ndarray
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
    folders = [signed.folder for signed in numbering.signed]
    stored = _Stored(folders, numbering.ends, scratch / "positions.i64")
    write_array(stored.positions, numbering.position)
    most = max(1, BLOCK_VALUES // (2 * dedup.permutations))
    blocks = [
        _Block(files, starts, ends, known, stored, dedup) for starts, ends in _blocks(files, most)
    ]
    parts, read, reused = [Pairs(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0))], 0, 0
    codes = sum(path.stat().st_size for path in files) // CODE.itemsize
    workers = worth(workers, codes, share=WORKER_CODES)
    for done, one in enumerate(map_pieces(_estimate, blocks, workers=workers)):
        parts.append(one.pairs)
        read, reused = read + one.signatures_read, reused + one.reused
        progress(done + 1, len(blocks))
    whole = Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return Estimated(whole, read, reused)


def _blocks(files: Sequence[Path], most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield where blocks begin and end in each file, ascending, of about `most` codes together.

    A code of several files is in one block. Where to cut is seen in some of the codes, evenly spread,
    of each file: a block may be a sixteenth larger.
    """
    step = max(1, most // (16 * len(files)))
    sample = np.sort(np.concatenate([np.array(_mapped(path)[::step]) for path in files]))
    bounds = distinct(sample[:: most // step])[1:]  # the first block begins with the lowest
    cuts = np.empty((len(bounds) + 2, len(files)), np.int64)
    for i, path in enumerate(files):
        codes = _mapped(path)
        cuts[:, i] = 0, *np.searchsorted(codes, bounds), len(codes)
    for starts, ends in itertools.pairwise(cuts):
        if (ends > starts).any():
            yield starts, ends


def _mapped(path: Path) -> np.ndarray:
    """Map a file of codes; one at a time, since a thousand are more than a process may open."""
    return np.memmap(path, CODE, mode="r") if path.stat().st_size else np.empty(0, CODE)


def _parts(block: _Block) -> Iterator[np.ndarray]:
    """Yield the codes of a block, file by file."""
    for path, start, end in zip(
        block.files, block.starts.tolist(), block.ends.tolist(), strict=True
    ):
        if end > start:
            yield np.fromfile(path, CODE, end - start, offset=start * CODE.itemsize)


def _estimate(block: _Block) -> Estimated:
    codes = merge_codes(_parts(block))
    agreeing, similarity, found = lookup(block.known.read(), codes)
    new = np.flatnonzero(~found)
    earlier, later = codes[new] >> np.uint64(32), codes[new] & np.uint64(0xFFFFFFFF)
    numbers = distinct(np.concatenate([earlier, later])).astype(np.int64)
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
