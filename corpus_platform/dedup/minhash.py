"""Turns sets of shingle hashes into signatures of k values, and compares signatures.

Two schemes: `fast` is a Fast Similarity Sketch, `datasketch` has the values of datasketch's
`affine32`, one by one: its permutations are taken from the library. Both estimate the Jaccard
similarity of two sets by the share of equal values. A signature is comparable only with those of
its scheme, k and seed; storing and comparing these is the caller's.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from corpus_platform.errors import UsageError

__all__ = ["MinHasher", "Scheme", "estimate", "sketch_name"]

Scheme = Literal["fast", "datasketch"]

_LIBRARY_SCHEME = "affine32"
_NAMES = {"fast": "fast-1", "datasketch": f"datasketch-{_LIBRARY_SCHEME}"}


def sketch_name(scheme: Scheme, permutations: int, seed: int) -> str:
    """Return the name of all that a signature depends on besides its shingles."""
    return f"{_NAMES[scheme]}/k={permutations}/seed={seed}"


class MinHasher:
    """Makes signatures of `permutations` values; the same seed gives the same signatures."""

    def __init__(self, permutations: int, *, scheme: Scheme = "datasketch", seed: int = 1) -> None:
        if permutations < 1:
            raise UsageError(f"permutations = {permutations}: a signature has at least one value")
        self.permutations = permutations
        self.scheme = sketch_name(scheme, permutations, seed)
        self._seed = np.uint64(seed)
        self._factors_terms = _library(permutations, seed) if scheme == "datasketch" else None

    def signatures(
        self, hashes: npt.NDArray[np.uint64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint32]:
        """Return [n, k]: the signature of each set; the sets lie one after the other.

        Order and repetition do not matter. An empty set raises: its signature would equal that of
        every other empty set.
        """
        from corpus_platform.dedup.cluster_kernels import array  # loads numba
        from corpus_platform.dedup.kernels import fast_signatures, least_values

        hashes, ends = array(hashes, np.uint64), array(ends, np.int64)
        if np.any(np.diff(ends, prepend=0) <= 0):
            raise UsageError("no shingles: an empty set has no signature")
        signatures = np.empty((ends.size, self.permutations), np.uint32)
        if self._factors_terms is None:
            fast_signatures(hashes, ends, self._seed, signatures)
        else:
            least_values(hashes, ends, *self._factors_terms, signatures)
        return signatures

    def signature(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the signature of one set."""
        return self.signatures(hashes, np.array([hashes.size]))[0]


def _library(permutations: int, seed: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    import datasketch  # half a second, for scipy: only where it is asked for

    library = datasketch.MinHash(num_perm=permutations, seed=seed, scheme=_LIBRARY_SCHEME)
    factors, terms = library.permutations
    return factors.astype(np.uint32), terms.astype(np.uint32)


def estimate(a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """Return the share of equal values: the estimated Jaccard of two signatures, or row by row."""
    if a.shape != b.shape:
        raise UsageError(f"signatures of {a.shape} and {b.shape} values cannot be compared")
    return np.asarray((a == b).mean(axis=-1))
