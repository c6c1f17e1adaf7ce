"""The whole pure chain of deduplication over a list of texts, for tests of its parts together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.bands import Candidates, band_hashes, candidate_pairs
from corpus_platform.dedup.clusters import Decisions, Keep, collapse_exact, decide
from corpus_platform.dedup.exact import text_digest
from corpus_platform.dedup.minhash import MinHasher
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.dedup.verification import Edges, jaccard, prefilter, verify
from corpus_platform.text.folding import fold
from corpus_platform.text.units import UnitKind


class Result(NamedTuple):
    decisions: Decisions
    candidates: Candidates
    edges: Edges
    shingles: list[npt.NDArray[np.uint64]]


def deduplicate(
    texts: Sequence[str],
    *,
    kind: UnitKind = "auto",
    banding: tuple[int, int] = (16, 8),
    threshold: float = 0.8,
    keep: Keep = "first_seen",
) -> Result:
    folded = [fold(text) for text in texts]
    representative = collapse_exact([text_digest(text) for text in folded])
    shingles = [shingle_hashes(text, kind=kind, width=5) for text in folded]
    bands, rows = banding
    hasher = MinHasher(bands * rows)
    firsts = np.unique(representative)
    signatures = np.array([hasher.signature(shingles[i]) for i in firsts])
    candidates = candidate_pairs(band_hashes(signatures, bands, rows))
    likely = prefilter(candidates.pairs, signatures, threshold)
    edges = verify(firsts[likely], shingles.__getitem__, threshold)
    decisions = decide(
        representative,
        edges,
        keep=keep,
        similarity_of=lambda a, b: jaccard(shingles[a], shingles[b]),
    )
    return Result(decisions, candidates, edges, shingles)


def words(first: int, last: int) -> str:
    """Return the words w<first> to w<last>, as the cases of clusters spell them."""
    return " ".join(f"w{number:03d}" for number in range(first, last + 1))
