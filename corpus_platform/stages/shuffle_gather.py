"""Second pass of the shuffle: a range of keys, from every shard, sorted and written to its place.

A range is held in memory; ranges are independent of each other, since where each unit goes has
been settled from keys and lengths before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.errors import StageFailed, StorageError
from corpus_platform.formats.token_bin import id_dtype
from corpus_platform.formats.token_bin_parts import Slices, TokenBinParts
from corpus_platform.packing.placement import Run
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.shuffle_scatter import (
    ENDS,
    LINES,
    LOSS,
    PIECES,
    TOKENS,
    UNITS,
    ranges,
)

__all__ = ["Gather", "bucket_borders", "bucket_units", "gather", "sorted_units"]


def bucket_borders(bits: int) -> np.ndarray:
    """Return where each range of keys begins that have the same first bits."""
    numbers = np.arange(1 << bits, dtype=np.uint64)
    return numbers << np.uint64(64 - bits) if bits else numbers


def bucket_units(folder: Path, borders: np.ndarray) -> np.ndarray:
    """Return where the units of each range begin among those of a shard, and how many there are."""
    units = np.load(folder / UNITS, mmap_mode="r")
    return np.append(np.searchsorted(units["key"], borders), len(units))


@dataclass(frozen=True)
class Gather:
    """One range of keys: the units [first, after) of each shard, and the runs that they go to.

    There is one for each range, with a number for each shard: those are arrays, and all ranges share
    the rest.
    """

    shards: Sequence[str]
    folders: Sequence[Path]
    first: np.ndarray
    after: np.ndarray
    files: Sequence[TokenBinParts]
    runs: Sequence[Run]
    lines: Path  # where the lines of the documents are written


class _Held(NamedTuple):
    """The units of a range in memory, shard after shard."""

    units: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray | None
    ends: np.ndarray
    pieces: np.ndarray | None
    lines: pl.DataFrame


def sorted_units(folders: Sequence[Path], first: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the records of the units of a range, in the order of the release."""
    units = _unit_records(folders, first, after)
    return units[_order(units)]


def _unit_records(folders: Sequence[Path], first: np.ndarray, after: np.ndarray) -> np.ndarray:
    parts = [
        np.load(folder / UNITS, mmap_mode="r")[a:b]
        for folder, a, b in zip(folders, first.tolist(), after.tolist(), strict=True)
    ]
    return np.concatenate(parts)


def _order(units: np.ndarray) -> np.ndarray:
    # Shards come in the order of their names, their units by key and row: equal keys stay so.
    return np.argsort(units["key"], kind="stable")


def gather(task: Gather) -> int:
    """Write a range of units to their places; return its tokens."""
    held = _held(task)
    order = _order(held.units)
    starts = np.cumsum(held.units["tokens"]) - held.units["tokens"]
    entry, line = (
        np.append(0, np.cumsum(held.units[name])).astype(np.int64) for name in ("entries", "lines")
    )
    tables = []
    for run in task.runs:
        chosen = order[run.first : run.after]
        file = task.files[run.file]
        count = held.units["tokens"][chosen]
        begin = np.cumsum(count) - count
        moved = ranges(entry, chosen)
        file.write(
            run.token,
            run.entry,
            Slices(held.tokens, starts[chosen], count),
            held.ends[moved] + np.repeat(begin, held.units["entries"][chosen]),
            loss=held.loss,
            pieces=None if held.pieces is None else held.pieces[moved],
        )
        begins = np.repeat(begin + run.token, held.units["lines"][chosen])
        part = held.lines[ranges(line, chosen)]
        tables.append(
            part.with_columns(
                pl.lit(bin_file(file.name)).alias("file"),
                start=pl.col("start") + pl.Series(begins.astype(np.int64)),
            )
        )
    table = pl.concat(tables) if tables else held.lines.with_columns(file=pl.lit(""))
    columns = ["file", "start", "tokens", "shard", "row", "id", "offset"]
    table.select(columns).write_ipc(task.lines)
    return int(held.units["tokens"].sum())


def _held(task: Gather) -> _Held:
    units = _unit_records(task.folders, task.first, task.after)
    policy = task.files[0].policy
    tokens = np.empty(int(units["tokens"].sum()), id_dtype(policy.vocab_size))
    masked = any(f.masked for f in task.files)
    loss = np.ones(len(tokens), np.uint8) if masked else None
    ends, pieces, lines, place, before = [], [], [], 0, 0
    counts = (task.after - task.first).tolist()
    for shard, folder, count in zip(task.shards, task.folders, counts, strict=True):
        own, before = units[before : before + count], before + count
        if not count:
            continue
        part = slice(place, place + int(own["tokens"].sum()))
        _read(folder / TOKENS, tokens[part], int(own["first_token"][0]))
        if loss is not None and (folder / LOSS).exists():
            _read(folder / LOSS, loss[part], int(own["first_token"][0]))
        first = int(own["first_entry"][0])
        entries = slice(first, first + int(own["entries"].sum()))
        ends.append(np.load(folder / ENDS, mmap_mode="r")[entries])
        if (folder / PIECES).exists():
            pieces.append(np.load(folder / PIECES, mmap_mode="r")[entries])
        lines.append(_lines(folder, own).with_columns(shard=pl.lit(shard)))
        place = part.stop
    _fill_up(units, tokens, loss, policy.pad_id)
    _check_ids(tokens, policy.vocab_size)
    return _Held(
        units,
        tokens,
        loss,
        np.concatenate([np.empty(0, np.int64), *ends]),
        np.concatenate(pieces) if pieces else None,
        pl.concat(lines) if lines else _no_lines(task.folders[0]),
    )


def _lines(folder: Path, units: np.ndarray) -> pl.DataFrame:
    listed = pl.scan_ipc(folder / LINES)
    return listed.slice(int(units["first_line"][0]), int(units["lines"].sum())).collect()


def _no_lines(folder: Path) -> pl.DataFrame:
    return pl.scan_ipc(folder / LINES).head(0).collect().with_columns(shard=pl.lit(""))


def _check_ids(tokens: np.ndarray, vocab_size: int) -> None:
    if len(tokens) and int(tokens.max()) >= vocab_size:
        raise StageFailed(f"token id {tokens.max()} is outside the vocabulary of {vocab_size}")


def _fill_up(
    units: np.ndarray, tokens: np.ndarray, loss: np.ndarray | None, pad_id: int | None
) -> None:
    """Put padding at the ends of windows that their shard did not fill."""
    ends = np.cumsum(units["tokens"])
    for unit in np.flatnonzero(units["filled"]).tolist():
        part = slice(int(ends[unit] - units["filled"][unit]), int(ends[unit]))
        tokens[part] = pad_id
        if loss is not None:
            loss[part] = 0


def _read(path: Path, into: np.ndarray, skipped: int) -> None:
    """Fill an array from a file, beginning after so many values."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(skipped * into.itemsize)
            view, at = into.view(np.uint8).data, 0
            while at < len(view):
                if not (count := file.readinto(view[at:])):
                    raise StorageError(
                        f"{path}: it ends at byte {file.tell()}; remove it and run again"
                    )
                at += count
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
