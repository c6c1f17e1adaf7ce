"""Holds the Jaccard estimates of stored signatures against the exact value and against datasketch.

Each text is compared with a part of itself, so that similarities from 0.3 to 0.95 come up in every
shard. What is exact is computed from sets of units, and datasketch's estimate from the same units as
bytes: neither touches our hashes, and a fault in these shows as an error that chance does not explain.
What is too large an error is for the gate to say.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.minhash import estimate
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.text.folding import fold
from corpus_platform.text.units import split_units

__all__ = ["Witness", "witness"]

MAX_CHARS = 20_000  # longer texts are cut, and signed anew: datasketch makes 2 to 4 MB a second
MIN_SHINGLES = 20
LEAST, MOST = 0.3, 0.95  # similarities of a text and its part
ALIKE = 0.5  # texts that have so much in common err alike: the second one proves nothing

Signatures = npt.NDArray[np.uint32]
Shingles = frozenset[tuple[str, ...]]


class Witness(NamedTuple):
    """The errors of estimates over some pairs.

    `ratio` is their root mean square by that of theory, sqrt(J (1 - J) / k); `bias` their mean by
    its standard error; `witness_ratio` the ratio of datasketch. All are 0 without pairs.
    """

    pairs: int
    ratio: float
    bias: float
    witness_ratio: float


class _Pair(NamedTuple):
    """A text and its part; `stored` is the text's signature, None where the text was cut."""

    text: str
    part: str
    shingles: Shingles
    others: Shingles
    stored: Signatures | None

    @property
    def jaccard(self) -> float:
        return _jaccard(self.shingles, self.others)


def witness(texts: Sequence[str], signatures: Signatures, signer: Signer, *, seed: int) -> Witness:
    """Return how far estimates are off, over those of the texts that are long enough and unlike.

    `signatures` are the stored ones of the texts, row by row; parts are signed by `signer`. The
    seed chooses the parts.
    """
    pairs = list(_pairs(texts, signatures, signer.dedup, seed))
    if not pairs:
        return Witness(0, 0.0, 0.0, 0.0)
    exact = np.array([pair.jaccard for pair in pairs])
    variance = float((exact * (1.0 - exact)).mean()) / signer.dedup.permutations
    errors = _estimates(pairs, signer) - exact
    others = _datasketch(pairs, signer.dedup.permutations) - exact
    return Witness(
        len(pairs),
        math.sqrt(float((errors**2).mean()) / variance),
        float(errors.mean()) / math.sqrt(variance / len(pairs)),
        math.sqrt(float((others**2).mean()) / variance),
    )


def _pairs(
    texts: Sequence[str], signatures: Signatures, dedup: DedupSettings, seed: int
) -> Iterator[_Pair]:
    random, seen = np.random.default_rng(seed), list[Shingles]()
    for text, stored in zip(texts, signatures, strict=True):
        short = text[:MAX_CHARS]
        shingles = _shingles(short, dedup)
        if len(shingles) < MIN_SHINGLES or any(_jaccard(shingles, s) >= ALIKE for s in seen):
            continue
        part = _part(short, random)
        others = _shingles(part, dedup)
        if 0.0 < _jaccard(shingles, others) < 1.0:  # a text that repeats itself may be its part
            seen.append(shingles)
            yield _Pair(short, part, shingles, others, stored if short == text else None)


def _part(text: str, random: np.random.Generator) -> str:
    """Return a text without a stretch that begins anywhere and may run round the end.

    So each place is left out as often as any other, and errors are independent of where the least
    hashes of a text happen to lie.
    """
    length = round(len(text) * (1.0 - random.uniform(LEAST, MOST)))
    start = int(random.integers(len(text)))
    end = start + length
    return text[end - len(text) : start] if end > len(text) else text[:start] + text[end:]


def _shingles(text: str, dedup: DedupSettings) -> Shingles:
    """Return the windows of a text; none where it has fewer units than a window."""
    units = split_units(fold(text), dedup.shingle)
    return frozenset(zip(*(units[i:] for i in range(dedup.width)), strict=False))


def _jaccard(a: Shingles, b: Shingles) -> float:
    both = len(a & b)
    return both / (len(a) + len(b) - both) if a or b else 0.0


def _estimates(pairs: Sequence[_Pair], signer: Signer) -> npt.NDArray[np.float64]:
    cut = iter(signer.sign([p.text for p in pairs if p.stored is None]).signatures)
    stored = np.array([next(cut) if p.stored is None else p.stored for p in pairs])
    return estimate(stored, signer.sign([p.part for p in pairs]).signatures)


def _datasketch(pairs: Sequence[_Pair], permutations: int) -> npt.NDArray[np.float64]:
    import datasketch  # half a second, for scipy: only where signatures are witnessed

    empty = datasketch.MinHash(permutations)

    def sketch(shingles: Shingles) -> datasketch.MinHash:
        made = empty.copy()
        made.update_batch("\0".join(shingle).encode() for shingle in shingles)
        return made

    return np.array([sketch(p.shingles).jaccard(sketch(p.others)) for p in pairs])
