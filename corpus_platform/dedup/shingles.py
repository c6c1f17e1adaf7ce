"""Turns a folded text into the set of its shingles, each a 64-bit hash.

A shingle is a window of `width` units in a row. A unit is hashed by XXH3-64 of its UTF-8 (seed 0);
a window by h = h * BASE + unit from left to right modulo 2^64, plus the number of its units times
GOLDEN, through splitmix64. Hashes depend on nothing but the text: stored ones stay comparable as
long as SHINGLE_VERSION is the same.
"""

import functools
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from corpus_platform.dedup.hashes import GOLDEN, distinct, splitmix64
from corpus_platform.errors import UsageError
from corpus_platform.text.units import UnitKind, unit_blocks

__all__ = ["SHINGLE_VERSION", "shingle_hashes"]

SHINGLE_VERSION = "xxh3-poly-1"  # folding, units and the arithmetic below

_BASE = np.uint64(0xD1342543DE82EF95)  # odd, so that no unit's bits fall out of the product
_NO_UNITS_SEED = 1
_BLOCK_CHARACTERS = 1 << 16


def shingle_hashes(folded: str, *, kind: UnitKind, width: int) -> npt.NDArray[np.uint64]:
    """Return the distinct shingle hashes of a folded text in ascending order, never none.

    A text of fewer than `width` units has one shingle of them all. A text without a unit ('!!!')
    has one of the text itself, in a domain of its own: two such texts are equal or disjoint.
    Memory is a block's and 8 bytes a window, not that of a list of units.
    """
    if width < 1:
        raise UsageError(f"width = {width}: a shingle has at least one unit")
    rest = np.empty(0, np.uint64)
    windows = []
    for block in _unit_hashes(folded, kind):
        units = np.concatenate([rest, block])
        rest = units
        if units.size >= width:
            windows.append(distinct(_combine(units, width)))
            rest = units[units.size - width + 1 :]
    if windows:
        return windows[0] if len(windows) == 1 else distinct(np.concatenate(windows))
    if rest.size:
        return _combine(rest, rest.size)
    return splitmix64(np.array([xxh3_64_intdigest(folded.encode(), _NO_UNITS_SEED)], np.uint64))


def _unit_hashes(folded: str, kind: UnitKind) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the hash of every unit in order, in blocks."""
    if kind == "char":
        table = _character_hashes()
        for start in range(0, len(folded), _BLOCK_CHARACTERS):
            block = folded[start : start + _BLOCK_CHARACTERS].encode("utf-32-le")
            yield table[np.frombuffer(block, "<u4")]
        return
    for units in unit_blocks(folded, kind, characters=_BLOCK_CHARACTERS):
        yield _hash_each(units, len(units))


def _hash_each(units: Iterable[str], count: int) -> npt.NDArray[np.uint64]:
    return np.fromiter(map(xxh3_64_intdigest, map(str.encode, units)), np.uint64, count)


@functools.cache
def _character_hashes() -> npt.NDArray[np.uint64]:
    """Return the hash of every code point (9 MB): a table is 20 times faster than a call each."""
    points = range(sys.maxunicode + 1)
    # Surrogates cannot be encoded; no text that came out of UTF-8 has one.
    texts = (chr(p) if not 0xD800 <= p <= 0xDFFF else "" for p in points)
    return _hash_each(texts, len(points))


def _combine(units: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint64]:
    """Return the hash of every window of `width` units, in order."""
    count = units.size - width + 1
    hashes = units[:count].copy()
    for i in range(1, width):
        hashes *= _BASE
        hashes += units[i : i + count]
    hashes += np.uint64(width * GOLDEN % 2**64)  # four units never equal a window of five
    return splitmix64(hashes)
