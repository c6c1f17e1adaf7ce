"""Tests of the tables' schemas: the names and types that users read are written out here."""

import pyarrow as pa
import pytest

from corpus_platform import document

EXPECTED = {
    "CLEANED": [
        ("id", "string", False),
        ("url", "string", True),
        ("text", "string", False),
        ("lang", "string", True),
        ("lang_score", "double", True),
        ("meta", "string", False),
        ("row", "int64", False),
    ],
    "TOMBSTONES": [
        ("id", "string", False),
        ("row", "int64", False),
        ("rule", "string", False),
        ("value", "double", True),
        ("threshold", "double", True),
    ],
    "QUARANTINE": [
        ("line", "int64", False),
        ("offset", "int64", True),
        ("reason", "string", False),
        ("excerpt", "string", False),
    ],
    "SIGNATURES": [
        ("row", "int64", False),
        ("id", "string", False),
        ("digest", "fixed_size_binary[32]", False),
        ("bytes", "int64", False),
        ("shingles", "int64", False),
    ],
    "EDGES": [
        ("shard_a", "string", False),
        ("row_a", "int64", False),
        ("shard_b", "string", False),
        ("row_b", "int64", False),
        ("agreeing", "int32", False),
        ("similarity", "double", False),
    ],
    "COMPARED": [
        ("shard_a", "string", False),
        ("row_a", "int64", False),
        ("shard_b", "string", False),
        ("row_b", "int64", False),
        ("agreeing", "int32", False),
        ("similarity", "double", True),
    ],
    "LEAKS": [
        ("shard", "string", False),
        ("row", "int64", False),
        ("id", "string", False),
        ("train_shard", "string", False),
        ("train_row", "int64", False),
        ("train_id", "string", False),
        ("similarity", "double", False),
    ],
    "CLUSTERS": [
        ("shard", "string", False),
        ("row", "int64", False),
        ("id", "string", False),
        ("cluster", "int64", False),
        ("cluster_size", "int64", False),
        ("kept", "bool", False),
        ("kind", "string", True),
        ("twin_shard", "string", True),
        ("twin_row", "int64", True),
        ("twin_id", "string", True),
        ("similarity", "double", True),
        ("split", "string", True),
    ],
    "VERDICTS": [("row", "int64", False), ("kept", "bool", False), ("split", "string", True)],
    "RELEASE_DOCUMENTS": [
        ("file", "string", False),
        ("start", "int64", False),
        ("tokens", "int64", False),
        ("shard", "string", False),
        ("row", "int64", False),
        ("id", "string", False),
        ("offset", "int64", False),
    ],
    "PACKED_DOCUMENTS": [
        ("file", "string", False),
        ("start", "int64", False),
        ("tokens", "int64", False),
        ("shard", "string", False),
        ("row", "int64", False),
        ("id", "string", False),
        ("offset", "int64", False),
        ("lang", "string", True),
        ("cut", "int64", False),
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_table_has_these_columns_in_this_order(name: str) -> None:
    schema: pa.Schema = getattr(document, name)
    assert [(f.name, str(f.type), f.nullable) for f in schema] == EXPECTED[name]


def test_every_schema_is_looked_at() -> None:
    schemas = {n for n in document.__all__ if isinstance(getattr(document, n), pa.Schema)}
    assert schemas == set(EXPECTED)


def test_an_excerpt_has_at_most_200_bytes() -> None:
    assert document.EXCERPT_BYTES == 200


def test_records_have_the_fields_that_readers_fill() -> None:
    assert document.Document._fields == ("row", "line", "id", "url", "text", "lang", "meta")
    assert document.Rejected._fields == ("row", "line", "offset", "reason", "excerpt")
