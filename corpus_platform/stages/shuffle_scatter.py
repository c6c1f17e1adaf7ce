"""First pass of the shuffle: the units of one shard and split, sorted by their keys.

What is written beside each other has keys beside each other, so that the second pass reads a range
of keys in one piece from every shard. A finished folder is known by its name.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.errors import StorageError
from corpus_platform.formats.slices import Slices, write_array, write_slices
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.shuffle_scratch import (
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
    target: Path


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
    order = np.argsort(keys, kind="stable")
    folder = task.target.with_name(f"{task.target.name}.part")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write(folder, task, bin_, lines, units, order=order)
        write_array(folder / UNITS, _table(units, keys, _masked(bin_, units), order))
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
    units: Units,
    *,
    order: np.ndarray,
) -> None:
    bin_.prefetch()
    _write_units(folder / TOKENS, bin_.tokens, units, order, fill=task.pad_id)
    if bin_.loss is not None or units.filled.any():
        loss = np.ones(len(bin_.tokens), np.uint8) if bin_.loss is None else bin_.loss
        _write_units(folder / LOSS, loss, units, order, fill=0)
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


def _masked(bin_: TokenBin, units: Units) -> np.ndarray:
    """Return which units have a token whose loss does not count."""
    masked = units.padding > 0
    if bin_.loss is not None and len(bin_.loss):
        zeros = np.concatenate(([0], np.cumsum(bin_.loss == 0)))
        masked |= zeros[units.start + units.held] > zeros[units.start]
    return masked


def _write_units(
    path: Path, values: np.ndarray, units: Units, order: np.ndarray, *, fill: int | None
) -> None:
    """Write the values of units one after the other, filled up with a value."""
    slices = Slices.cut(values, units.start, units.held)[order]
    if units.filled.any():
        filling = np.full(int(units.filled.max()), fill, values.dtype)
        none = np.zeros(len(order), np.int64)
        filled = Slices.cut(filling, none, units.filled[order])
        each = np.arange(2 * len(order)).reshape(2, -1).T.ravel()  # unit, filling, unit, …
        slices = Slices.joined([slices, filled])[each]
    with path.open("wb") as file:
        write_slices(file.fileno(), slices, 0)


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
