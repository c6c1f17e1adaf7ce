"""Tests of what the UI and catalogs are told of columns, held against the schemas of the files."""

import itertools
from collections.abc import Sequence

import dagster as dg
import pyarrow as pa
import pytest

from corpus_platform import document
from corpus_platform.defs.columns import columns_metadata, lineage_metadata

TABLES: dict[str, pa.Schema] = {
    "cleaned_documents": document.CLEANED,
    "minhash_signatures": document.SIGNATURES,
    "dedup_clusters": document.CLUSTERS,
    "dedup_verdicts": document.VERDICTS,
    "packed_bins": document.PACKED_DOCUMENTS,
    "shuffled_bins": document.RELEASE_DOCUMENTS,
}
# What an asset reads, itself or through the asset before it.
UPSTREAM = {
    "cleaned_documents": set(),
    "minhash_signatures": {"cleaned_documents"},
    "dedup_clusters": {"cleaned_documents", "minhash_signatures"},
    "dedup_verdicts": {"dedup_clusters"},
    "packed_bins": {"cleaned_documents", "dedup_verdicts"},
    "shuffled_bins": {"packed_bins"},
}


def _columns(asset: str) -> Sequence[dg.TableColumn]:
    return columns_metadata(asset)["dagster/column_schema"].columns


def _lineage(asset: str) -> dict[str, list[tuple[str, str]]]:
    lineage = lineage_metadata(asset)["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    return {
        column: [(dep.asset_key.to_user_string(), dep.column_name) for dep in deps]
        for column, deps in lineage.deps_by_column.items()
    }


def test_a_table_shows_names_types_and_whether_nothing_may_stand_there() -> None:
    columns = {c.name: (c.type, c.constraints.nullable) for c in _columns("dedup_verdicts")}
    assert columns == {"row": ("int64", False), "kept": ("bool", False), "split": ("string", True)}


@pytest.mark.parametrize("asset", TABLES)
def test_every_column_is_described(asset: str) -> None:
    assert [c.name for c in _columns(asset)] == TABLES[asset].names
    assert all(c.description for c in _columns(asset))


def test_a_description_ends_with_what_the_column_comes_from() -> None:
    described = {c.name: c.description for c in _columns("minhash_signatures")}
    assert described["digest"] == (
        "sha256 of the folded text, or of the raw one: the exact key. From `cleaned_documents.text`."
    )
    described = {c.name: c.description for c in _columns("cleaned_documents")}
    assert described["text"] == "The text, unchanged."


@pytest.mark.parametrize("asset", TABLES)
def test_every_column_says_where_it_comes_from_and_no_other_is_named(asset: str) -> None:
    assert sorted(_lineage(asset)) == sorted(TABLES[asset].names)


@pytest.mark.parametrize("asset", TABLES)
def test_every_column_that_one_comes_from_is_there_and_lies_upstream(asset: str) -> None:
    sources = {source for deps in _lineage(asset).values() for source in deps}
    assert {above for above, _ in sources} == UPSTREAM[asset]
    assert [(a, c) for a, c in sources if c not in TABLES[a].names] == []


def test_only_what_is_read_first_and_the_partition_come_from_no_column() -> None:
    without = {(a, c) for a in TABLES for c, deps in _lineage(a).items() if not deps}
    assert without == {
        *(("cleaned_documents", name) for name in document.CLEANED.names),
        ("dedup_clusters", "shard"),
        ("packed_bins", "shard"),
    }


def test_a_document_is_followed_by_id_and_row_from_the_release_to_its_record() -> None:
    chain = ["shuffled_bins", "packed_bins", "cleaned_documents"]
    for column in ("id", "row"):
        for asset, above in itertools.pairwise(chain):
            assert (above, column) in _lineage(asset)[column]


def test_an_asset_without_a_table_has_no_columns() -> None:
    for asset in ("raw_shards", "tokenizer"):
        assert (columns_metadata(asset), lineage_metadata(asset)) == ({}, {})
