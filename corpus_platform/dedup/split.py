"""Says which kept documents are held out for validation, by a keyed hash of their content.

The hash sees the content and the seed only, so a document's side does not change when crawls come,
and all copies of a text are on one side.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from corpus_platform.errors import UsageError

__all__ = ["assign_split"]


def assign_split(
    digests: Sequence[bytes] | pl.Series,
    kept: npt.NDArray[np.bool_],
    oldest: npt.NDArray[np.bool_],
    *,
    share: float,
    seed: int,
) -> npt.NDArray[np.object_]:
    """Return 'train' or 'validation' for kept documents, None for the others.

    A document is held out when its hash, as a fraction of 2^64, is below `share`; and in any case
    the kept one of the oldest crawl (mask `oldest`) with the smallest hash, the earliest of equals,
    so that a small corpus has a validation set. With share 0 there is none.
    """
    if not 0.0 <= share < 1.0:
        raise UsageError(f"share = {share}: a validation share is at least 0 and below 1")
    split = np.full(len(kept), None, np.object_)
    split[kept] = "train"
    documents = np.flatnonzero(kept)
    if share == 0.0 or not documents.size:
        return split
    key = str(seed).encode()
    hashes = np.array([_keyed_hash(digests[i], key) for i in documents.tolist()], np.uint64)
    # share * 2^64 is exact, and for whole h: h < x when h < ceil(x).
    split[documents[hashes < np.uint64(math.ceil(share * 2.0**64))]] = "validation"
    old = np.flatnonzero(oldest[documents])
    if old.size:
        split[documents[old[np.argmin(hashes[old])]]] = "validation"
    return split


def _keyed_hash(digest: bytes, key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "big")
