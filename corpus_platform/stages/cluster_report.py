"""The report of the clusters: what a person looks at before trusting them, as JSON for `reports`.

Counts before and after, by crawl and by source, the sizes of clusters, the largest with how they
begin, and of each language some near-copies beside what they were dropped for.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from corpus_platform.dedup.clusters import EXACT, NEAR
from corpus_platform.dedup.hashes import splitmix64
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.comparing import read_texts
from corpus_platform.stages.deciding import Outcome
from corpus_platform.stages.document_traits import Labels, Traits
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.project import Project

__all__ = ["survival", "write_report"]

LARGEST = 10  # clusters that are shown
PAIRS = 50  # of each language
LANGUAGES = 12  # of most near-copies
SOURCES = 100  # of most documents
LINE_CHARS, SEEN_CHARS = 200, 10_000


def write_report(path: Path, project: Project, outcome: Outcome, traits: Traits) -> None:
    """Write the report of an outcome; `traits` are those of its shards."""
    text = json.dumps(_report(project, outcome, traits), ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def survival(
    labels: Labels, within: np.ndarray, kept: np.ndarray, kind: np.ndarray
) -> dict[str, dict[str, int]]:
    """Return by label what became of its documents; all arrays are by position.

    within: the document is a near-copy of one with the same crawl and source; what is not outlasts.
    """
    counts = {
        "documents": labels.counts(),
        "exact_copies": labels.counts(kind == EXACT),
        "near_copies": labels.counts(kind == NEAR),
        "kept": labels.counts(kept),
        "outlast": labels.counts(~within),
    }
    return {name: {what: of[name] for what, of in counts.items()} for name in labels.names}


def _report(project: Project, outcome: Outcome, traits: Traits) -> Mapping[str, object]:
    numbering, decisions, dedup = outcome.numbering, outcome.decisions, project.settings.dedup
    bands, rows = dedup.banding
    kept, kind = decisions.kept[numbering.number], decisions.kind[numbering.number]
    within = _within(outcome, traits)
    size = _bytes(numbering)
    sources = survival(traits.source, within, kept, kind)
    largest = sorted(sources, key=lambda name: (-sources[name]["documents"], name))[:SOURCES]
    roots = np.flatnonzero(decisions.cluster == np.arange(len(numbering)))
    sizes, clusters = np.unique(decisions.cluster_size[roots], return_counts=True)
    return {
        "banding": {"bands": bands, "rows": rows, "threshold": dedup.threshold},
        "documents": {
            "before": len(numbering),
            "after": int(kept.sum()),
            "exact_copies": outcome.counts["exact_copies"],
            "near_copies": outcome.counts["near_copies"],
        },
        "bytes": {"before": int(size.sum()), "after": int(size[kept].sum())},
        "cluster_sizes": np.stack([sizes, clusters], axis=1).tolist(),
        "crawls": survival(traits.crawl, within, kept, kind),
        "sources": {name: sources[name] for name in largest},
        "largest": _largest(project, outcome, roots),
        "pairs": _pairs(project, outcome, traits.language),
        "compared": outcome.counts["candidates"],
        "edges": outcome.counts["edges"],
        "capped_buckets": outcome.counts["capped_buckets"],
    }


def _within(outcome: Outcome, traits: Traits) -> np.ndarray:
    """Return by position whether a document is a near-copy inside its crawl and source."""
    numbering, decisions = outcome.numbering, outcome.decisions
    near = np.flatnonzero(decisions.kind == NEAR)
    own, twin = numbering.position[near], numbering.position[decisions.twin[near]]
    same = np.ones(len(near), np.bool_)
    for labels in (traits.crawl, traits.source):
        same &= labels.codes[own] == labels.codes[twin]
    within = np.zeros(len(numbering), np.bool_)
    within[own[same]] = True
    return within


def _bytes(numbering: Numbering) -> np.ndarray:
    """Return the bytes of each text, by position."""
    tables = (
        pq.read_table(numbering.path(shard, SIGNATURE_FILE), columns=["bytes"])
        for shard in range(len(numbering.shards))
    )
    return np.concatenate([np.empty(0, np.int64), *(t["bytes"].to_numpy() for t in tables)])


def _largest(project: Project, outcome: Outcome, roots: np.ndarray) -> list[dict[str, object]]:
    """Return the largest clusters, each with its first document."""
    decisions = outcome.decisions
    order = np.lexsort((roots, -decisions.cluster_size[roots]))[:LARGEST]
    chosen = roots[order][decisions.cluster_size[roots[order]] > 1]
    shown = _members(project, outcome.numbering, chosen)
    found = []
    for root in chosen.tolist():
        members = decisions.cluster == root
        found.append(
            {
                **shown[root],
                "size": int(members.sum()),
                "texts": int((members & (decisions.kind != EXACT)).sum()),
                "kept": int((members & decisions.kept).sum()),
            }
        )
    return found


def _pairs(
    project: Project, outcome: Outcome, languages: Labels
) -> dict[str, list[dict[str, object]]]:
    """Return of each language near-copies and what they were dropped for, chosen by a hash."""
    numbering, decisions = outcome.numbering, outcome.decisions
    near = np.flatnonzero(decisions.kind == NEAR)
    near = near[np.argsort(splitmix64(near.astype(np.uint64)))]
    codes = languages.codes[numbering.position[near]]
    found = np.bincount(codes, minlength=len(languages.names))
    most = np.argsort(-found, kind="stable")[:LANGUAGES]
    chosen = {c: near[codes == c][:PAIRS] for c in most.tolist() if found[c]}
    numbers = [np.concatenate([n, decisions.twin[n]]) for n in chosen.values()]
    shown = _members(project, numbering, np.concatenate([np.empty(0, np.int64), *numbers]))
    return {
        languages.names[code]: [
            {
                "similarity": float(decisions.similarity[number]),
                "kept": shown[int(decisions.twin[number])],
                "dropped": shown[number],
            }
            for number in dropped.tolist()
        ]
        for code, dropped in chosen.items()
    }


def _members(
    project: Project, numbering: Numbering, numbers: np.ndarray
) -> dict[int, dict[str, object]]:
    """Return by number where some documents lie and how they begin."""
    numbers = np.unique(numbers)
    order = np.argsort(numbering.position[numbers])
    positions, found = numbering.position[numbers][order], {}
    for shard, part in numbering.by_shard(positions):
        name, rows = numbering.shards[shard], numbering.row[positions[part]]
        path = project.present("cleaned_documents", name).path(DOCUMENTS)
        texts = read_texts(path, rows, columns=("id", "text"))
        for number, row, (id_, text) in zip(
            numbers[order][part].tolist(), rows.tolist(), texts, strict=True
        ):
            found[number] = {
                "shard": name,
                "row": row,
                "id": id_[:LINE_CHARS],
                "first_line": _first_line(text),
            }
    return found


def _first_line(text: str) -> str:
    """Return the first line with a letter or digit, else the first that is not blank."""
    lines = [line.strip() for line in text[:SEEN_CHARS].splitlines() if line.strip()]
    telling = (line for line in lines if any(map(str.isalnum, line)))
    return next(telling, lines[0] if lines else "")[:LINE_CHARS]
