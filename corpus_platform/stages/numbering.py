"""All documents of the included shards as numbers, in the order in which copies are decided.

A document has a *position*: shards in key order, inside a shard its place; tables are written so.
Its *number* says how early it counts: the same unless `priority` or `prefer: longest` put others
first. Verdicts are made over numbers. Names, ids and texts stay in the shards' files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from corpus_platform.config import DedupSettings
from corpus_platform.errors import UsageError
from corpus_platform.stages.minhash_signatures import (
    SIGNATURE_FILE,
)
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact

__all__ = ["Numbering", "number_documents", "parts_by_shard"]

MAX_DOCUMENTS = (1 << 32) - 4096  # a pair is 64 bits; the rest is for canaries


@dataclass(frozen=True)
class Numbering:
    """The included shards and their documents.

    shards, signed: in key order, with their signatures; ends: [shards], where their positions end.
    row: [positions], the row in the source. number: [positions]; position: its inverse.
    """

    shards: Sequence[str]
    signed: Sequence[Artifact]
    ends: np.ndarray
    row: np.ndarray
    number: np.ndarray
    position: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the positions [start, end) of a shard."""
        return (int(self.ends[shard - 1]) if shard else 0), int(self.ends[shard])

    def shard_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the index of the shard of each position."""
        return np.searchsorted(self.ends, positions, side="right")

    def by_shard(self, positions: np.ndarray) -> Iterator[tuple[int, slice]]:
        """Yield each shard that has some of the ascending positions, and their slice."""
        return parts_by_shard(self.ends, positions)

    def path(self, shard: int, name: str) -> Path:
        """Return a file of a shard's signatures."""
        return self.signed[shard].path(name)


def parts_by_shard(ends: np.ndarray, positions: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Yield each shard that has some of the ascending positions, and their slice.

    ends: where the positions of each shard end.
    """
    cuts = np.concatenate(([0], np.searchsorted(positions, ends)))
    for shard in np.flatnonzero(np.diff(cuts)).tolist():
        yield shard, slice(int(cuts[shard]), int(cuts[shard + 1]))


def number_documents(project: Project, shards: Sequence[str]) -> Numbering:
    """Return the documents of some shards, which are cleared, in key order."""
    dedup = project.settings.dedup
    signed = [project.present("minhash_signatures", shard) for shard in shards]
    rows, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    longest = dedup.prefer == "longest"
    for artifact in signed:
        columns = ["row", "bytes"] if longest else ["row"]
        table = pq.read_table(artifact.path(SIGNATURE_FILE), columns=columns)
        rows.append(table["row"].to_numpy())
        if longest:
            lengths.append(table["bytes"].to_numpy())
    ends = np.cumsum([len(r) for r in rows[1:]], dtype=np.int64)
    row = np.concatenate(rows)
    if len(row) > MAX_DOCUMENTS:
        raise UsageError(
            f"{len(row):,} documents are more than {MAX_DOCUMENTS:,}, which one corpus can compare"
        )
    order = _order(dedup, shards, ends, np.concatenate(lengths) if longest else None)
    if order is None:
        identity = np.arange(len(row), dtype=np.int64)
        return Numbering(tuple(shards), signed, ends, row, identity, identity)
    number = np.empty(len(row), np.int64)
    number[order] = np.arange(len(row))
    return Numbering(tuple(shards), signed, ends, row, number, order)


def _order(
    dedup: DedupSettings, shards: Sequence[str], ends: np.ndarray, lengths: np.ndarray | None
) -> np.ndarray | None:
    """Return the positions in the order in which they count; None where that is their own."""
    ranks = [_rank(shard, dedup.priority) for shard in shards]
    if lengths is None and ranks == sorted(ranks):
        return None
    sizes = np.diff(ends, prepend=0)
    rank = np.repeat(np.array(ranks, np.int64), sizes)
    if lengths is None:
        return np.argsort(rank, kind="stable")
    return np.lexsort((-lengths, rank))  # stable: of equal ones that of the older crawl


def _rank(shard: str, priority: Sequence[str]) -> int:
    """Return the place of the first pattern that a shard's key matches, else behind them all."""
    return next((i for i, p in enumerate(priority) if fnmatchcase(shard, p)), len(priority))
