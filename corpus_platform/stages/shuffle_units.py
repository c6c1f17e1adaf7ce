"""What moves as one in a shuffle: a document, a block of documents, a window, or a row.

From the bin of one shard and split, and the lines of its documents, to units in their order there;
nothing is read but the index. A window is cut from the stream wherever it falls: its pieces are
kept, and the last one of a shard is filled up with padding.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from corpus_platform.formats.token_bin import PIECE_DTYPE, TokenBin, pieces_of
from corpus_platform.packing.files import cut_files

__all__ = ["Level", "Lines", "Units", "units_of"]

Unit = Literal["documents", "chunks", "windows"]


class Level(NamedTuple):
    """How large units are; `tokens` is that of a block or a window."""

    unit: Unit
    tokens: int


@dataclass(frozen=True)
class Lines:
    """The lines of the documents of a bin, or of their pieces, by where they start."""

    start: np.ndarray
    tokens: np.ndarray
    row: np.ndarray
    offset: np.ndarray


@dataclass(frozen=True)
class Units:
    """Units in the order of a bin: each is [start, start + held) of its tokens, then `filled` up.

    `number` is what the key of a unit is made of, `padding` counts what lies in it already and what
    fills it up. `line` and `entry` are where the units' lines
    and entries begin, with one more at the end: those of unit i are [line[i], line[i + 1]). The
    lines may be cut to units: `line_of` is the document's, `line_start` counts from the unit.
    `entry_end` counts from the unit too, and `pieces` are those of rows, else None.
    """

    number: np.ndarray
    start: np.ndarray
    held: np.ndarray
    filled: np.ndarray
    padding: np.ndarray
    line: np.ndarray
    line_of: np.ndarray
    line_start: np.ndarray
    line_tokens: np.ndarray
    line_offset: np.ndarray
    entry: np.ndarray
    entry_end: np.ndarray
    pieces: np.ndarray | None


def units_of(bin_: TokenBin, lines: Lines, level: Level) -> Units:
    """Return the units of a bin; rows are units whatever the level."""
    if bin_.header.row_tokens is not None:
        return _rows(bin_, lines)
    if level.unit == "windows":
        return _windows(bin_, lines, level.tokens)
    return _documents(lines, level.tokens if level.unit == "chunks" else 0)


def _documents(lines: Lines, chunk_tokens: int) -> Units:
    """Return each document, or with `chunk_tokens` blocks of documents of up to so many tokens."""
    count = len(lines.start)
    if chunk_tokens:
        block = cut_files(lines.tokens, max_tokens=chunk_tokens).file
        first = np.flatnonzero(np.diff(block, prepend=-1))
    else:
        first = np.arange(count)
    line = np.append(first, count)
    ends = lines.start + lines.tokens
    start = lines.start[first]
    held = ends[line[1:] - 1] - start
    inside = np.repeat(start, np.diff(line))
    return Units(
        number=lines.row[first],
        start=start,
        held=held,
        filled=np.zeros(len(start), np.int64),
        padding=np.zeros(len(start), np.int64),
        line=line,
        line_of=np.arange(count),
        line_start=lines.start - inside,
        line_tokens=lines.tokens,
        line_offset=lines.offset,
        entry=line,
        entry_end=ends - inside,
        pieces=None,
    )


def _rows(bin_: TokenBin, lines: Lines) -> Units:
    length, rows = bin_.header.row_tokens, bin_.header.rows
    assert length is not None
    assert bin_.pieces is not None
    borders = np.arange(rows + 1) * length
    ends = bin_.ends.astype(np.int64)
    entry = np.append(0, np.searchsorted(ends, borders[1:]) + 1)
    line = np.searchsorted(lines.start, borders)
    return Units(
        number=np.arange(rows),
        start=borders[:-1],
        held=np.full(rows, length),
        filled=np.zeros(rows, np.int64),
        padding=_padding(ends, bin_.pieces, entry),
        line=line,
        line_of=np.arange(len(lines.start)),
        line_start=lines.start - np.repeat(borders[:-1], np.diff(line)),
        line_tokens=lines.tokens,
        line_offset=lines.offset,
        entry=entry,
        entry_end=ends - np.repeat(borders[:-1], np.diff(entry)),
        pieces=bin_.pieces,
    )


def _padding(ends: np.ndarray, pieces: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """Return how many tokens of each row are padding already."""
    lengths = np.where(pieces["document"] < 0, np.diff(ends, prepend=0), 0)
    total = np.concatenate(([0], np.cumsum(lengths)))
    return total[entry[1:]] - total[entry[:-1]]


def _windows(bin_: TokenBin, lines: Lines, length: int) -> Units:
    """Cut the stream into windows; documents become pieces wherever a border falls."""
    total = len(bin_.tokens)
    windows = -(-total // length)
    borders = np.minimum(np.arange(windows + 1) * length, total)
    ends = np.union1d(lines.start + lines.tokens, borders[1:])
    starts = np.concatenate(([0], ends[:-1]))[: len(ends)]
    document = np.searchsorted(lines.start + lines.tokens, starts, side="right")
    offset = starts - lines.start[document] if len(document) else starts
    line = np.searchsorted(starts, borders)
    line[-1] = len(starts)
    inside = np.repeat(borders[:-1], np.diff(line))
    filled = np.diff(np.arange(windows + 1) * length) - np.diff(borders)
    return Units(
        number=np.arange(windows),
        start=borders[:-1],
        held=np.diff(borders),
        filled=filled,
        padding=filled,
        line=line,
        line_of=document,
        line_start=starts - inside,
        line_tokens=ends - starts,
        line_offset=offset,
        **_padded_entries(line, ends - inside, document, offset, length, padded=bool(filled.any())),
    )


def _padded_entries(
    line: np.ndarray,
    ends: np.ndarray,
    document: np.ndarray,
    offset: np.ndarray,
    length: int,
    *,
    padded: bool,
) -> dict[str, np.ndarray]:
    """Return the entries of windows: their pieces, and the padding of the last one."""
    entry, pieces = line.copy(), pieces_of(document, offset)
    if padded:
        entry[-1] += 1
        ends = np.append(ends, length)
        pieces = np.append(pieces, np.array([(-1, 0)], PIECE_DTYPE))
    return {"entry": entry, "entry_end": ends, "pieces": pieces}
