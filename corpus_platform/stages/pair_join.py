"""Finds exact copies and candidate pairs: reads the bucket rows of all shards, piece by piece.

A piece is one band (or the exact keys) and a range of first bytes, so that its memory is bounded and
pieces run side by side, here or on other machines. Of all rows only 12 bytes a band and document are
read; what a piece found lies in a file of its own. Canaries are copies of the first document that
exist in the comparison alone: one that is not found says that a band was not searched.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import band_hashes, bucket_pairs
from corpus_platform.dedup.clusters import collapse_exact
from corpus_platform.engines.local import map_pieces, worth
from corpus_platform.formats.bucket_rows import PREFIXES, BucketRows
from corpus_platform.formats.slices import write_array
from corpus_platform.stages.minhash_signatures import (
    band_rows,
    big_endian,
    exact_rows,
    signature_values,
)
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.project import Progress

__all__ = ["COPY", "SEARCHED", "Copies", "Found", "find_copies", "find_pairs"]

PIECE_ROWS = 1 << 21  # about 60 bytes each in the join
WORKER_KEYS = 1 << 22  # that a worker of its own is worth: about a second
SEARCH_CAP = 1024  # members of a bucket with which a validation document is compared


@dataclass(frozen=True)
class _Sources:
    """What all pieces read: the shards' files, and per position its number and what it is."""

    folders: Sequence[Path]  # of the signatures, by shard
    ends: np.ndarray
    numbers: Path  # int64 [positions]
    marks: Path  # uint8 [positions], see below
    dedup: DedupSettings


COPY, SEARCHED = 1, 2  # bits of a mark: it is an exact copy; it is searched for in all of train


class _Piece(NamedTuple):
    sources: _Sources
    section: int
    first: int
    last: int
    canary: tuple[bytes, int]  # key and number
    target: Path


class Copies(NamedTuple):
    """The numbers of exact copies, and of the first document with the same key; bytes of rows read."""

    copies: np.ndarray
    firsts: np.ndarray
    canaries_found: int
    bytes_read: int


class Found(NamedTuple):
    """The files of the pieces: codes of candidate pairs, and of pairs of the searched documents."""

    pairs: Sequence[Path]
    searched: Sequence[Path]
    capped_buckets: int
    canaries: int
    canaries_found: int
    bytes_read: int


class _Joined(NamedTuple):
    capped: int
    canaries_found: int
    bytes_read: int


def find_copies(
    numbering: Numbering, dedup: DedupSettings, scratch: Path, *, workers: int
) -> Copies:
    """Find the documents that have the exact key of an earlier one; one canary is among them."""
    sources = _sources(numbering, dedup, scratch, np.zeros(len(numbering), np.uint8))
    canary = _first_exact_key(numbering, dedup), len(numbering)
    pieces = [
        _Piece(sources, 0, first, last, canary, scratch / f"copies-{first}.npy")
        for first, last in _ranges(len(numbering))
    ]
    bytes_read, parts = 0, [np.empty((2, 0), np.int64)]
    workers = worth(workers, len(numbering), share=WORKER_KEYS)
    for piece, count in zip(pieces, map_pieces(_collapse, pieces, workers=workers), strict=True):
        bytes_read += count
        parts.append(np.load(piece.target))
        piece.target.unlink()
    copies, firsts = np.concatenate(parts, axis=1)
    is_canary = copies == canary[1]
    found = int(np.count_nonzero(firsts[is_canary] == 0))
    order = np.argsort(copies[~is_canary])
    return Copies(copies[~is_canary][order], firsts[~is_canary][order], found, bytes_read)


def find_pairs(
    numbering: Numbering,
    dedup: DedupSettings,
    scratch: Path,
    marks: np.ndarray,
    *,
    workers: int,
    progress: Progress,
) -> Found:
    """Find the candidate pairs of all bands; copies (marks, by position) stand in none."""
    sources = _sources(numbering, dedup, scratch, marks)
    keys = _first_band_keys(numbering, dedup)
    pieces = [
        _Piece(
            sources, band, first, last, (key, len(numbering) + band), scratch / f"{band}-{first}"
        )
        for band, key in enumerate(keys)
        for first, last in _ranges(len(numbering))
    ]
    workers = worth(workers, len(numbering) * len(keys), share=WORKER_KEYS)
    totals = np.zeros(3, np.int64)
    for done, one in enumerate(map_pieces(_join, pieces, workers=workers)):
        totals += one
        progress(done + 1, len(pieces))
    capped, found, bytes_read = totals.tolist()
    return Found(
        pairs=[p.target.with_suffix(".pairs") for p in pieces],
        searched=[p.target.with_suffix(".searched") for p in pieces],
        capped_buckets=capped,
        canaries=len(keys),
        canaries_found=found,
        bytes_read=bytes_read,
    )


def _sources(
    numbering: Numbering, dedup: DedupSettings, scratch: Path, marks: np.ndarray
) -> _Sources:
    write_array(scratch / "numbers.i64", numbering.number)
    write_array(scratch / "marks.u8", marks)
    return _Sources(
        [signed.folder for signed in numbering.signed],
        numbering.ends,
        scratch / "numbers.i64",
        scratch / "marks.u8",
        dedup,
    )


def _ranges(documents: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of first bytes that hold about PIECE_ROWS keys each."""
    pieces = min(PREFIXES, max(1, math.ceil(documents / PIECE_ROWS)))
    cuts = [PREFIXES * i // pieces for i in range(pieces + 1)]
    yield from itertools.pairwise(cuts)


def _first_place(numbering: Numbering) -> tuple[int, int]:
    """Return shard and place of the document that counts first."""
    position = int(numbering.position[0])
    shard = int(numbering.shard_of(np.array([position]))[0])
    return shard, position - numbering.bounds(shard)[0]


def _first_band_keys(numbering: Numbering, dedup: DedupSettings) -> list[bytes]:
    """Return the keys of the first document, from its signature and not from the rows."""
    shard, place = _first_place(numbering)
    values = signature_values(numbering.signed[shard].folder, dedup)
    hashes = band_hashes(np.array(values[place : place + 1]), *dedup.banding)
    return [keys.tobytes() for keys in big_endian(hashes)]


def _first_exact_key(numbering: Numbering, dedup: DedupSettings) -> bytes:
    shard, place = _first_place(numbering)
    keys, documents = exact_rows(numbering.signed[shard].folder, dedup).read(0)
    return keys[documents == place][0].tobytes()


def _collapse(piece: _Piece) -> int:
    """Write the copies among the keys of a piece; return the bytes of rows read."""
    keys, numbers, _, bytes_read = _gather(piece, exact_rows)
    with piece.target.open("wb") as file:
        np.save(file, np.stack(collapse_exact(keys, numbers)))
    return bytes_read


def _join(piece: _Piece) -> _Joined:
    """Write the pairs of a piece, without its canary's; return what was counted."""
    keys, numbers, marks, bytes_read = _gather(piece, band_rows)
    single = marks & COPY == 0
    hashes = keys.view(">u8").astype(np.uint64)[:, 0]
    searched = marks[single] & SEARCHED != 0
    found = bucket_pairs(
        hashes[single],
        numbers[single],
        cap=piece.sources.dedup.bucket_cap,
        searched=searched,
        # Never below the cap: so a bucket that a search is cut in is counted as capped.
        search_cap=max(SEARCH_CAP, piece.sources.dedup.bucket_cap),
    )
    documents, canary = np.uint64(piece.sources.ends[-1]), np.uint64(piece.canary[1])
    for codes, name in ((found.codes, ".pairs"), (found.searched, ".searched")):
        real = codes & np.uint64(0xFFFFFFFF) < documents  # the later one; canaries come last
        write_array(piece.target.with_suffix(name), codes[real])
    # Number 0 is the first of its bucket, and 0 << 32 | canary the code of the two.
    size = np.count_nonzero(hashes[single] == np.frombuffer(piece.canary[0], ">u8")[0])
    only_by_canary = size == piece.sources.dedup.bucket_cap + 2
    return _Joined(found.capped - int(only_by_canary), int(canary in found.codes), bytes_read)


def _gather(
    piece: _Piece, open_rows: Callable[[Path, DedupSettings], BucketRows]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return keys, numbers and marks of the rows of a piece over all shards, and the bytes read."""
    sources = piece.sources
    all_numbers = (
        np.memmap(sources.numbers, np.int64, mode="r") if sources.ends[-1] else np.empty(0)
    )
    all_marks = np.memmap(sources.marks, np.uint8, mode="r") if sources.ends[-1] else np.empty(0)
    keys, numbers, marks, bytes_read, start = [], [], [], 0, 0
    for folder, end in zip(sources.folders, sources.ends.tolist(), strict=True):
        rows = open_rows(folder, sources.dedup)
        found = rows.read(piece.section, piece.first, piece.last)
        bytes_read += rows.bytes_read
        places = found.documents.astype(np.int64) + start
        keys.append(found.keys)
        numbers.append(all_numbers[places])
        marks.append(all_marks[places])
        start = end
    key, number = piece.canary
    if piece.first <= key[0] < piece.last:
        keys.append(np.frombuffer(key, np.uint8)[None, :])
        numbers.append(np.array([number], np.int64))
        marks.append(np.zeros(1, np.uint8))
    return np.concatenate(keys), np.concatenate(numbers), np.concatenate(marks), bytes_read
