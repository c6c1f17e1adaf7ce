"""Documents as they travel through the chain: the fields, and the Arrow schema of every table.

A document is one record of a shard. Its key is (shard, row): `shard` is the partition key,
`row` the 0-based record number in the shard, quarantined records included; `id` is the user's.
`line` is the 1-based physical line of the decompressed stream, or row + 1 in Parquet.
"""

from typing import NamedTuple

import pyarrow as pa

__all__ = [
    "CLEANED",
    "CLUSTERS",
    "COMPARED",
    "EDGES",
    "EXCERPT_BYTES",
    "LEAKS",
    "PACKED_DOCUMENTS",
    "QUARANTINE",
    "RELEASE_DOCUMENTS",
    "SIGNATURES",
    "TOMBSTONES",
    "VERDICTS",
    "Document",
    "Rejected",
]

EXCERPT_BYTES = 200  # of a quarantined record; the whole record stays in the raw shard


class Document(NamedTuple):
    """One readable record: `meta` is the JSON of all other fields, `lang` None where not given."""

    row: int
    line: int
    id: str
    url: str | None
    text: str
    lang: str | None
    meta: str


class Rejected(NamedTuple):
    """One record that cannot be read.

    `offset` counts bytes of the decompressed stream (None in Parquet); `reason` is a name of the
    quarantine; `excerpt` is at most EXCERPT_BYTES bytes of the record, escaped.
    """

    row: int
    line: int
    offset: int | None
    reason: str
    excerpt: str


CLEANED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("lang", pa.string()),
        pa.field("lang_score", pa.float64()),
        pa.field("meta", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)

TOMBSTONES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
    ]
)

QUARANTINE = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("offset", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("excerpt", pa.string(), nullable=False),
    ]
)

SIGNATURES = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("digest", pa.binary(32), nullable=False),  # sha256 of the folded or raw text
        pa.field("bytes", pa.int64(), nullable=False),  # of the text in UTF-8
        pa.field("shingles", pa.int64(), nullable=False),  # places of the window, repeats counted
    ]
)

EDGES = pa.schema(
    [
        pa.field("shard_a", pa.string(), nullable=False),
        pa.field("row_a", pa.int64(), nullable=False),
        pa.field("shard_b", pa.string(), nullable=False),
        pa.field("row_b", pa.int64(), nullable=False),
        pa.field("agreeing", pa.int32(), nullable=False),  # equal values of the two signatures
        pa.field("similarity", pa.float64(), nullable=False),
    ]
)

# Pairs that were looked at and are no edges; without a similarity where the signatures sufficed.
COMPARED = pa.schema([*list(EDGES)[:-1], pa.field("similarity", pa.float64())])

LEAKS = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),  # of the validation document
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("train_shard", pa.string(), nullable=False),
        pa.field("train_row", pa.int64(), nullable=False),
        pa.field("train_id", pa.string(), nullable=False),
        pa.field("similarity", pa.float64(), nullable=False),
    ]
)

CLUSTERS = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("cluster", pa.int64(), nullable=False),
        pa.field("cluster_size", pa.int64(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("twin_shard", pa.string()),
        pa.field("twin_row", pa.int64()),
        pa.field("twin_id", pa.string()),
        pa.field("similarity", pa.float64()),
        pa.field("split", pa.string()),
    ]
)

VERDICTS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("split", pa.string()),
    ]
)

# A line is a document or, in files of rows, a piece of one.
RELEASE_DOCUMENTS = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),  # of a piece in its document, in tokens
    ]
)

PACKED_DOCUMENTS = pa.schema(
    [
        *RELEASE_DOCUMENTS,
        pa.field("lang", pa.string()),
        pa.field("cut", pa.int64(), nullable=False),  # tokens beyond the limit, on the first piece
    ]
)
