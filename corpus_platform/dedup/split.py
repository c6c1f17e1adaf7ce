"""Says which kept documents are held out for validation, by a keyed hash of their content.

The hash sees the content and the seed only, so a document's side does not change when crawls come,
and all copies of a text are on one side.
"""

import hashlib
import math
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.hashes import splitmix64
from corpus_platform.errors import UsageError

__all__ = ["Split", "assign_split", "content_keys"]


class Split(IntEnum):
    """The side of a document; one that is dropped has none."""

    NONE = 0
    TRAIN = 1
    VALIDATION = 2


def content_keys(digests: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each 32-byte digest, keyed with the seed.

    Eight bytes of a SHA-256 are as evenly spread as all of them; mixed with the key by a bijection
    they are again. Two texts with the same eight bytes would merely be on one side.
    """
    if digests.ndim != 2 or digests.shape[1] != 32:
        raise UsageError(f"digests of shape {digests.shape}: a digest has 32 bytes")
    key = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "little")
    begins = np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0].astype(np.uint64)
    begins ^= np.uint64(key)
    return splitmix64(begins)


def assign_split(
    keys: npt.NDArray[np.uint64],
    kept: npt.NDArray[np.bool_],
    oldest: npt.NDArray[np.bool_],
    *,
    share: float,
) -> npt.NDArray[np.uint8]:
    """Return the Split of every document; those not kept have NONE.

    A document is held out when its key, as a fraction of 2^64, is below `share`; and in any case
    the kept one of the oldest crawl (mask `oldest`) with the smallest key, the earliest of equals,
    so that a small corpus has a validation set. With share 0 there is none.
    """
    if not 0.0 <= share < 1.0:
        raise UsageError(f"share = {share}: a validation share is at least 0 and below 1")
    split = np.full(len(kept), Split.NONE, np.uint8)
    split[kept] = Split.TRAIN
    if share == 0.0:
        return split
    # share * 2^64 is exact, and for whole h: h < x when h < ceil(x).
    split[kept & (keys < np.uint64(math.ceil(share * 2.0**64)))] = Split.VALIDATION
    old = np.flatnonzero(kept & oldest)
    if old.size:
        split[old[np.argmin(keys[old])]] = Split.VALIDATION
    return split
