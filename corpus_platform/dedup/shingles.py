"""Turns folded texts into their shingles, each a 64-bit hash.

A shingle is a window of `width` units in a row. A text of fewer units has one shingle of them all;
a text without a unit ('!!!') has one of the text itself, in a domain of its own: two such texts are
equal or disjoint. No text has none. Hashes depend on nothing but the text: stored ones stay
comparable as long as SHINGLE_VERSION is the same. The arithmetic is in `text.kernels` (units) and
`dedup.kernels` (windows).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus_platform.dedup.hashes import distinct
from corpus_platform.errors import UsageError
from corpus_platform.text.units import UnitKind

__all__ = ["SHINGLE_VERSION", "Shingles", "shingle_hashes", "shingles_of"]

SHINGLE_VERSION = "tree-1"  # folding, units and the arithmetic of the two kernels

_COUNTED_FIRST = 1 << 20  # characters from which on units are counted first, for the memory


class Shingles(NamedTuple):
    """The shingles of texts, one text after the other, and the place behind those of each."""

    hashes: npt.NDArray[np.uint64]
    ends: npt.NDArray[np.int64]


def shingles_of(encoded: Sequence[bytes], *, kind: UnitKind, width: int) -> Shingles:
    """Return all windows of folded texts in UTF-8, in the order of the text, repeated ones too.

    Memory is 8 bytes a unit.
    """
    if width < 1:
        raise UsageError(f"width = {width}: a shingle has at least one unit")
    # numba takes 0.6 s to load: only where texts are cut
    from corpus_platform.dedup.kernels import window_hashes
    from corpus_platform.text.kernels import hash_units, unit_classes

    data = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    classes, counts = unit_classes(kind), np.empty(ends.size, np.int64)
    size = data.size + ends.size  # no text has more units than bytes, and a hash has each
    if size > _COUNTED_FIRST:
        size = hash_units(data, ends, classes, np.empty(0, np.uint64), counts)
    hashes = np.empty(size, np.uint64)
    hash_units(data, ends, classes, hashes, counts)
    found = window_hashes(hashes, counts, width, ends)
    return Shingles(hashes[:found], ends)


def shingle_hashes(folded: str, *, kind: UnitKind, width: int) -> npt.NDArray[np.uint64]:
    """Return the distinct shingle hashes of a folded text in ascending order, never none."""
    return distinct(shingles_of([folded.encode()], kind=kind, width=width).hashes)
