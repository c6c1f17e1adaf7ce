"""Folds a text to the form in which two documents count as the same content.

The folded text is what the exact-copy digest and the shingles are made of; the document itself
is stored as it came. Cutting the folded text into units is the business of `text.units`.

The steps, in this order, each exactly once:
1. Unicode NFC.
2. Simple lower case: every code point becomes one code point, whatever stands around it. This is
   `Simple_Lowercase_Mapping` of UnicodeData.txt, and `str.lower()` but for two letters: U+0130
   becomes 'i' (not 'i' and a combining dot), U+03A3 becomes U+03C3 also at the end of a word.
3. Every run of white space (what `str.split()` cuts at, U+0085, U+00A0 and U+3000 included)
   becomes one blank; none is left at the ends.
Step 2 can undo step 1: 'J' with a combining caron has no single code point, 'j' with one has.
The result is not normalised again.
"""

import functools
import re
import unicodedata
from collections.abc import Mapping

import numpy as np

__all__ = ["fold", "fold_utf8"]

_BLOCK = 1 << 18  # characters: lists of all words take ten times the memory of a long text
_LONG_RUN = 64  # marks on one letter; no script has so many


def fold(text: str) -> str:
    """Return the folded text; empty for a text of white space only."""
    if not text.isascii():
        text = _nfc(text)
        # The only letters whose str.lower() looks at more than the code point, or gives two.
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return _collapse(text.lower())


def _collapse(text: str) -> str:
    """Return the words of the text with one blank between; in blocks, for the memory of a list."""
    if len(text) <= _BLOCK:
        return " ".join(text.split())
    parts, gap = [], False
    for start in range(0, len(text), _BLOCK):
        block = text[start : start + _BLOCK]
        words = " ".join(block.split())
        if words and parts and (gap or block[0].isspace()):
            parts.append(" ")
        if words:
            parts.append(words)
        gap = block[-1].isspace()
    return "".join(parts)


def fold_utf8(text: str) -> bytes:
    """Return the UTF-8 of the folded text: the same as `fold`, in machine code."""
    from corpus_platform.text.kernels import fold_points, folded_points  # loads numba

    if not text.isascii():
        text = _nfc(text)
    data = np.frombuffer(text.encode(), np.uint8)
    out = np.empty(len(data) + len(data) // 2 + 4, np.uint8)
    return out[: fold_points(data, folded_points(), out)].tobytes()


def _nfc(text: str) -> str:
    """Return the text in NFC, in linear time.

    `unicodedata` sorts the marks of a letter by insertion: a million of them would take an hour.
    Those that are in order already cost nothing, so long runs are put into it before. To look for
    such runs takes much longer than to see that nothing is to be done, as with nearly all texts.
    """
    if unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _long_runs().sub(_ordered, text))


def _ordered(run: re.Match[str]) -> str:
    """Return marks in canonical order, which is stable by their class."""
    marks = run[0].translate(_split_marks())
    points, places = np.unique(np.frombuffer(marks.encode("utf-32-le"), "<u4"), return_inverse=True)
    classes = np.array([unicodedata.combining(chr(point)) for point in points], np.uint8)
    order = np.argsort(classes[places], kind="stable")
    return points[places[order]].tobytes().decode("utf-32-le")


@functools.cache
def _long_runs() -> re.Pattern[str]:
    marks = "".join(chr(p) for p in range(0x40000) if _is_mark(chr(p)))  # none has a meaning in []
    return re.compile(f"[{marks}]{{{_LONG_RUN},}}+")


@functools.cache
def _split_marks() -> Mapping[int, str]:
    """Return what the few marks become that are written as two."""
    found = ((p, unicodedata.normalize("NFD", chr(p))) for p in range(0x300, 0x2000))
    return {p: marks for p, marks in found if _is_mark(chr(p)) and marks != chr(p)}


def _is_mark(char: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFD", char)[0]) != 0
