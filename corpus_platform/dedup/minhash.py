"""Turns a set of shingle hashes into a MinHash signature of k values, and compares signatures.

Signatures are those of datasketch's `affine32` scheme, value for value: its permutations are taken
from the library, its arithmetic is done here in numpy blocks (the library hashes element by element
in Python). `scheme` names all that signatures depend on; storing and comparing it is the caller's.
"""

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.shingles import SHINGLE_VERSION
from corpus_platform.errors import UsageError

__all__ = ["MinHasher", "estimate"]

_LIBRARY_SCHEME = "affine32"
_CELLS = 1 << 17  # values permuted at a time: 512 KiB stay in the second-level cache


class MinHasher:
    """Makes signatures of `permutations` values; the same seed gives the same permutations."""

    def __init__(self, permutations: int, *, seed: int = 1) -> None:
        if permutations < 1:
            raise UsageError(f"permutations = {permutations}: a signature has at least one value")
        import datasketch  # half a second, for scipy: only where signatures are made

        library = datasketch.MinHash(num_perm=permutations, seed=seed, scheme=_LIBRARY_SCHEME)
        a, b = library.permutations
        self._a, self._b = a.reshape(-1, 1), b.reshape(-1, 1)
        self._block = max(1, _CELLS // permutations)
        self.permutations = permutations
        self.scheme = f"datasketch-{_LIBRARY_SCHEME}/k={permutations}/seed={seed}/{SHINGLE_VERSION}"

    def signature(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the least value of each permutation over the low 32 bits of the hashes.

        Memory does not grow with the set. An empty set raises: its signature would equal that of
        every other empty set.
        """
        if not hashes.size:
            raise UsageError("no shingles: an empty set has no signature")
        mixed = _fmix32(hashes.astype(np.uint32))
        least = np.full(self.permutations, 0xFFFFFFFF, np.uint32)
        for start in range(0, mixed.size, self._block):
            values = self._a * mixed[start : start + self._block]
            values += self._b
            np.minimum(least, values.min(axis=1), out=least)
        return least


def estimate(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """Return the share of equal values: the estimated Jaccard of two signatures, or row by row."""
    if a.shape != b.shape:
        raise UsageError(f"signatures of {a.shape} and {b.shape} values cannot be compared")
    return np.asarray((a == b).mean(axis=-1))


def _fmix32(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mix by the finaliser of MurmurHash3, as the library does before it permutes."""
    values = values ^ (values >> np.uint32(16))
    values *= np.uint32(0x85EBCA6B)
    values ^= values >> np.uint32(13)
    values *= np.uint32(0xC2B2AE35)
    values ^= values >> np.uint32(16)
    return values
