"""First pass of the shuffle: the units of one shard and split, sorted by their keys.

What is written beside each other has keys beside each other, so that the second pass reads a range
of keys in one piece from every shard. A finished folder is known by its name.
"""

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.errors import StorageError
from corpus_platform.formats.slices import Slices, write_array, write_slices
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.shuffle_scratch import (
    BANDS,
    ENDS,
    ENDS_DTYPE,
    IDS,
    LINE,
    LINES,
    LOSS,
    PIECES,
    TOKENS,
    UNIT,
    UNITS,
    ranges,
)
from corpus_platform.stages.shuffle_units import Level, Lines, Units, units_of

__all__ = ["Scatter", "scatter"]


@dataclass(frozen=True)
class Scatter:
    """The bin of one shard and split, and where its units go in the order of their keys."""

    shard: str
    packed: Path
    documents: Path  # the table beside the bins
    name: str
    seed: int
    level: Level
    pad_id: int | None  # for windows of a stream
    documents_before: int  # of earlier shards, in this split
    band_bytes: int  # of the tokens that are sorted at a time
    target: Path


class _Sorted(NamedTuple):
    """Units, the borders of their bands, and their order: that of keys in each band."""

    units: Units
    bands: list[int]
    order: np.ndarray


def scatter(task: Scatter) -> int:
    """Write the units of a shard in the order of their keys; return its tokens.

    Does nothing where that has been done.
    """
    bin_ = open_token_bin(task.packed, task.name)
    if task.target.is_dir():
        return len(bin_.tokens)
    lines = _lines(task, in_rows=bin_.header.row_tokens is not None or task.level.unit == "windows")
    units = units_of(bin_, _as_lines(lines), task.level)
    keys = document_keys(task.seed, task.shard, units.number)
    bands = _bands(units, task.band_bytes // bin_.header.dtype.itemsize)
    order = np.concatenate([a + np.argsort(keys[a:b]) for a, b in itertools.pairwise(bands)])
    folder = task.target.with_name(f"{task.target.name}.part")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write(folder, task, bin_, lines, _Sorted(units, bands, order))
        write_array(folder / UNITS, _table(units, keys, _masked(bin_, units, bands), order))
        write_array(folder / BANDS, np.array(bands, ENDS_DTYPE))
        os.rename(folder, task.target)  # its name says from now on that all is there
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # a full disk is not the place to leave it
        raise StorageError(f"{folder}: cannot be written: {error}") from error
    return len(bin_.tokens)


def _lines(task: Scatter, *, in_rows: bool) -> pl.DataFrame:
    """Return the lines of a bin; a document without a token has no place in a row or a window."""
    columns = ["file", "start", "tokens", "row", "id", "offset"]
    listed = pl.read_parquet(task.documents, columns=columns)
    chosen = (pl.col("file") == bin_file(task.name)) & (pl.col("tokens") >= int(in_rows))
    return listed.filter(chosen).drop("file").sort("start")


def _as_lines(lines: pl.DataFrame) -> Lines:
    return Lines(*(lines[name].to_numpy() for name in ("start", "tokens", "row", "offset")))


def _write(
    folder: Path,
    task: Scatter,
    bin_: TokenBin,
    lines: pl.DataFrame,
    found: _Sorted,
) -> None:
    units, order = found.units, found.order
    bin_.prefetch()
    tokens = Slices.cut(bin_.tokens, units.start, units.held)
    fill = np.full(int(units.filled.max(initial=0)), task.pad_id or 0, bin_.tokens.dtype)
    _write_units(folder / TOKENS, tokens, fill, found, bin_)
    if bin_.loss is not None or len(fill):
        none = np.zeros(len(fill), np.uint8)
        _write_units(folder / LOSS, _loss(bin_, units), none, found, bin_)
    line, entry = ranges(units.line, order), ranges(units.entry, order)
    _write_lines(folder, lines, units, line)
    write_array(folder / ENDS, units.entry_end[entry].astype(ENDS_DTYPE))
    if units.pieces is not None:
        pieces = units.pieces[entry]
        pieces["document"] += np.where(pieces["document"] < 0, 0, task.documents_before)
        write_array(folder / PIECES, pieces)


def _table(units: Units, keys: np.ndarray, masked: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the records of units in their new order, and one more with what all of them have."""
    begun = np.concatenate(([0], np.cumsum(units.line_offset == 0)))
    counts = {
        "token": units.held + units.filled,
        "line": np.diff(units.line),
        "entry": np.diff(units.entry),
        "padding": units.padding,
        "begun": begun[units.line[1:]] - begun[units.line[:-1]],
        "masked": masked,
    }
    table: np.ndarray = np.zeros(len(order) + 1, UNIT)
    table["key"][:-1] = keys[order]
    for name, count in counts.items():
        np.cumsum(count[order], out=table[name][1:])
    return table


def _masked(bin_: TokenBin, units: Units, bands: Sequence[int]) -> np.ndarray:
    """Return which units have a token whose loss does not count, looking at a band at a time."""
    masked = units.padding > 0
    if bin_.loss is None:
        return masked
    for first, after in itertools.pairwise(bands):
        held = first + np.flatnonzero(units.held[first:after])
        if len(held):
            begin, end = units.start[held[0]], units.start[held[-1]] + units.held[held[-1]]
            loss = bin_.loss[begin:end]
            masked[held] |= np.minimum.reduceat(loss, units.start[held] - begin) == 0
            bin_.forget()
    return masked


def _loss(bin_: TokenBin, units: Units) -> Slices:
    """Return the mask of each unit."""
    if bin_.loss is not None:
        return Slices.cut(bin_.loss, units.start, units.held)
    ones = np.ones(int(units.held.max(initial=0)), np.uint8)
    return Slices.cut(ones, np.zeros(len(units.held), np.int64), units.held)


def _bands(units: Units, tokens: int) -> list[int]:
    """Return where bands of units with about so many tokens begin, and the end; there is one at least."""
    band = np.cumsum(units.held) // max(1, tokens)
    count = len(band)
    return [0, *(np.flatnonzero(np.diff(band)) + 1).tolist(), count]


def _write_units(
    path: Path, values: Slices, fill: np.ndarray, found: _Sorted, bin_: TokenBin
) -> None:
    """Write the values of units in their order, each followed by what fills it up.

    A band lies side by side in the bin; after it, its memory is given back.
    """
    filling = Slices.cut(fill, np.zeros_like(found.units.filled), found.units.filled)
    both, offset = Slices.joined([values, filling]), 0
    with path.open("wb") as file:
        for first, after in itertools.pairwise(found.bands):
            chosen = found.order[first:after]
            if len(fill):
                chosen = np.column_stack((chosen, chosen + len(found.order))).ravel()
            part = both[chosen]
            write_slices(file.fileno(), part, offset)
            offset += int(part.sizes.sum())
            if after < found.bands[-1]:
                bin_.forget()


def _write_lines(folder: Path, lines: pl.DataFrame, units: Units, line: np.ndarray) -> None:
    """Write the lines of units in their new order, each with its place in its unit."""
    moved = lines.select("row", "id")[units.line_of[line]]
    table: np.ndarray = np.zeros(len(line) + 1, LINE)
    table["start"][:-1] = units.line_start[line]
    table["tokens"][:-1] = units.line_tokens[line]
    table["row"][:-1] = moved["row"].to_numpy()
    table["offset"][:-1] = units.line_offset[line]
    np.cumsum(moved["id"].str.len_bytes().to_numpy(), out=table["id"][1:], dtype=np.int64)
    write_array(folder / LINES, table)
    (folder / IDS).write_text(moved["id"].str.join("")[0], encoding="utf-8", newline="")
