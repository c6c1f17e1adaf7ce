"""Tests of the column descriptions in the UI."""

from collections.abc import Sequence

import dagster as dg

from corpus_platform.defs.columns import columns_metadata


def _columns(asset: str) -> Sequence[dg.TableColumn]:
    return columns_metadata(asset)["dagster/column_schema"].columns


def test_a_table_shows_names_types_and_whether_nothing_may_stand_there() -> None:
    columns = {c.name: (c.type, c.constraints.nullable) for c in _columns("dedup_verdicts")}
    assert columns == {"row": ("int64", False), "kept": ("bool", False), "split": ("string", True)}


def test_every_column_is_described() -> None:
    assets = ("cleaned_documents", "minhash_signatures", "dedup_clusters", "packed_bins")
    assert all(c.description for asset in assets for c in _columns(asset))


def test_an_asset_without_a_table_has_no_columns() -> None:
    assert columns_metadata("raw_shards") == {}
    assert columns_metadata("tokenizer") == {}
