"""The columns of the tables, as the UI shows them: Arrow schemas with a line on each column."""

import dagster as dg
import pyarrow as pa

from corpus_platform.document import (
    CLEANED,
    CLUSTERS,
    RELEASE_DOCUMENTS,
    SIGNATURES,
    VERDICTS,
)

__all__ = ["columns_metadata"]

SCHEMAS = {
    "cleaned_documents": CLEANED,
    "minhash_signatures": SIGNATURES,
    "dedup_clusters": CLUSTERS,
    "dedup_verdicts": VERDICTS,
    "packed_bins": RELEASE_DOCUMENTS,  # the table beside the bins
    "shuffled_bins": RELEASE_DOCUMENTS,
}
MEANINGS = {
    "bands": "Band hashes of the signature, little-endian uint64.",
    "cluster": "Number of the connected component over all verified pairs and exact copies.",
    "cluster_size": "Documents in the cluster.",
    "digest": "sha256 of the folded text: the exact key.",
    "file": "The token file that holds the document.",
    "id": "The user's id of the document.",
    "kept": "Whether the document survives dedup.",
    "kind": "Why it was dropped: exact or near; null for kept ones.",
    "lang": "Language: as given, else as the model says; code for program text.",
    "lang_score": "The model's confidence; null where it was not asked.",
    "meta": "All other fields of the record, as JSON.",
    "row": "0-based record number in the shard, quarantined ones included.",
    "shard": "Partition key.",
    "shingles": "Distinct shingles of the folded text.",
    "signature": "MinHash values, little-endian uint32.",
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


def columns_metadata(asset: str) -> dict[str, dg.TableSchema]:
    """Return the metadata entry with the columns of an asset's table; none where it has no table."""
    schema = SCHEMAS.get(asset)
    return {} if schema is None else {"dagster/column_schema": _table_schema(schema)}


def _table_schema(schema: pa.Schema) -> dg.TableSchema:
    columns = [
        dg.TableColumn(
            field.name,
            type=str(field.type),
            description=MEANINGS[field.name],
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
        )
        for field in schema
    ]
    return dg.TableSchema(columns)
