"""The rules as one would write them down, character by character: what ours must equal."""

import re
import unicodedata
from itertools import groupby

_HIDDEN = {0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0}
_HIDDEN |= {*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F)}
_HIDDEN |= {*range(0x2060, 0x2070), *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9)}
_HIDDEN |= {*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)}


def dup_lines(text: str, *, count_blank: bool) -> float:
    lines = text.split("\n")
    if not count_blank:
        lines = [line for line in lines if not all(map(_is_blank, line))]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def _is_blank(char: str) -> bool:
    return char.isspace() or unicodedata.category(char) == "Cc" or ord(char) in _HIDDEN


def longest_run(text: str) -> int:
    return max((len(list(run)) for char, run in groupby(text) if char != "\n"), default=0)


def alnum_share(text: str, *, count_marks: bool) -> float:
    if not text:
        return 0.0
    if count_marks:
        return sum(unicodedata.category(char)[0] in "LNM" for char in text) / len(text)
    return sum(char.isalnum() for char in text) / len(text)


def first_hit(text: str, *, count_blank: bool, count_marks: bool) -> str:
    """Return the rule that drops a text under the numbers of the source document, or `kept`."""
    if len(text) < 200:
        return "too_short"
    if dup_lines(text, count_blank=count_blank) > 0.30:
        return "dup_lines"
    if re.search(r"(.)\1{50,}", text):
        return "char_repeat"
    if alnum_share(text, count_marks=count_marks) < 0.50:
        return "low_alnum"
    return "kept"
