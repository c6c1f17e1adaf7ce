"""Decides again from what the last clusters run stored: what another threshold or policy would keep.

No text and no signature is read. Edges below the run's threshold are not stored, so only thresholds
from there on can be answered; the answer is that of a run with this setting.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpus_platform.dedup.bands import pairs_of
from corpus_platform.dedup.clusters import EXACT, NEAR, Keep, decide, unmeasured
from corpus_platform.dedup.verification import Edges
from corpus_platform.errors import UsageError
from corpus_platform.stages.clusters_files import EDGE_FILE
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.known_pairs import stored_pairs
from corpus_platform.stages.numbering import Numbering, number_documents
from corpus_platform.stages.pair_join import find_copies
from corpus_platform.stages.project import Project
from corpus_platform.storage.manifest import Json, Manifest
from corpus_platform.storage.registry import key_order

__all__ = ["DedupCounts", "WhatIf", "decide_again"]


@dataclass(frozen=True)
class DedupCounts:
    """documents = kept + exact_copies + near_copies; clusters of more than one document."""

    documents: int
    kept: int
    exact_copies: int
    near_copies: int
    clusters: int
    largest_cluster: int


@dataclass(frozen=True)
class WhatIf:
    """Counts by crawl, `None` for all; kept by (shard, row)."""

    threshold: float
    keep: Keep
    counts: Mapping[str | None, DedupCounts]
    numbering: Numbering
    kept: np.ndarray  # by position


def decide_again(
    project: Project, *, threshold: float | None = None, keep: Keep | None = None
) -> WhatIf:
    """Return what the last clusters would be with another threshold or keep policy.

    Raises Uncleared before the first clusters run, UsageError where what it stored does not suffice.
    """
    artifact = latest_clusters(project)
    stored = artifact.manifest.settings["dedup"]
    _check_order(stored, project.settings.dedup.model_dump(mode="json"))
    threshold = stored["threshold"] if threshold is None else threshold
    _check(stored, threshold)
    keep = keep or stored["keep"]
    numbering = number_documents(
        project, sorted(artifact.manifest.ledger["verdicts"], key=key_order)
    )
    _check_signatures(artifact.manifest, numbering)
    edges = _edges(artifact.path(EDGE_FILE), numbering, threshold)
    representative = _representatives(project, numbering)
    others = None
    if keep == "one_per_cluster":
        missing = unmeasured(representative, edges)
        others = Edges(missing, np.zeros(len(missing)))  # how similar is not asked here
    decisions = decide(representative, edges, keep=keep, others=others)
    by_position = decisions.kind[numbering.number]
    cluster = decisions.cluster[numbering.number]
    return WhatIf(
        threshold,
        keep,
        dict(_counts(numbering, by_position, cluster)),
        numbering,
        decisions.kept[numbering.number],
    )


def _check_order(stored: Json, current: Json) -> None:
    for name in ("priority", "prefer"):
        if stored[name] != current[name]:
            raise UsageError(
                f"dedup.{name} is {current[name]} now and was {stored[name]} for the last clusters:"
                " other documents count as earlier; run first"
            )


def _check_signatures(clusters: Manifest, numbering: Numbering) -> None:
    for shard, signed in zip(numbering.shards, numbering.signed, strict=True):
        if clusters.inputs.get(f"minhash_signatures[{shard}]") != signed.content:
            raise UsageError(
                f"{shard} was signed again after the last clusters: its pairs are not known; run first"
            )


def _check(stored: Json, threshold: float) -> None:
    if stored["verify"] == "none":
        raise UsageError(
            "the last clusters took every candidate for a copy (dedup.verify: none): what is similar"
            " was never measured; set dedup.verify to exact and run"
        )
    if not stored["threshold"] <= threshold <= 1.0:
        raise UsageError(
            f"threshold {threshold}: the last clusters measured pairs from {stored['threshold']} on;"
            f" between that and 1 it can be answered, below set dedup.threshold and run"
        )


def _edges(path: Path, numbering: Numbering, threshold: float) -> Edges:
    """Return the stored edges at or above a threshold, in numbers."""
    same = {shard: index for index, shard in enumerate(numbering.shards)}
    pairs, similarity = [np.empty((0, 2), np.int64)], [np.empty(0)]
    for part in stored_pairs(path, numbering, same):
        similar = part.similarity >= threshold
        pairs.append(pairs_of(part.codes[similar]))
        similarity.append(part.similarity[similar])
    return Edges(np.concatenate(pairs), np.concatenate(similarity))


def _representatives(project: Project, numbering: Numbering) -> np.ndarray:
    representative = np.arange(len(numbering), dtype=np.int64)
    if len(numbering):
        with tempfile.TemporaryDirectory() as scratch:
            found = find_copies(numbering, project.settings.dedup, Path(scratch), workers=1)
        representative[found.copies] = found.firsts
    return representative


def _counts(
    numbering: Numbering, kind: np.ndarray, cluster: np.ndarray
) -> Iterator[tuple[str | None, DedupCounts]]:
    crawls = np.array([shard.split("/", 1)[0] for shard in numbering.shards], dtype=object)
    sizes = np.diff(numbering.ends, prepend=0)
    of = np.repeat(np.arange(len(crawls)), sizes)
    yield None, _count(kind, cluster)
    for crawl in sorted(set(crawls)):
        own = np.isin(of, np.flatnonzero(crawls == crawl))
        yield crawl, _count(kind[own], cluster[own])


def _count(kind: np.ndarray, cluster: np.ndarray) -> DedupCounts:
    sizes = np.unique(cluster, return_counts=True)[1]
    exact, near = int((kind == EXACT).sum()), int((kind == NEAR).sum())
    return DedupCounts(
        documents=len(kind),
        kept=len(kind) - exact - near,
        exact_copies=exact,
        near_copies=near,
        clusters=int((sizes > 1).sum()),
        largest_cluster=int(sizes.max(initial=0)),
    )
