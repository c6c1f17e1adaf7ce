"""First pass of the shuffle: the units of one shard and split, sorted by their keys.

What is written beside each other has keys beside each other, so that the second pass reads a range
of keys in one piece from every shard. A finished folder is known by its name.
"""

import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.errors import StorageError
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.formats.token_bin_parts import Slices, write_slices
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.shuffle_units import Level, Lines, Units, units_of
from corpus_platform.storage.files import flush_file

__all__ = [
    "ENDS",
    "LINES",
    "LOSS",
    "PIECES",
    "TOKENS",
    "UNIT",
    "UNITS",
    "Scatter",
    "ranges",
    "scatter",
]

TOKENS, LOSS, ENDS, PIECES = "tokens", "loss", "ends.npy", "pieces.npy"
UNITS, LINES = "units.npy", "lines.arrow"
# Of each unit: its key, where its tokens, lines and entries begin in the folder, and how much of
# everything it has: a range of units is found without a look at those before it.
UNIT = np.dtype(
    [
        ("key", "<u8"),
        ("first_token", "<i8"),
        ("first_line", "<i8"),
        ("first_entry", "<i8"),
        ("tokens", "<i8"),
        ("padding", "<i8"),
        ("filled", "<i8"),
        ("lines", "<i8"),
        ("begun", "<i8"),
        ("entries", "<i8"),
        ("masked", "u1"),
    ]
)


@dataclass(frozen=True)
class Scatter:
    """The bin of one shard and split, and where its units go in the order of their keys."""

    shard: str
    packed: Path
    documents: Path  # the table beside the bins
    name: str
    seed: int
    level: Level
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
    order = np.argsort(document_keys(task.seed, task.shard, units.number), kind="stable")
    folder = task.target.with_name(f"{task.target.name}.part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        _write(folder, task, bin_, lines, units, order)
        for path in (*folder.iterdir(), folder):  # its name says from now on that all is there
            flush_file(path)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error}") from error
    os.rename(folder, task.target)
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
    order: np.ndarray,
) -> None:
    masked = _masked(bin_, units)
    _write_tokens(folder / TOKENS, bin_.tokens, units, order)
    if bin_.loss is not None:
        _write_tokens(folder / LOSS, bin_.loss, units, order)
    line, entry = ranges(units.line, order), ranges(units.entry, order)
    _moved_lines(lines, units, line).write_ipc(folder / LINES)
    np.save(folder / ENDS, units.entry_end[entry])
    if units.pieces is not None:
        pieces = units.pieces[entry]
        pieces["document"] += np.where(pieces["document"] < 0, 0, task.documents_before)
        np.save(folder / PIECES, pieces)
    np.save(folder / UNITS, _table(task, units, masked, order))


def _table(task: Scatter, units: Units, masked: np.ndarray, order: np.ndarray) -> np.ndarray:
    table: np.ndarray = np.zeros(len(units.number), UNIT)
    table["key"] = document_keys(task.seed, task.shard, units.number)
    table["tokens"], table["padding"] = units.held + units.filled, units.padding
    table["filled"] = units.filled
    table["lines"], table["entries"] = np.diff(units.line), np.diff(units.entry)
    begun = np.concatenate(([0], np.cumsum(units.line_offset == 0)))
    table["begun"], table["masked"] = begun[units.line[1:]] - begun[units.line[:-1]], masked
    table = table[order]
    for first, count in (("first_token", "tokens"), ("first_line", "lines"), ("first_entry", "entries")):  # fmt: skip
        table[first] = np.cumsum(table[count]) - table[count]
    return table


def _masked(bin_: TokenBin, units: Units) -> np.ndarray:
    """Return which units have a token whose loss does not count."""
    masked = units.padding > 0
    if bin_.loss is not None and len(bin_.loss):
        zeros = np.concatenate(([0], np.cumsum(bin_.loss == 0)))
        masked |= zeros[units.start + units.held] > zeros[units.start]
    return masked


def _write_tokens(path: Path, values: np.ndarray, units: Units, order: np.ndarray) -> None:
    """Write the values of units one after the other; what fills them up stays zero."""
    starts, held, whole = (a[order] for a in (units.start, units.held, units.held + units.filled))
    offsets = np.cumsum(whole) - whole
    borders = [0, *(np.flatnonzero(units.filled[order]) + 1).tolist(), len(order)]
    with path.open("wb") as file:
        file.truncate(int(whole.sum()) * values.itemsize)
        for first, after in itertools.pairwise(borders):
            part = slice(first, after)
            if first < after:
                slices = Slices(values, starts[part], held[part])
                write_slices(file.fileno(), slices, int(offsets[first]) * values.itemsize)


def _moved_lines(lines: pl.DataFrame, units: Units, line: np.ndarray) -> pl.DataFrame:
    """Return the lines of units in their new order, each with its place in its unit."""
    return lines[units.line_of[line]].select(
        pl.Series("start", units.line_start[line]),
        pl.Series("tokens", units.line_tokens[line]),
        "row",
        "id",
        pl.Series("offset", units.line_offset[line]),
    )


def ranges(borders: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return what lies between borders, range by range in an order."""
    counts = np.diff(borders)[order]
    before = np.cumsum(counts) - counts
    return np.repeat(borders[:-1][order] - before, counts) + np.arange(int(counts.sum()))
