"""Turns documents into all that they are compared by: digest, shingles, signature, band hashes.

What they depend on is named by `scheme_of`; signatures of two names are not comparable. Which
documents are compared, and what becomes of them, is for `bands`, `verification` and `clusters`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.bands import band_hashes
from corpus_platform.dedup.exact import text_digest
from corpus_platform.dedup.minhash import MinHasher, sketch_name
from corpus_platform.dedup.shingles import SHINGLE_VERSION, Shingles, shingles_of
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.text.folding import fold_utf8

__all__ = ["SEED", "Signed", "Signer", "scheme_of"]

SEED = 1
_BATCH_CHARACTERS = 1 << 15  # their hashes, 256 KiB, stay in the second-level cache


class Signed(NamedTuple):
    """What n documents are compared by, row by row."""

    digests: npt.NDArray[np.uint8]  # [n, 32], SHA-256
    bytes: npt.NDArray[np.int64]  # of the text as it came, in UTF-8
    shingles: npt.NDArray[np.int64]  # windows, repeated ones counted
    signatures: npt.NDArray[np.uint32]  # [n, k]
    bands: npt.NDArray[np.uint64]  # [n, b]


def scheme_of(dedup: DedupSettings, *, seed: int = SEED) -> str:
    """Return the name of all that digests, shingles and signatures depend on besides the text."""
    shingles = f"{dedup.shingle}-{dedup.width}/{SHINGLE_VERSION}"
    return f"{sketch_name(dedup.scheme, dedup.permutations, seed)}/{shingles}/sha256-{dedup.exact}"


class Signer:
    """Signs texts under the settings `dedup`; the results depend on nothing else but the seed."""

    def __init__(self, dedup: DedupSettings, *, seed: int = SEED) -> None:
        self.scheme = scheme_of(dedup, seed=seed)
        self.dedup = dedup
        self._hasher = MinHasher(dedup.permutations, scheme=dedup.scheme, seed=seed)

    def sign(self, texts: Sequence[str]) -> Signed:
        """Return one row per text."""
        digests, sizes, shingles = bytearray(), [], []
        signatures = np.empty((len(texts), self.dedup.permutations), np.uint32)
        for start, end in _batches(texts):
            batch = texts[start:end]
            folded = [fold_utf8(text) for text in batch]
            exact = folded if self.dedup.exact == "folded" else batch
            digests += b"".join(map(text_digest, exact))
            sizes += map(_utf_8_bytes, batch)
            found = self._shingles(folded)
            shingles.append(np.diff(found.ends, prepend=0))
            signatures[start:end] = self._hasher.signatures(*found)
        return Signed(
            np.frombuffer(digests, np.uint8).reshape(-1, 32),
            np.array(sizes, np.int64),
            np.concatenate([*shingles, np.empty(0, np.int64)]),
            signatures,
            band_hashes(signatures, *self.dedup.banding),
        )

    def shingle_sets(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the distinct shingles of each text, ascending, and the place behind each set."""
        from corpus_platform.dedup.cluster_kernels import array, distinct_sets  # loads numba

        sets, sizes = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for start, end in _batches(texts):
            found = self._shingles([fold_utf8(text) for text in texts[start:end]])
            flat, ends = distinct_sets(array(found.hashes, np.uint64), array(found.ends, np.int64))
            sets.append(flat)
            sizes.append(np.diff(ends, prepend=0))
        return np.concatenate(sets), np.cumsum(np.concatenate(sizes), dtype=np.int64)

    def signatures_of(
        self, flat: npt.NDArray[np.uint64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """Return the signatures of sets of shingles, as `shingle_sets` gives them."""
        return self._hasher.signatures(flat, ends)

    def _shingles(self, folded: Sequence[bytes]) -> Shingles:
        return shingles_of(folded, kind=self.dedup.shingle, width=self.dedup.width)


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield from and to of texts that have about `_BATCH_CHARACTERS` together, or are one."""
    start, held = 0, 0
    for i, text in enumerate(texts):
        if held and held + len(text) > _BATCH_CHARACTERS:
            yield start, i
            start, held = i, 0
        held += len(text)
    if start < len(texts):
        yield start, len(texts)


def _utf_8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
