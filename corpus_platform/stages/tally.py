"""The tally: what became of the documents of each crawl, read from manifests and the cluster table.

It holds what is current; shards that are blocked or not yet made count as far as they came.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import polars as pl

from corpus_platform.errors import Uncleared
from corpus_platform.stages.clusters_files import CLUSTER_FILE
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.project import Project

__all__ = ["CrawlTally", "tally"]


@dataclass
class CrawlTally:
    """Counts of one crawl. lines = quarantined + documents; documents = dropped + cleaned;
    cleaned = exact_copies + near_copies + kept; kept = train + validation documents."""

    shards: int = 0
    lines: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    cleaned: int = 0
    exact_copies: int = 0
    near_copies: int = 0
    kept: int = 0
    train_documents: int = 0
    validation_documents: int = 0
    train_tokens: int = 0
    validation_tokens: int = 0
    # Of the dropped, those that a rule hits only by a known fault of its definition.
    known_faults: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values; `known_faults` only where there are such rules."""
        counts = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {n: dict(v) if isinstance(v, Counter) else v for n, v in counts.items()}
        if not plain["known_faults"]:
            del plain["known_faults"]
        return plain


def tally(project: Project) -> dict[str, CrawlTally]:
    """Return the counts of each crawl, oldest first."""
    crawls: dict[str, CrawlTally] = {}
    decided = _decided(project)
    for key, shard in project.shards().items():
        crawl = crawls.setdefault(shard.crawl, CrawlTally())
        crawl.shards += 1
        _add_cleaned(project, key, crawl)
        _add(crawl, decided.get(key, {}), ("exact_copies", "near_copies", "kept"))
        _add_packed(project, key, crawl)
    return crawls


def _add_cleaned(project: Project, shard: str, crawl: CrawlTally) -> None:
    artifact = project.artifact("cleaned_documents", shard)
    if artifact is None or not artifact.numbers.get("readable"):
        return
    ledger = artifact.manifest.ledger
    crawl.lines += ledger["lines"]
    crawl.documents += ledger["documents"]
    crawl.cleaned += ledger["kept"]
    crawl.quarantined.update(ledger["quarantined"])
    crawl.dropped.update(ledger["dropped"])
    crawl.known_faults.update(ledger.get("dropped_by_known_faults_only", {}))


def _add_packed(project: Project, shard: str, crawl: CrawlTally) -> None:
    artifact = project.artifact("packed_bins", shard)
    if artifact is not None:
        names = [f"{s}_{what}" for s in ("train", "validation") for what in ("documents", "tokens")]
        _add(crawl, artifact.numbers, names)


def _add(crawl: CrawlTally, numbers: Mapping[str, float], names: Iterable[str]) -> None:
    for name in names:
        setattr(crawl, name, getattr(crawl, name) + int(numbers.get(name, 0)))


def _decided(project: Project) -> dict[str, dict[str, float]]:
    try:
        path = latest_clusters(project).path(CLUSTER_FILE)
    except Uncleared:
        return {}
    counts = (
        pl.scan_parquet(path)
        .group_by("shard")
        .agg(
            exact_copies=(pl.col("kind") == "exact").sum(),
            near_copies=(pl.col("kind") == "near").sum(),
            kept=pl.col("kept").sum(),
        )
        .collect()
    )
    return {row.pop("shard"): row for row in counts.iter_rows(named=True)}
