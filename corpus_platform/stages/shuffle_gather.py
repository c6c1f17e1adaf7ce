"""Second pass of the shuffle: a range of keys, from every shard, sorted and written to its place.

Long pieces of tokens are mapped and never copied; ranges are independent of each other, since where
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
    IDS,
    LINE,
    LINES,
    LONG,
    LOSS,
    PIECES,
    TOKENS,
    UNIT,
    UNITS,
    collected,
    mapped,
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


class _Range(NamedTuple):
    """The units of a range, shard after shard; only shards that have some are here.

    `begin` and `end` are records of the shards: what is theirs in the range lies between. `shard`
    is the place in these of each unit's shard, `inside` the tokens of its shard before it, and
    `units` has the "key" of each and how much it has of what COUNTED names.
    """

    folders: list[Path]
    numbers: np.ndarray  # of the shards, among all
    begin: np.ndarray
    end: np.ndarray
    shard: np.ndarray
    inside: np.ndarray
    units: dict[str, np.ndarray]

    @property
    def order(self) -> np.ndarray:
        """The order of the units in the release."""
        # Shards come in the order of their names, their units by key and row: equal keys stay so.
        return np.argsort(self.units["key"], kind="stable")

    def read(self, name: str, dtype: np.dtype, by: str) -> np.ndarray:
        """Read what the units have of a file that has a value for each of what is counted."""
        first = self.begin[by]
        return collected(self.folders, name, dtype, first, self.end[by] - first)


class _Lines(NamedTuple):
    """The lines of units: `at` is where each stands in the records."""

    records: np.ndarray
    at: np.ndarray
    ids: pa.Array
    shard: np.ndarray


class _Held(NamedTuple):
    """What each unit of a range has; entries and lines follow each other as the units do."""

    tokens: Slices
    loss: Slices | None
    ends: np.ndarray
    pieces: np.ndarray | None
    lines: _Lines


def sorted_units(
    folders: Sequence[Path], first: np.ndarray, after: np.ndarray
) -> dict[str, np.ndarray]:
    """Return what each unit of a range has, by the names of COUNTED, in the order of the release."""
    found = _range(folders, first, after)
    order = found.order
    return {name: found.units[name][order] for name in COUNTED}


def _range(folders: Sequence[Path], first: np.ndarray, after: np.ndarray) -> _Range:
    numbers = np.flatnonzero(after > first)
    chosen, count = [folders[i] for i in numbers.tolist()], (after - first)[numbers]
    records = collected(chosen, UNITS, UNIT, first[numbers], count + 1)
    at, begin, end = _places(count)
    units = {name: records[name][at + 1] - records[name][at] for name in COUNTED}
    shard = np.repeat(np.arange(len(chosen)), count)
    return _Range(
        chosen,
        numbers,
        records[begin],
        records[end],
        shard,
        inside=records["token"][at] - records["token"][begin][shard],
        units={"key": records["key"][at], **units},
    )


def _places(count: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where records stand that were read with one more behind those of each shard.

    Of all but those behind, and the first and last of each shard.
    """
    end = np.cumsum(count + 1) - 1
    behind = np.zeros(int((count + 1).sum()), np.bool_)
    behind[end] = True
    return np.flatnonzero(~behind), end - count, end


def gather(task: Gather) -> Gathered:
    """Write a range of units to their places."""
    if not task.runs:
        return Gathered(0, [], [])
    found = _range(task.folders, task.first, task.after)
    held, order, units = _held(task, found), found.order, found.units
    entry, line = (np.append(0, np.cumsum(units[name])) for name in ("entry", "line"))
    shards = pa.array(task.shards)
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
        lines = ranges(line, chosen)
        tables.append(_placed(held.lines, lines, begins, bin_file(file.name), shards))
    return Gathered(int(units["token"].sum()), reached, tables)


def _placed(
    lines: _Lines, chosen: np.ndarray, begins: np.ndarray, file: str, shards: pa.Array
) -> pa.Table:
    """Return lines with the names of their file and shard, and their place in that file."""
    at = lines.at[chosen]
    columns = {name: pa.array(lines.records[name][at]) for name in ("tokens", "row", "offset")}
    columns["start"] = pa.array(lines.records["start"][at] + begins)
    columns["id"] = lines.ids.take(pa.array(chosen))
    columns["shard"] = pa.DictionaryArray.from_arrays(pa.array(lines.shard[chosen]), shards)
    files = pa.array(np.zeros(len(begins), np.int32))
    columns["file"] = pa.DictionaryArray.from_arrays(files, pa.array([file]))
    return pa.table(columns)


def _held(task: Gather, found: _Range) -> _Held:
    masked = any(task.files[run.file].masked for run in task.runs)
    stored = found.end["masked"] > found.begin["masked"]
    rows = task.files[0].row_tokens is not None
    return _Held(
        _slices(
            found, TOKENS, id_dtype(task.files[0].policy.vocab_size), stored=np.ones_like(stored)
        ),
        _slices(found, LOSS, np.dtype("u1"), stored=stored) if masked else None,
        found.read(ENDS, ENDS_DTYPE, "entry"),
        found.read(PIECES, PIECE_DTYPE, "entry") if rows else None,
        _lines(found),
    )


def _slices(found: _Range, name: str, dtype: np.dtype, *, stored: np.ndarray) -> Slices:
    """Return the values of each unit, one after the other; ones for shards where none are stored."""
    first, count = found.begin["token"], found.end["token"] - found.begin["token"]
    long = stored & (count * dtype.itemsize >= LONG)
    short = stored & ~long
    chosen = [folder for folder, wanted in zip(found.folders, short, strict=True) if wanted]
    arrays = [collected(chosen, name, dtype, first[short], count[short])]
    for i in np.flatnonzero(long).tolist():
        arrays.append(mapped(found.folders[i] / name, dtype, int(first[i]), int(count[i])))
    which = np.where(long, np.cumsum(long), 0)
    begin = np.where(short, np.cumsum(count * short) - count, 0)
    starts, lengths = found.inside + begin[found.shard], found.units["token"]
    if not stored.all():
        of_ones = ~stored[found.shard]
        starts = np.where(of_ones, 0, starts)
        which = np.where(stored, which, len(arrays))
        arrays.append(np.ones(int(lengths[of_ones].max()), dtype))
    return Slices.cut_from(arrays, which[found.shard], starts, lengths)


def _lines(found: _Range) -> _Lines:
    first, count = found.begin["line"], found.end["line"] - found.begin["line"]
    records = collected(found.folders, LINES, LINE, first, count + 1)
    at, begin, end = _places(count)
    before = records["id"]
    ids = collected(found.folders, IDS, np.dtype("u1"), before[begin], before[end] - before[begin])
    ends = np.append(0, np.cumsum(before[at + 1] - before[at]))
    return _Lines(
        records,
        at,
        pa.LargeStringArray.from_buffers(len(at), pa.py_buffer(ends), pa.py_buffer(ids)),
        np.repeat(found.numbers.astype(np.int32), count),
    )
