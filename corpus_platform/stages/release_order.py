"""How random the order of a release is, from the table of its documents.

The table is read some times over: ranks are found for some shards at a time, with about 50 bytes for
each line, and of documents or rows only sums are kept. Each block of documents takes 60 bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.packing.files import cut_files
from corpus_platform.packing.randomness import Randomness, judged, randomness
from corpus_platform.stages.release_lines import held_lines

__all__ = ["order_numbers"]

Lines = Callable[[Sequence[str]], Iterable[pl.DataFrame]]


def order_numbers(lines: Lines, *, row_tokens: int | None, chunk_tokens: int) -> dict[str, float]:
    """Return the numbers that say how random the order of the train files is.

    `lines` gives columns of those of the train files in their order, as often as it is called: file,
    start, tokens, shard (a number, below 0 for an unknown one), row, offset. What moves as one is
    judged as one: a row, a block of documents, else a document.
    """
    if row_tokens is None and chunk_tokens:
        found = _judge_blocks(lines, chunk_tokens)
    else:
        found = _judge_units(lines, row_tokens)
    return {
        "order_units": found.units,
        "order_sigmas": found.sigmas,
        "rank_correlation": found.rank_correlation,
        "same_shard_neighbours": found.neighbours,
        "same_shard_neighbours_expected": found.expected_neighbours,
    }


def _units(lines: Lines, row_tokens: int | None) -> Iterator[pl.DataFrame]:
    """Yield the first line of each unit, without rows each that has tokens; shards are from 0 on."""
    columns, before = ["tokens", "shard", "row"], ("", -1)
    for part in lines(columns if row_tokens is None else [*columns, "file", "start", "offset"]):
        part = part.filter(pl.col("tokens") > 0)
        if row_tokens is not None and len(part):
            unit = part.select("file", unit=pl.col("start") // row_tokens)
            begins = (unit["file"] != unit["file"].shift()) | (unit["unit"] != unit["unit"].shift())
            begins[0] = unit.row(0) != before
            part, before = part.filter(begins), unit.row(-1)
        if len(part):
            yield part.with_columns(pl.max_horizontal("shard", -1) + 1)


class _Counts(NamedTuple):
    """How many units each shard has, and how many stand after one of their own shard."""

    sizes: np.ndarray
    neighbours: int


def _counts(units: Iterable[pl.DataFrame]) -> _Counts:
    sizes, neighbours, last = np.zeros(0, np.int64), 0, -1
    for part in units:
        shards = part["shard"].to_numpy()
        found = np.bincount(shards, minlength=len(sizes))
        found[: len(sizes)] += sizes
        sizes = found
        neighbours += int(np.count_nonzero(np.diff(shards, prepend=last) == 0))
        last = int(shards[-1])
    return _Counts(sizes, neighbours)


class _Ranked(NamedTuple):
    """Units of some shards sorted by shard, row and offset; `place` is that among all units."""

    place: np.ndarray
    tokens: np.ndarray
    ends: np.ndarray  # of each shard


def _ranked(
    lines: Lines, row_tokens: int | None, sizes: np.ndarray, *, tokens: bool = False
) -> Iterator[_Ranked]:
    """Yield the units of all shards, sorted, in groups of whole shards."""
    ends, first, limit = np.cumsum(sizes), 0, held_lines(int(sizes.sum()))
    columns = {"shard": np.int32, "row": np.int64, "place": np.int64}
    columns |= {"tokens": np.int64} if tokens else {}
    columns |= {} if row_tokens is None else {"offset": np.int64}
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, before + limit, side="right")))
        held = {name: np.empty(int(ends[after - 1]) - before, of) for name, of in columns.items()}
        _fill(held, _units(lines, row_tokens), first, after)
        yield _sorted(held, ends[first:after] - before)
        first = after


def _fill(
    held: Mapping[str, np.ndarray], units: Iterable[pl.DataFrame], first: int, after: int
) -> None:
    """Fill the columns with the units of a range of shards, whose numbers then begin at 0."""
    place = begin = 0
    for part in units:
        shards = part["shard"].to_numpy()
        which = np.flatnonzero((first <= shards) & (shards < after))
        end = begin + len(which)
        for name, values in held.items():
            values[begin:end] = place + which if name == "place" else part[name].to_numpy()[which]
        held["shard"][begin:end] -= first
        place, begin = place + len(part), end


def _sorted(held: Mapping[str, np.ndarray], ends: np.ndarray) -> _Ranked:
    row, shard = held["row"], held["shard"]
    span = int(row.max(initial=0)) + 1
    if "offset" not in held and row.min(initial=0) >= 0 and len(ends) * span < 1 << 63:
        row += shard * np.int64(span)
        order = np.argsort(row, kind="stable")  # a fifth of the time of the other
    else:
        order = np.lexsort((held.get("offset", row), row, shard))
    return _Ranked(held["place"][order], held["tokens"][order] if "tokens" in held else order, ends)


def _judge_units(lines: Lines, row_tokens: int | None) -> Randomness:
    counts = _counts(_units(lines, row_tokens))
    total, rank, products = int(counts.sizes.sum()), 0, 0.0
    middle = (total - 1) / 2
    for group in _ranked(lines, row_tokens, counts.sizes):
        ranks = np.arange(rank, rank + len(group.place))
        products += float((ranks - middle) @ (group.place - middle))
        rank += len(ranks)
    # Of two permutations: both have the same known variance.
    correlation = 12 * products / (total * (total**2 - 1)) if total > 1 else 0.0
    return judged(total, correlation, counts.neighbours, counts.sizes)


def _judge_blocks(lines: Lines, chunk_tokens: int) -> Randomness:
    """Judge the order of the places at which the first document of each block stands."""
    places, sizes = [np.zeros(0, np.int64)], list[int]()
    for group in _ranked(lines, None, _counts(_units(lines, None)).sizes, tokens=True):
        ends = group.ends.tolist()
        for begin, after in zip([0, *ends[:-1]], ends, strict=True):
            block = cut_files(group.tokens[begin:after], max_tokens=chunk_tokens).file
            first = np.flatnonzero(np.diff(block, prepend=-1))
            places.append(group.place[begin + first])
            sizes.append(len(first))
    ranks = np.argsort(np.concatenate(places))
    return randomness(ranks, np.repeat(np.arange(len(sizes)), sizes)[ranks])
