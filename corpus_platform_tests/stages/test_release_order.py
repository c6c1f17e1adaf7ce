"""How random the order of a release is, judged by what moves as one."""

import numpy as np
import polars as pl
import pytest

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


RANDOM = np.random.default_rng(2).permutation(400)


def _blocks(size: int, blocks: np.ndarray) -> np.ndarray:
    return np.concatenate([np.arange(b * size, (b + 1) * size) for b in blocks])


def test_random_documents_are_within_chance_and_sorted_ones_are_not() -> None:
    assert order_numbers(_lines(RANDOM), row_tokens=None, chunk_tokens=0)["order_sigmas"] < 4
    straight = order_numbers(_lines(np.arange(400)), row_tokens=None, chunk_tokens=0)
    assert straight["order_sigmas"] > 10
    assert straight["rank_correlation"] == pytest.approx(1.0)


def test_blocks_are_judged_as_wholes() -> None:
    """Inside a block the order is that of the shard, which says nothing."""
    lines = _lines(_blocks(5, np.random.default_rng(4).permutation(80)))
    assert order_numbers(lines, row_tokens=None, chunk_tokens=0)["order_sigmas"] > 6
    found = order_numbers(lines, row_tokens=None, chunk_tokens=50)
    assert (found["order_units"], found["order_sigmas"] < 4) == (80, True)
    sorted_blocks = order_numbers(_lines(np.arange(400)), row_tokens=None, chunk_tokens=50)
    assert sorted_blocks["order_sigmas"] > 6


def test_rows_are_judged_by_what_begins_them() -> None:
    found = order_numbers(_lines(RANDOM), row_tokens=40, chunk_tokens=0)
    assert (found["order_units"], found["order_sigmas"] < 4) == (100, True)
    straight = order_numbers(_lines(np.arange(400)), row_tokens=40, chunk_tokens=0)
    assert straight["order_sigmas"] > 6
