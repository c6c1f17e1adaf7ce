"""The columns of the tables, as the UI shows them: Arrow schemas with a line on each column.

Where a column comes from is in its description, which the UI shows, and in the metadata that
Dagster defines for it, which catalogs read from a materialization; Dagster's own UI has no view of it.
"""

from collections.abc import Iterable, Mapping

import dagster as dg
import pyarrow as pa

from corpus_platform.document import (
    CLEANED,
    CLUSTERS,
    PACKED_DOCUMENTS,
    RELEASE_DOCUMENTS,
    SIGNATURES,
    VERDICTS,
)

__all__ = ["SCHEMAS", "SOURCES", "columns_metadata", "lineage_metadata"]

Sources = Mapping[str, Iterable[str]]  # column -> `asset.column` of what it is computed from

SCHEMAS = {
    "cleaned_documents": CLEANED,
    "minhash_signatures": SIGNATURES,
    "dedup_clusters": CLUSTERS,
    "dedup_verdicts": VERDICTS,
    "packed_bins": PACKED_DOCUMENTS,  # the table beside the bins
    "shuffled_bins": RELEASE_DOCUMENTS,
}
MEANINGS = {
    "bytes": "Of the text, in UTF-8.",
    "cluster": "Number of the connected component over all verified pairs and exact copies.",
    "cluster_size": "Documents in the cluster.",
    "cut": "Tokens beyond pack.max_document_tokens, which are in no file.",
    "digest": "sha256 of the folded text, or of the raw one: the exact key.",
    "file": "The token file that holds the document.",
    "id": "The user's id of the document.",
    "kept": "Whether the document survives dedup.",
    "kind": "Why it was dropped: exact or near; null for kept ones.",
    "lang": "Language: as given, else as the model says; code for program text.",
    "lang_score": "The model's confidence; null where it was not asked.",
    "meta": "All other fields of the record, as JSON.",
    "offset": "Where the piece begins in its document, in tokens; 0 but for later pieces.",
    "row": "0-based record number in the shard, quarantined ones included.",
    "shard": "Partition key.",
    "shingles": "Shingles of the folded text, repeated ones counted.",
    "similarity": "Exact Jaccard similarity to the twin.",
    "split": "train or validation; null for dropped ones.",
    "start": "Offset of its first token in the file.",
    "text": "The text, unchanged.",
    "tokens": "Its tokens, the end token included.",
    "twin_id": "id of the twin.",
    "twin_row": "Row of the twin.",
    "twin_shard": "Shard of the kept document that it is a copy of.",
    "url": "Where it came from.",
}

# What decides over copies: equal digests, then pairs found by signatures, of which the texts are
# compared. Signatures lie beside the table.
DECIDED = ("minhash_signatures.digest", "cleaned_documents.text")
# A release is ordered by a keyed hash of shard and row, and cut into files by tokens.
ORDERED = ("packed_bins.file", "packed_bins.shard", "packed_bins.row", "packed_bins.tokens")
SOURCES: Mapping[str, Sources] = {
    # Raw shards are bytes: what is read from them has no columns before. `shard` is the partition.
    "cleaned_documents": {
        "id": (),
        "url": (),
        "text": (),
        "lang": (),
        "lang_score": (),
        "meta": (),
        "row": (),
    },
    "minhash_signatures": {
        "row": ("cleaned_documents.row",),
        "id": ("cleaned_documents.id",),
        **dict.fromkeys(("digest", "bytes", "shingles"), ("cleaned_documents.text",)),
    },
    "dedup_clusters": {
        "shard": (),
        "row": ("minhash_signatures.row",),
        "id": ("minhash_signatures.id",),
        **dict.fromkeys(("cluster", "cluster_size", "kept", "kind", "twin_shard"), DECIDED),
        "twin_row": ("minhash_signatures.row", *DECIDED),
        "twin_id": ("minhash_signatures.id", *DECIDED),
        "similarity": DECIDED,
        "split": DECIDED,
    },
    "dedup_verdicts": {name: (f"dedup_clusters.{name}",) for name in ("row", "kept", "split")},
    "packed_bins": {
        "file": ("dedup_verdicts.split",),
        "start": ("cleaned_documents.text", "dedup_verdicts.kept", "dedup_verdicts.split"),
        "tokens": ("cleaned_documents.text",),
        "shard": (),
        "row": ("cleaned_documents.row", "dedup_verdicts.row"),
        "id": ("cleaned_documents.id",),
        "offset": ("cleaned_documents.text",),
        "lang": ("cleaned_documents.lang",),
        "cut": ("cleaned_documents.text",),
    },
    "shuffled_bins": {
        "file": ORDERED,
        "start": ORDERED,
        **{name: (f"packed_bins.{name}",) for name in ("tokens", "shard", "row", "id", "offset")},
    },
}


def columns_metadata(asset: str) -> dict[str, dg.TableSchema]:
    """Return the metadata entry with the columns of an asset's table; none where it has no table."""
    schema = SCHEMAS.get(asset)
    if schema is None:
        return {}
    return {"dagster/column_schema": _table_schema(schema, SOURCES[asset])}


def lineage_metadata(asset: str) -> dict[str, dg.MetadataValue]:
    """Return the metadata entry with what each column comes from; none where there is no table."""
    if asset not in SOURCES:
        return {}
    deps = {name: [_dep(source) for source in found] for name, found in SOURCES[asset].items()}
    lineage = dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps))
    return {"dagster/column_lineage": lineage}


def _dep(source: str) -> dg.TableColumnDep:
    asset, _, column = source.partition(".")
    return dg.TableColumnDep(dg.AssetKey(asset), column)


def _table_schema(schema: pa.Schema, sources: Sources) -> dg.TableSchema:
    columns = [
        dg.TableColumn(
            field.name,
            type=str(field.type),
            description=_description(field.name, sources[field.name]),
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
        )
        for field in schema
    ]
    return dg.TableSchema(columns)


def _description(column: str, sources: Iterable[str]) -> str:
    names = ", ".join(f"`{source}`" for source in sources)
    return f"{MEANINGS[column]} From {names}." if names else MEANINGS[column]
