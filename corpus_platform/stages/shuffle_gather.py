"""Second pass of the shuffle: a range of keys, from every shard, sorted and written to its place.

The tokens of a range are mapped and never copied; ranges are independent of each other, since where
each unit goes has been settled from keys and lengths before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpus_platform.formats.slices import Slices
from corpus_platform.formats.token_bin import PIECE_DTYPE, id_dtype
from corpus_platform.formats.token_bin_parts import TokenBinParts
from corpus_platform.packing.placement import Filled, Run
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.shuffle_scratch import (
    COUNTED,
    ENDS,
    ENDS_DTYPE,
    LINES,
    LOSS,
    PIECES,
    TOKENS,
    UNIT,
    UNITS,
    mapped,
    mapped_lines,
    ranges,
)

__all__ = ["Gather", "Gathered", "gather", "sorted_units"]


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


class Gathered(NamedTuple):
    """What was written of a range: how far each of its runs has come, and the lines in order."""

    tokens: int
    reached: list[tuple[int, Filled]]  # number of the file
    lines: list[pa.Table]


class _Held(NamedTuple):
    """What each unit of a range has, shard after shard; entries and lines follow each other alike."""

    units: dict[str, np.ndarray]
    tokens: Slices
    loss: Slices | None
    ends: np.ndarray
    pieces: np.ndarray | None
    lines: pa.Table


def sorted_units(
    folders: Sequence[Path], first: np.ndarray, after: np.ndarray
) -> dict[str, np.ndarray]:
    """Return what each unit of a range has, "key" and by the names of COUNTED, in the order of the release."""
    units = _units(_records(folders, first, after))
    order = _order(units)
    return {name: values[order] for name, values in units.items()}


def _records(folders: Sequence[Path], first: np.ndarray, after: np.ndarray) -> list[np.ndarray]:
    """Return the records of a range, those of each shard with one more behind them."""
    return [
        mapped(folder / UNITS, UNIT, a, b - a + 1)
        for folder, a, b in zip(folders, first.tolist(), after.tolist(), strict=True)
    ]


def _units(records: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    counts = {name: np.concatenate([np.diff(part[name]) for part in records]) for name in COUNTED}
    return {"key": np.concatenate([part["key"][:-1] for part in records]), **counts}


def _order(units: dict[str, np.ndarray]) -> np.ndarray:
    # Shards come in the order of their names, their units by key and row: equal keys stay so.
    return np.argsort(units["key"], kind="stable")


def gather(task: Gather) -> Gathered:
    """Write a range of units to their places."""
    if not task.runs:
        return Gathered(0, [], [])
    held = _held(task)
    order, units = _order(held.units), held.units
    entry, line = (np.append(0, np.cumsum(units[name])) for name in ("entry", "line"))
    reached, tables = [], []
    for run in task.runs:
        chosen = order[run.first : run.after]
        file, tokens = task.files[run.file], units["token"][chosen]
        begin = np.cumsum(tokens) - tokens
        moved = ranges(entry, chosen)
        file.write(
            run.token,
            run.entry,
            held.tokens[chosen],
            held.ends[moved] + np.repeat(begin, units["entry"][chosen]),
            loss=None if held.loss is None else held.loss[chosen],
            pieces=None if held.pieces is None else held.pieces[moved],
        )
        end = Filled(run.token + int(tokens.sum()), run.entry + len(moved))
        reached.append((run.file, end))
        begins = np.repeat(begin + run.token, units["line"][chosen])
        lines = held.lines.take(ranges(line, chosen))
        tables.append(_placed(lines, begins, bin_file(file.name), task.shards))
    return Gathered(int(units["token"].sum()), reached, tables)


def _placed(lines: pa.Table, begins: np.ndarray, file: str, shards: Sequence[str]) -> pa.Table:
    """Return lines with the names of their file and shard, and their place in that file."""
    columns = {name: lines[name] for name in ("tokens", "row", "id", "offset")}
    columns["start"] = pa.array(lines["start"].to_numpy() + begins)
    numbers = lines["shard"].combine_chunks()
    columns["shard"] = pa.DictionaryArray.from_arrays(numbers, pa.array(shards))
    files = pa.array(np.zeros(len(begins), np.int32))
    columns["file"] = pa.DictionaryArray.from_arrays(files, pa.array([file]))
    return pa.table(columns)


def _held(task: Gather) -> _Held:
    records = _records(task.folders, task.first, task.after)
    found = [i for i, part in enumerate(records) if len(part) > 1]
    masked = any(file.masked for file in task.files)
    vocab_size = task.files[0].policy.vocab_size
    tokens, loss, ends, pieces, lines = [], [], [], [], []
    for i in found:
        folder, part = task.folders[i], records[i]
        tokens.append(_slices(folder / TOKENS, id_dtype(vocab_size), part))
        if masked:
            loss.append(_loss(folder / LOSS, part))
        first, count = int(part["entry"][0]), int(part["entry"][-1] - part["entry"][0])
        ends.append(mapped(folder / ENDS, ENDS_DTYPE, first, count))
        if task.files[0].row_tokens:
            pieces.append(mapped(folder / PIECES, PIECE_DTYPE, first, count))
        lines.append(_lines(folder / LINES, part, i))
    return _Held(
        _units(records),
        Slices.joined(tokens),
        Slices.joined(loss) if masked else None,
        np.concatenate([np.zeros(0, ENDS_DTYPE), *ends]),
        np.concatenate(pieces) if pieces else None,
        pa.concat_tables(lines).combine_chunks(),
    )


def _slices(path: Path, dtype: np.dtype, part: np.ndarray) -> Slices:
    """Return the values of each unit of a shard."""
    first = int(part["token"][0])
    values = mapped(path, dtype, first, int(part["token"][-1]) - first)
    return Slices.cut(values, part["token"][:-1] - first, np.diff(part["token"]))


def _loss(path: Path, part: np.ndarray) -> Slices:
    if path.exists():
        return _slices(path, np.dtype("u1"), part)
    lengths = np.diff(part["token"])
    ones = np.ones(int(lengths.max()), np.uint8)
    return Slices.cut(ones, np.zeros(len(lengths), np.int64), lengths)


def _lines(path: Path, part: np.ndarray, number: int) -> pa.Table:
    """Return the lines of a shard, with its number."""
    first, count = int(part["line"][0]), int(part["line"][-1] - part["line"][0])
    shard = pa.array(np.full(count, number, np.int32))
    return mapped_lines(path, first, count).append_column("shard", shard)
