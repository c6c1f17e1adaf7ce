"""Writes what was decided as tables: clusters shard by shard, edges, compared pairs, leaks.

A shard's rows of the cluster table are cut off as its verdict. Ids are read when they are written,
so that memory is a few numbers a document.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.dedup.bands import pairs_of
from corpus_platform.dedup.clusters import EXACT, KEPT, NEAR
from corpus_platform.dedup.hashes import distinct
from corpus_platform.dedup.split import Split
from corpus_platform.document import CLUSTERS, COMPARED, EDGES, LEAKS
from corpus_platform.stages.deciding import Outcome
from corpus_platform.stages.known_pairs import Pairs
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.tables import TableWriter

__all__ = ["cluster_tables", "write_leaks", "write_pairs"]

KINDS = pa.array([None, "exact", "near"], pa.string())  # by KEPT, EXACT, NEAR
SPLITS = pa.array([None, "train", "validation"], pa.string())  # by Split
assert (KEPT, EXACT, NEAR) == (0, 1, 2)
assert (Split.NONE, Split.TRAIN, Split.VALIDATION) == (0, 1, 2)
ROWS = 1 << 18  # of pairs written at a time
IDS = 1 << 16  # taken at a time: an array of strings holds no more than 2 GB


def cluster_tables(outcome: Outcome) -> Iterator[tuple[str, pa.Table]]:
    """Yield each shard with its rows, one a document, in key order."""
    numbering, decisions = outcome.numbering, outcome.decisions
    twins = distinct(decisions.twin[decisions.twin >= 0])
    twin_ids = _ids(numbering, np.sort(numbering.position[twins]))
    positions = np.sort(numbering.position[twins])
    names = pa.array(numbering.shards, pa.string())
    for shard, name in enumerate(numbering.shards):
        start, end = numbering.bounds(shard)
        own = numbering.number[start:end]
        twin, kept = decisions.twin[own], decisions.kept[own]
        at = numbering.position[np.where(kept, 0, twin)]
        place = pa.array(np.searchsorted(positions, at), mask=kept)
        columns = {
            "shard": pa.repeat(name, end - start),
            "row": pa.array(numbering.row[start:end]),
            "id": pq.read_table(numbering.path(shard, SIGNATURE_FILE), columns=["id"])["id"],
            "cluster": pa.array(numbering.position[decisions.cluster[own]]),
            "cluster_size": pa.array(decisions.cluster_size[own]),
            "kept": pa.array(kept),
            "kind": KINDS.take(pa.array(decisions.kind[own])),
            "twin_shard": names.take(pa.array(numbering.shard_of(at), mask=kept)),
            "twin_row": pa.array(numbering.row[at], mask=kept),
            "twin_id": _taken(twin_ids, place),
            "similarity": pa.array(decisions.similarity[own], mask=kept),
            "split": SPLITS.take(pa.array(outcome.split[own])),
        }
        yield name, pa.table(columns, schema=CLUSTERS)


def write_pairs(path: Path, numbering: Numbering, pairs: Pairs, *, edges: bool) -> int:
    """Write pairs by code; return their number."""
    names = pa.array(numbering.shards, pa.string())
    schema = EDGES if edges else COMPARED
    with TableWriter(path, schema) as writer:
        for start in range(0, len(pairs.codes), ROWS):
            codes, agreeing, similarity = (column[start : start + ROWS] for column in pairs)
            a, b = _positions(numbering, codes)
            columns = {
                "shard_a": names.take(pa.array(numbering.shard_of(a))),
                "row_a": numbering.row[a],
                "shard_b": names.take(pa.array(numbering.shard_of(b))),
                "row_b": numbering.row[b],
                "agreeing": pa.array(agreeing, pa.int32()),
                "similarity": pa.array(similarity, from_pandas=True),  # nan is null
            }
            writer.write(pa.table(columns, schema=schema))
        return writer.close()


def write_leaks(path: Path, outcome: Outcome) -> int:
    """Write the pairs of a validation and a train document, the most similar first."""
    numbering, leaks = outcome.numbering, outcome.leaks
    order = np.lexsort((leaks.codes, -leaks.similarity))
    ends = pairs_of(leaks.codes[order])
    held_out = outcome.split[ends] == Split.VALIDATION
    ends = np.where(held_out[:, :1], ends, ends[:, ::-1])
    a, b = numbering.position[ends[:, 0]], numbering.position[ends[:, 1]]
    involved = distinct(np.concatenate([a, b]))
    ids, names = _ids(numbering, involved), pa.array(numbering.shards, pa.string())
    columns = {}
    for prefix, at in (("", a), ("train_", b)):
        columns |= {
            f"{prefix}shard": names.take(pa.array(numbering.shard_of(at))),
            f"{prefix}row": numbering.row[at],
            f"{prefix}id": _taken(ids, pa.array(np.searchsorted(involved, at))),
        }
    columns["similarity"] = leaks.similarity[order]
    with TableWriter(path, LEAKS) as writer:
        writer.write(pa.table(columns, schema=LEAKS))
        return writer.close()


def _positions(numbering: Numbering, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = numbering.position[pairs_of(codes)].T
    return a, b


def _ids(numbering: Numbering, positions: np.ndarray) -> pa.Array:
    """Return the ids of some ascending positions."""
    parts = [pa.array([], pa.large_string())]
    for shard, part in numbering.by_shard(positions):
        start, _ = numbering.bounds(shard)
        ids = pq.read_table(numbering.path(shard, SIGNATURE_FILE), columns=["id"])["id"]
        ids = ids.cast(pa.large_string()).combine_chunks()
        parts.append(ids.take(pa.array(positions[part] - start)))
    return pa.concat_arrays(parts)


def _taken(ids: pa.Array, places: pa.Array) -> pa.ChunkedArray:
    parts = [ids.take(places[i : i + IDS]).cast(pa.string()) for i in range(0, len(places), IDS)]
    return pa.chunked_array(parts, pa.string())
