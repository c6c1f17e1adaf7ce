"""What each shard has in a release: unique documents after dedup and their tokens, by split.

They are counted in the table of documents that was written, a part at a time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from corpus_platform.errors import StageFailed
from corpus_platform.stages.bins_writing import BIN_NAMES

__all__ = ["counts_by_shard"]


def counts_by_shard(
    documents: Path, shards: Sequence[str], wanted: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return documents and tokens of both splits for each shard, in the order of the shards.

    Raises StageFailed where they do not add up to those that are wanted by the same names.
    """
    columns = {}
    for split, name in BIN_NAMES.items():
        here = pl.col("file").cast(pl.String).str.starts_with(f"{name}-")
        columns[f"{split}_documents"] = (here & (pl.col("offset") == 0)).sum().cast(pl.Int64)
        columns[f"{split}_tokens"] = pl.col("tokens").filter(here).sum()
    found = pl.scan_parquet(documents).group_by("shard").agg(**columns).collect(engine="streaming")
    rows = {row.pop("shard"): row for row in found.iter_rows(named=True)}
    counted = {shard: rows.pop(shard, dict.fromkeys(columns, 0)) for shard in shards}
    sums = {name: sum(row[name] for row in counted.values()) for name in columns}
    if rows or sums != {name: wanted[name] for name in columns}:
        raise StageFailed(
            f"{documents}: by shard {sums} and other shards {sorted(rows)[:3]}; the files have {wanted}"
        )
    return counted
