"""The whole pure chain of deduplication over a list of texts, for tests of its parts together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.bands import bucket_pairs, merge_codes, pairs_of
from corpus_platform.dedup.clusters import Decisions, Keep, collapse_exact, decide, unmeasured
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.verification import (
    Edges,
    Pairs,
    Shingles,
    agreements,
    compare_sets,
    least_matches,
)
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.text.units import UnitKind

BUCKET_CAP = 64


class Candidates(NamedTuple):
    pairs: Pairs
    capped_buckets: int


class Result(NamedTuple):
    decisions: Decisions
    candidates: Candidates
    edges: Edges
    shingles: list[Shingles]


def deduplicate(
    texts: Sequence[str],
    *,
    kind: UnitKind = "auto",
    banding: tuple[int, int] = (16, 8),
    threshold: float = 0.8,
    keep: Keep = "first_seen",
) -> Result:
    bands, rows = banding
    signer = Signer(DedupSettings(shingle=kind, permutations=bands * rows, bands=bands, rows=rows))
    numbers = np.arange(len(texts))
    signed, shingles = signer.sign(texts), np.split(*signer.shingle_sets(texts))[:-1]
    representative = numbers.copy()
    copies, originals = collapse_exact(signed.digests, numbers)
    representative[copies] = originals
    firsts = np.flatnonzero(representative == numbers)
    candidates = join(signed.bands[firsts], firsts)
    edges = verify(candidates.pairs, signed.signatures, shingles, threshold)
    asked = unmeasured(representative, edges)
    others = Edges(asked, compare(shingles, asked))
    decisions = decide(representative, edges, keep=keep, others=others)
    return Result(decisions, candidates, edges, shingles)


def join(hashes: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> Candidates:
    """Return the pairs of all bands."""
    found = [bucket_pairs(band, numbers, cap=BUCKET_CAP) for band in hashes.T]
    codes = merge_codes(part.codes for part in found)
    return Candidates(pairs_of(codes), sum(part.capped for part in found))


def verify(
    pairs: Pairs, signatures: npt.NDArray[np.uint32], shingles: list[Shingles], threshold: float
) -> Edges:
    """Return the pairs at the threshold."""
    equal = agreements(signatures[pairs[:, 0]], signatures[pairs[:, 1]])
    pairs = pairs[equal >= least_matches(signatures.shape[1], threshold)]
    similarity = compare(shingles, pairs)
    similar = similarity >= threshold
    return Edges(pairs[similar], similarity[similar])


def compare(shingles: list[Shingles], pairs: Pairs) -> npt.NDArray[np.float64]:
    ends = np.cumsum([len(one) for one in shingles])
    return compare_sets(np.concatenate(shingles), np.append(0, ends[:-1]), ends, pairs)


def words(first: int, last: int) -> str:
    """Return the words w<first> to w<last>, as the cases of clusters spell them."""
    return " ".join(f"w{number:03d}" for number in range(first, last + 1))
