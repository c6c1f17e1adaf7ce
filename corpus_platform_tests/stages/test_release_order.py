"""How random the order of a release is, judged by what moves as one."""

import numpy as np
import polars as pl
import pytest

from corpus_platform.packing.files import cut_files
from corpus_platform.packing.randomness import randomness
from corpus_platform.stages import release_lines
from corpus_platform.stages.release_order import order_numbers


def _lines(order: np.ndarray, tokens: int = 10) -> pl.DataFrame:
    """Return the table of 400 documents of two shards in an order, in one file."""
    return pl.DataFrame(
        {
            "file": ["train-00000.bin"] * len(order),
            "start": np.arange(len(order)) * tokens,
            "tokens": [tokens] * len(order),
            "shard": order // 200,
            "row": order % 200,
            "offset": [0] * len(order),
        }
    )


def _numbers(lines: pl.DataFrame, row_tokens: int | None, chunk_tokens: int) -> dict[str, float]:
    """Give the lines a hundred at a time."""
    return order_numbers(
        lambda columns: (part.select(columns) for part in lines.iter_slices(100)),
        row_tokens=row_tokens,
        chunk_tokens=chunk_tokens,
    )


RANDOM = np.random.default_rng(2).permutation(400)


def _blocks(size: int, blocks: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(b * size, (b + 1) * size) for b in blocks])


def test_random_documents_are_within_chance_and_sorted_ones_are_not() -> None:
    assert _numbers(_lines(RANDOM), None, 0)["order_sigmas"] < 4
    straight = _numbers(_lines(np.arange(400)), None, 0)
    assert straight["order_sigmas"] > 10
    assert straight["rank_correlation"] == pytest.approx(1.0)


def test_blocks_are_judged_as_wholes() -> None:
    """Inside a block the order is that of the shard, which says nothing."""
    lines = _lines(_blocks(5, np.random.default_rng(4).permutation(80)))
    assert _numbers(lines, None, 0)["order_sigmas"] > 6
    found = _numbers(lines, None, 50)
    assert (found["order_units"], found["order_sigmas"] < 4) == (80, True)
    sorted_blocks = _numbers(_lines(np.arange(400)), None, 50)
    assert sorted_blocks["order_sigmas"] > 6


def test_rows_are_judged_by_what_begins_them() -> None:
    found = _numbers(_lines(RANDOM), 40, 0)
    assert (found["order_units"], found["order_sigmas"] < 4) == (100, True)
    straight = _numbers(_lines(np.arange(400)), 40, 0)
    assert straight["order_sigmas"] > 6


def _in_memory(lines: pl.DataFrame, row_tokens: int | None, chunk_tokens: int) -> dict[str, float]:
    """Judge the order by sorting all lines, foreign ones as those of one shard."""
    units = lines.filter(pl.col("tokens") > 0).with_columns(pl.max_horizontal("shard", -1))
    if row_tokens is not None:
        units = units.with_columns(unit=pl.col("start") // row_tokens)
        units = units.unique(["file", "unit"], keep="first", maintain_order=True)
    elif chunk_tokens:
        placed = units.with_row_index("place").sort("shard", "row")
        parts = placed.partition_by("shard", maintain_order=True)
        blocks = [cut_files(p["tokens"].to_numpy(), max_tokens=chunk_tokens).file for p in parts]
        placed = placed.with_columns(block=pl.Series(np.concatenate(blocks)))
        units = placed.unique(["shard", "block"], keep="first", maintain_order=True).sort("place")
        units = units.drop("place")
    ordered = units.with_row_index("place").sort("shard", "row", "offset")
    ranks = np.empty(len(units), np.int64)
    ranks[ordered["place"].to_numpy()] = np.arange(len(units))
    found = randomness(ranks, units["shard"].to_numpy())
    return {
        "order_units": found.units,
        "order_sigmas": found.sigmas,
        "rank_correlation": found.rank_correlation,
        "same_shard_neighbours": found.neighbours,
        "same_shard_neighbours_expected": found.expected_neighbours,
    }


def _any_lines(seed: int, largest_row: int) -> pl.DataFrame:
    """Return lines of five shards, one of them unknown, in two files; some have no token."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 700))
    tokens = random.integers(0, 30, count)
    file = np.arange(count) >= count // 3
    starts = np.cumsum(tokens) - tokens
    starts -= np.where(file, starts[count // 3], 0)
    names = pl.Series(np.where(file, "train-00001.bin", "train-00000.bin"))
    return pl.DataFrame(
        {
            "file": names.cast(pl.Categorical),
            "start": starts,
            "tokens": tokens,
            "shard": random.choice([0, 1, 3, 7, -5, -9], count),
            "row": random.choice(largest_row, count, replace=False),
            "offset": random.integers(0, 3, count),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("held", [1, 150, 10_000])
@pytest.mark.parametrize(("row_tokens", "chunk_tokens"), [(None, 0), (40, 0), (None, 100)])
def test_some_shards_at_a_time_give_the_numbers_of_all_at_once(
    seed: int,
    held: int,
    row_tokens: int | None,
    chunk_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release_lines, "HELD_LINES", held)
    monkeypatch.setattr(release_lines, "PASSES", 1000)
    lines = _any_lines(seed, 1 << (10 if seed else 20))
    assert _numbers(lines, row_tokens, chunk_tokens) == pytest.approx(
        _in_memory(lines, row_tokens, chunk_tokens), abs=1e-9
    )


def test_rows_too_large_for_one_number_with_their_shard_are_sorted_all_the_same() -> None:
    lines = _any_lines(4, 5_000).with_columns(pl.col("row") * (1 << 50))
    assert _numbers(lines, None, 0) == pytest.approx(_in_memory(lines, None, 0), abs=1e-9)


def test_nothing_has_no_order() -> None:
    none = _lines(np.zeros(0, np.int64))
    for row_tokens, chunk_tokens in ((None, 0), (40, 0), (None, 50)):
        found = _numbers(none, row_tokens, chunk_tokens)
        assert set(found.values()) == {0}
