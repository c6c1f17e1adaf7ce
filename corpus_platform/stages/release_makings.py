"""What a release was made of: the generations of its shards, as far as they are still there.

A release's manifest names the content of each pack, a pack's manifest that of the cleaned documents
and of the verdict. What was collected since is None: nobody can tell any more.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from corpus_platform.stages.cleaned_documents import DOCUMENTS, QUARANTINE_FILE, TOMBSTONE_FILE
from corpus_platform.stages.clusters_files import CLUSTER_FILE
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import NamedRelease
from corpus_platform.stages.release_places import find_group
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.registry import key_order

__all__ = ["Makings", "Records"]

PACKED, CLEANED, VERDICTS, CLUSTERS = (
    "packed_bins",
    "cleaned_documents",
    "dedup_verdicts",
    "dedup_clusters",
)
_LAST_ROW = 1 << 62


@dataclass(frozen=True)
class Records:
    """The records of a shard as one generation cleaned them.

    `readable` has row, hash of the id, and `rule` where one dropped it; `unreadable` row and reason.
    """

    readable: pl.DataFrame
    unreadable: pl.DataFrame


class Makings:
    """The artifacts that a release was made of, found when they are asked for."""

    def __init__(self, project: Project, release: NamedRelease) -> None:
        self._project, self.release = project, release

    def traits(self, shard: str) -> pl.DataFrame | None:
        """Return row, language and tokens cut off of each document of a shard's pack."""
        pack = self._pack(shard)
        if pack is None:
            return None
        lines = pl.scan_parquet(pack.path(PACKED_DOCUMENTS)).select("row", "lang", "cut")
        return lines.group_by("row").agg(pl.col("lang").first(), pl.col("cut").sum()).collect()

    def records(self, shard: str) -> Records | None:
        """Return what the cleaning made of each record of a shard."""
        cleaned = self._cleaned(shard)
        if cleaned is None:
            return None
        kept, dropped = (
            pl.scan_parquet(cleaned.path(name)).with_columns(pl.col("id").hash())
            for name in (DOCUMENTS, TOMBSTONE_FILE)
        )
        columns = ("row", "id", "rule")
        none = pl.lit(None, pl.String).alias("rule")
        parts = [kept.with_columns(none).select(columns), dropped.select(columns)]
        readable = pl.concat(parts).collect().sort("row")
        return Records(readable, _unreadable(cleaned, readable["row"]))

    def copies(self, shard: str) -> pl.DataFrame | None:
        """Return row, kind and twin's shard of each copy in a shard."""
        verdict = self._verdict(shard)
        if verdict is None:
            return None
        key = verdict.manifest.key
        found = next((a for a, verdicts in self._clusters if verdicts.get(shard) == key), None)
        return None if found is None else _copies(found.path(CLUSTER_FILE), shard)

    def _pack(self, shard: str) -> Artifact | None:
        return self._made(PACKED, shard, self.release.manifest.inputs.get(f"{PACKED}[{shard}]"))

    def _cleaned(self, shard: str) -> Artifact | None:
        pack = self._pack(shard)
        return pack and self._made(CLEANED, shard, pack.manifest.inputs.get(CLEANED))

    def _verdict(self, shard: str) -> Artifact | None:
        pack = self._pack(shard)
        return pack and self._made(VERDICTS, shard, pack.manifest.inputs.get(VERDICTS))

    def _made(self, asset: str, shard: str, content: str | None) -> Artifact | None:
        """Return the generation of a content, where it is there with all its files."""
        found = (asset, shard, content)
        return self._project.once(found, lambda: self._find(asset, shard, content))

    def _find(self, asset: str, shard: str, content: str | None) -> Artifact | None:
        if content is None:
            return None
        wanted = None
        if shard in self._project.registry.all():
            wanted = self._project.artifact(asset, shard)
        if wanted is None or wanted.content != content:
            every = self._project.store.generations(asset, shard)
            wanted = next((a for a in every if a.content == content), None)
        is_whole = wanted and all(wanted.path(name).is_file() for name in wanted.sizes())
        return wanted if is_whole else None

    @cached_property
    def _clusters(self) -> list[tuple[Artifact, dict[str, str]]]:
        """The clusters that are there, the last ones first, and the verdicts that they made."""
        every = self._project.store.generations(CLUSTERS, None)
        return [(a, a.manifest.ledger["verdicts"]) for a in every if a.path(CLUSTER_FILE).is_file()]


def _unreadable(cleaned: Artifact, readable: pl.Series) -> pl.DataFrame:
    """Return row and reason of each record in quarantine: the rows that no other table has."""
    rows = pl.int_range(int(cleaned.numbers["lines"]), eager=True)
    reasons = pl.read_parquet(cleaned.path(QUARANTINE_FILE), columns=["reason"])
    return reasons.with_columns(row=rows.filter(~rows.is_in(readable.implode())))


def _copies(path: Path, shard: str) -> pl.DataFrame:
    with pq.ParquetFile(path) as file:  # in the order of shard and row
        first, _ = find_group(file, ["shard", "row"], (shard, 0), _key)
        last, rows = find_group(file, ["shard", "row"], (shard, _LAST_ROW), _key)
    own = pl.scan_parquet(path).slice(first, last + rows - first)
    chosen = own.filter((pl.col("shard") == shard) & ~pl.col("kept"))
    return chosen.select("row", "kind", "twin_shard").collect()


def _key(place: tuple) -> tuple:
    shard, row = place
    return key_order(shard), row
