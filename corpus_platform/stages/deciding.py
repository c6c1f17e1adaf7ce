"""Decides over all documents: finds copies and pairs, compares what is new, keeps or drops, splits.

The order of steps is that of DESIGN section 5: exact copies collapse, candidates are met in bands,
signatures sort out what cannot be similar, texts say what is. Nothing is written here but scratch;
tables are for `cluster_tables`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.dedup.bands import codes_of, merge_codes, pairs_of
from corpus_platform.dedup.clusters import EXACT, NEAR, Decisions, decide, unmeasured
from corpus_platform.dedup.split import Split, assign_split, content_keys
from corpus_platform.dedup.verification import Edges, least_matches
from corpus_platform.formats.slices import write_array
from corpus_platform.stages.comparing import compare_texts
from corpus_platform.stages.estimating import Estimated, estimate_pairs
from corpus_platform.stages.known_pairs import Pairs, recall_pairs
from corpus_platform.stages.minhash_signatures import exact_rows
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.pair_join import COPY, SEARCHED, Found, find_copies, find_pairs
from corpus_platform.stages.project import Progress, Project
from corpus_platform.storage.artifacts import Artifact

__all__ = ["LEAK_SIMILARITY", "Last", "Outcome", "decide_documents"]

LEAK_SIMILARITY = 0.5  # from here on, or the threshold, a pair across the split is listed
# Of these smallest keys of the oldest crawl one is held out in any case: the first that is kept.
LIKELY_HELD_OUT = 16


class Last(NamedTuple):
    """An earlier run, and by shard the content that its signatures had.

    `exact`: its similarities are those of texts, and no estimates.
    """

    artifact: Artifact
    signers: Mapping[str, str]
    exact: bool


@dataclass(frozen=True)
class Outcome:
    """All decisions, by number; pairs by code, ascending.

    edges: near-copies; compared: other pairs that were looked at; leaks: pairs of a validation and a
    train document from LEAK_SIMILARITY or the threshold on. counts: what the ledger says; effort:
    what was read for it, which depends on what was known.
    """

    numbering: Numbering
    decisions: Decisions
    split: np.ndarray
    edges: Pairs
    compared: Pairs
    leaks: Pairs
    counts: dict[str, object]
    effort: dict[str, int]


def decide_documents(
    project: Project, numbering: Numbering, last: Last | None, scratch: Path, *, progress: Progress
) -> Outcome:
    """Return what becomes of every document of the included shards."""
    if not len(numbering):
        return _nothing(numbering)
    return _Deciding(project, numbering, last, scratch, progress).run()


def _nothing(numbering: Numbering) -> Outcome:
    none, empty = (
        np.empty(0, np.int64),
        Pairs(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0)),
    )
    edges = Edges(np.empty((0, 2), np.int64), np.empty(0))
    decisions = decide(none, edges, keep="first_seen")
    counts = _counts(decisions, none, empty, empty, empty, 0) | {"canaries": 0, "canaries_found": 0}
    return Outcome(numbering, decisions, none, empty, empty, empty, counts, {})


class _Deciding:
    """One run over a numbering; keeps count of what is read."""

    def __init__(
        self,
        project: Project,
        numbering: Numbering,
        last: Last | None,
        scratch: Path,
        progress: Progress,
    ) -> None:
        self._project, self._numbering, self._scratch = project, numbering, scratch
        self._dedup, self._split = project.settings.dedup, project.settings.split
        self._progress = progress
        artifact, signers, exact = last or (None, {}, True)
        self._known = recall_pairs(numbering, artifact, signers, scratch, exact=exact)
        self._effort = dict.fromkeys(
            ("band_bytes", "exact_bytes", "signatures", "pairs_known", "texts"), 0
        )

    def run(self) -> Outcome:
        copies = find_copies(
            self._numbering, self._dedup, self._scratch, workers=self._project.workers
        )
        self._effort["exact_bytes"] += copies.bytes_read
        representative = np.arange(len(self._numbering), dtype=np.int64)
        representative[copies.copies] = copies.firsts
        keys, oldest = self._content_keys(), self._oldest()
        searched = self._may_be_held_out(keys, oldest & (representative == np.arange(len(keys))))
        found = self._find(copies.copies, searched, self._scratch)
        candidates = self._estimate(found.pairs).pairs
        candidates, canary_similar = self._measure(candidates, self._dedup.threshold, canary=True)
        similar = self._similar(candidates)
        edges = _some(candidates, similar)
        decisions, others = self._decide(representative, edges)
        split = assign_split(keys, decisions.kept, oldest, share=self._split.validation)
        pairs = found.searched
        if (missed := (split == Split.VALIDATION) & ~searched).any():
            beside = self._scratch / "missed"  # the files of the first search are still to be read
            beside.mkdir()
            pairs = [*pairs, *self._find(copies.copies, missed, beside).searched]
        least = min(LEAK_SIMILARITY, self._dedup.threshold)
        leaked = self._leaked(pairs, split, least)
        leaks = _some(leaked, leaked.similarity >= least)  # nan is not
        compared = _union(_some(candidates, ~similar), others, leaked)
        counts = _counts(decisions, split, edges, candidates, leaks, found.capped_buckets) | {
            "canaries": found.canaries + 1,
            "canaries_found": canary_similar * (found.canaries_found + copies.canaries_found),
        }
        return Outcome(
            self._numbering,
            decisions,
            split,
            edges,
            compared,
            leaks,
            counts,
            self._effort,
        )

    def _content_keys(self) -> np.ndarray:
        """Return the keyed hash of each document's exact key."""
        keys = np.empty(len(self._numbering), np.uint64)
        for shard, signed in enumerate(self._numbering.signed):
            digests, places = exact_rows(signed.folder, self._dedup).read(0)
            start, _ = self._numbering.bounds(shard)
            number = self._numbering.number[start + places.astype(np.int64)]
            keys[number] = content_keys(digests, self._split.seed)
        return keys

    def _oldest(self) -> np.ndarray:
        """Return a mask of the documents of the oldest crawl that has any."""
        numbering = self._numbering
        crawls = [shard.split("/", 1)[0] for shard in numbering.shards]
        first = crawls[int(np.flatnonzero(numbering.ends)[0])]
        sizes = np.diff(numbering.ends, prepend=0)
        by_position = np.repeat(np.array([c == first for c in crawls]), sizes)
        return by_position[numbering.position]

    def _may_be_held_out(self, keys: np.ndarray, likely: np.ndarray) -> np.ndarray:
        """Return a mask of the documents that are held out if they are kept."""
        share = self._split.validation
        if share == 0.0:
            return np.zeros(len(keys), np.bool_)
        searched = keys < np.uint64(math.ceil(share * 2.0**64))
        old = np.flatnonzero(likely)
        searched[old[np.argsort(keys[old], kind="stable")[:LIKELY_HELD_OUT]]] = True
        return searched

    def _find(self, copies: np.ndarray, searched: np.ndarray, scratch: Path) -> Found:
        marks = np.zeros(len(self._numbering), np.uint8)
        marks[searched] = SEARCHED
        marks[copies] = COPY
        found = find_pairs(
            self._numbering,
            self._dedup,
            scratch,
            marks[self._numbering.number],
            workers=self._project.workers,
            progress=self._progress,
        )
        self._effort["band_bytes"] += found.bytes_read
        return found

    def _estimate(self, files: Sequence[Path]) -> Estimated:
        found = estimate_pairs(
            files,
            self._known,
            self._numbering,
            self._dedup,
            self._scratch,
            workers=self._project.workers,
            progress=self._progress,
        )
        self._effort["signatures"] += found.signatures_read
        self._effort["pairs_known"] += found.reused
        return found

    def _estimate_codes(self, codes: np.ndarray) -> Pairs:
        path = self._scratch / "some.codes"
        write_array(path, codes)
        return self._estimate([path]).pairs

    def _measure(
        self, pairs: Pairs, threshold: float, *, canary: bool = False
    ) -> tuple[Pairs, bool]:
        """Return the pairs with the similarity of those that may reach the threshold.

        With `canary` also whether the first document resembles its copy.
        """
        permutations = self._dedup.permutations
        if self._dedup.verify != "exact":
            return pairs._replace(similarity=pairs.agreeing / permutations), True
        least = least_matches(permutations, threshold) if threshold else 0
        possible = pairs.agreeing >= least
        similarity = np.where(possible, pairs.similarity, np.nan)
        wanted = np.flatnonzero(possible & np.isnan(similarity))
        codes = pairs.codes[wanted]
        if canary:
            codes = np.append(codes, np.uint64(0))  # number 0 with itself
        found = self._compare(codes)
        similarity[wanted] = found[: len(wanted)]
        return pairs._replace(similarity=similarity), not canary or bool(found[-1] == 1.0)

    def _compare(self, codes: np.ndarray) -> np.ndarray:
        found, texts = compare_texts(
            self._project, self._numbering, codes, self._scratch, progress=self._progress
        )
        self._effort["texts"] += texts
        return found

    def _similar(self, pairs: Pairs) -> np.ndarray:
        if self._dedup.verify == "none":
            return np.ones(len(pairs.codes), np.bool_)
        return pairs.similarity >= self._dedup.threshold  # nan is not

    def _decide(self, representative: np.ndarray, edges: Pairs) -> tuple[Decisions, Pairs]:
        """Return the decisions, and the pairs that had to be measured for them besides the edges."""
        found = Edges(pairs_of(edges.codes), edges.similarity)
        if self._dedup.keep == "first_seen":
            none = np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0)
            return decide(representative, found, keep="first_seen"), Pairs(*none)
        missing = codes_of(unmeasured(representative, found))
        others = self._estimate_codes(np.sort(missing))
        others = self._measure(others, 0.0)[0]  # however little they resemble each other
        pairs = Edges(pairs_of(others.codes), others.similarity)
        return decide(representative, found, keep="one_per_cluster", others=pairs), others

    def _leaked(self, files: Sequence[Path], split: np.ndarray, least: float) -> Pairs:
        """Return the pairs of the searched documents that lie on both sides of the split."""
        codes = merge_codes(np.fromfile(path, np.uint64) for path in files)
        sides = split[pairs_of(codes)]
        across = (sides.min(axis=1) == Split.TRAIN) & (sides.max(axis=1) == Split.VALIDATION)
        return self._measure(self._estimate_codes(codes[across]), least)[0]


def _some(pairs: Pairs, mask: np.ndarray) -> Pairs:
    return Pairs(*(column[mask] for column in pairs))


def _union(*parts: Pairs) -> Pairs:
    """Return all pairs once, with a similarity where one of them has it."""
    whole = Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.lexsort((np.isnan(whole.similarity), whole.codes))
    ordered = _some(whole, order)
    first = np.ones(len(order), np.bool_)
    first[1:] = ordered.codes[1:] != ordered.codes[:-1]
    return _some(ordered, first)


def _counts(
    decisions: Decisions,
    split: np.ndarray,
    edges: Pairs,
    candidates: Pairs,
    leaks: Pairs,
    capped: int,
) -> dict[str, object]:
    return {
        "documents": len(decisions.kept),
        "kept": int(decisions.kept.sum()),
        "exact_copies": int((decisions.kind == EXACT).sum()),
        "near_copies": int((decisions.kind == NEAR).sum()),
        "train": int((split == Split.TRAIN).sum()),
        "validation": int((split == Split.VALIDATION).sum()),
        "candidates": len(candidates.codes),
        "edges": len(edges.codes),
        "leak_pairs": len(leaks.codes),
        "capped_buckets": capped,
        "largest_cluster": int(decisions.cluster_size.max(initial=0)),
        "least_similarity": decisions.least_similarity,
    }
