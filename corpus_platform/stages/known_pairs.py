"""What an earlier clusters run found out about pairs, for those of which nothing has changed.

How many values of two signatures agree, and the exact similarity of two texts, depend on the two
documents and on how they are signed. So a run reads of the last one what it knows of pairs of
shards that are the same today, and asks neither signatures nor texts for them again.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.stages.clusters_files import COMPARED_FILE, EDGE_FILE
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.tables import name_codes
from corpus_platform.storage.artifacts import Artifact

__all__ = ["KnownPairs", "Pairs", "lookup", "recall_pairs", "stored_pairs"]

FILES = (EDGE_FILE, COMPARED_FILE)
COLUMNS = ["shard_a", "row_a", "shard_b", "row_b", "agreeing", "similarity"]


class Pairs(NamedTuple):
    """Pairs by code (earlier << 32 | later), ascending; `similarity` is nan where texts were not read."""

    codes: np.ndarray
    agreeing: np.ndarray
    similarity: np.ndarray


class KnownPairs(NamedTuple):
    """The three arrays of Pairs as files, which every piece maps."""

    codes: Path
    agreeing: Path
    similarity: Path

    def read(self) -> Pairs:
        """Map the files."""
        return Pairs(*(np.load(path, mmap_mode="r") for path in self))


def recall_pairs(
    numbering: Numbering,
    last: Artifact | None,
    signers: Mapping[str, str],
    scratch: Path,
    *,
    exact: bool,
) -> KnownPairs:
    """Write what the last run knows of pairs whose shards have the same signatures today.

    `signers` gives by shard the content that its signatures had in that run; `exact` says whether
    its similarities are those of texts: others are not taken over.
    """
    same = {
        shard: index
        for index, shard in enumerate(numbering.shards)
        if signers.get(shard) == numbering.signed[index].content
    }
    parts = [Pairs(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0))]
    if last is not None and same:
        for name in FILES:
            parts += stored_pairs(last.path(name), numbering, same)
    whole = Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    if not exact:
        whole.similarity.fill(np.nan)
    order = np.argsort(whole.codes)
    known = KnownPairs(*(scratch / f"known-{name}.npy" for name in Pairs._fields))
    for path, column in zip(known, whole, strict=True):
        np.save(path, column[order])
    return known


def stored_pairs(path: Path, numbering: Numbering, same: Mapping[str, int]) -> Iterator[Pairs]:
    """Yield the pairs of a table whose two shards are the same, in today's numbers."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1 << 18, columns=COLUMNS):
            a, a_known = _numbers(batch, "shard_a", "row_a", numbering, same)
            b, b_known = _numbers(batch, "shard_b", "row_b", numbering, same)
            both = a_known & b_known
            codes = np.minimum(a, b)[both] << np.uint64(32) | np.maximum(a, b)[both]
            agreeing = batch.column("agreeing").to_numpy()[both]
            similarity = batch.column("similarity").to_numpy(zero_copy_only=False)[both]
            yield Pairs(codes, agreeing, similarity.astype(np.float64))


def _numbers(
    batch: pa.RecordBatch, shard: str, row: str, numbering: Numbering, same: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each document, and whether it is one of the same shards."""
    shards = name_codes(batch.column(shard), same)
    rows = batch.column(row).to_numpy()
    numbers, known = np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.bool_)
    order = np.argsort(shards, kind="stable")  # a look at all rows for each shard is too slow
    names, firsts = np.unique(shards[order], return_index=True)
    for one, here in zip(names.tolist(), np.split(order, firsts[1:]), strict=True):
        if one < 0:
            continue
        start, end = numbering.bounds(one)
        places = np.searchsorted(numbering.row[start:end], rows[here])
        found = places < end - start
        found[found] = numbering.row[start:end][places[found]] == rows[here][found]
        numbers[here[found]] = numbering.number[start + places[found]]
        known[here[found]] = True
    return numbers, known


def lookup(known: Pairs, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return agreeing (-1 where unknown), similarity (nan where unknown), and a mask of known codes."""
    places = np.searchsorted(known.codes, codes)
    found = places < len(known.codes)
    found[found] = known.codes[places[found]] == codes[found]
    agreeing, similarity = np.full(len(codes), -1, np.int32), np.full(len(codes), np.nan)
    agreeing[found] = known.agreeing[places[found]]
    similarity[found] = known.similarity[places[found]]
    return agreeing, similarity, found
