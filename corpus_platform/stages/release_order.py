"""How random the order of a release is, from the table of its documents."""

import numpy as np
import polars as pl

from corpus_platform.packing.files import cut_files
from corpus_platform.packing.randomness import Randomness, randomness

__all__ = ["order_numbers"]


def order_numbers(
    lines: pl.DataFrame, *, row_tokens: int | None, chunk_tokens: int
) -> dict[str, float]:
    """Return the numbers that say how random the order of the train files is.

    `lines` are those of the train files in their order: file, start, tokens, shard (a number),
    row, offset. What moves as one is judged as one: a row, a block of documents, else a document.
    """
    units = _units(lines, row_tokens, chunk_tokens)
    found = _judged(units)
    return {
        "order_units": found.units,
        "order_sigmas": found.sigmas,
        "rank_correlation": found.rank_correlation,
        "same_shard_neighbours": found.neighbours,
        "same_shard_neighbours_expected": found.expected_neighbours,
    }


def _units(lines: pl.DataFrame, row_tokens: int | None, chunk_tokens: int) -> pl.DataFrame:
    """Return the first line of each unit, in the order of the release."""
    if row_tokens is not None:
        rows = lines.with_columns(unit=pl.col("start") // row_tokens)
        return rows.unique(["file", "unit"], keep="first", maintain_order=True)
    if not chunk_tokens:
        return lines
    placed = lines.with_row_index("place").sort("shard", "row")
    block = [
        cut_files(part["tokens"].to_numpy(), max_tokens=chunk_tokens).file
        for part in placed.partition_by("shard", maintain_order=True)
    ]
    placed = placed.with_columns(block=pl.Series(np.concatenate([np.zeros(0, np.int64), *block])))
    return (
        placed.unique(["shard", "block"], keep="first", maintain_order=True)
        .sort("place")
        .drop("place")
    )


def _judged(units: pl.DataFrame) -> Randomness:
    ordered = units.with_row_index("place").sort("shard", "row", "offset")
    ranks = np.empty(len(units), np.int64)
    ranks[ordered["place"].to_numpy()] = np.arange(len(units))
    return randomness(ranks, units["shard"].to_numpy())
