"""Classes of Unicode code points, as one table to look arrays of code points up in.

`encode` turns text into an array, `classes` holds what Python's `str` methods and `unicodedata`
say of each code point. What is counted with them is a matter of filters and languages.
"""

from functools import cache
from unicodedata import category

import numpy as np

__all__ = [
    "ALNUM",
    "DENSE",
    "INVISIBLE",
    "LETTER",
    "LOWER",
    "UPPER",
    "WORD",
    "classes",
    "encode",
]

ALNUM = 1  # str.isalnum
WORD = 2  # categories L*, N*, M*: letters and numbers with the marks that stand on them
INVISIBLE = 4  # controls and characters without a glyph, white space left out
LETTER = 8  # str.isalpha
DENSE = 16  # letters of scripts in which four say as much as ten elsewhere
UPPER = 32  # str.isupper
LOWER = 64  # str.islower

# Default_Ignorable_Code_Point of the Unicode Character Database: fillers, joiners, selectors, tags.
_IGNORABLE = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)

_DENSE = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Han iteration mark and zero
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),  # half-width kana
    (0x20000, 0x3FFFF),
)

# Every character of Unicode is in here: planes 4 to 13 are empty, 15 and 16 are private.
_ASSIGNED = np.r_[0:0x40000, 0xE0000:0xE1000]


def encode(text: str) -> np.ndarray:
    """Return the code points of `text` as uint32; lone surrogates stand for themselves."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


@cache
def classes() -> np.ndarray:
    """Return a read-only uint8 table of 0x110000 entries: the sum of the classes of each."""
    chars = [chr(point) for point in _ASSIGNED]
    table = np.zeros(0x110000, dtype=np.uint8)
    for flag, belongs in (
        (ALNUM, str.isalnum),
        (LETTER, str.isalpha),
        (UPPER, str.isupper),
        (LOWER, str.islower),
    ):
        table[_ASSIGNED] |= np.fromiter(map(belongs, chars), bool, len(chars)) * np.uint8(flag)
    table[_ASSIGNED] |= _of_category("LNM", chars) * np.uint8(WORD)
    table |= _invisible(chars) * np.uint8(INVISIBLE)
    table |= (_inside(_DENSE) & (table & LETTER != 0)) * np.uint8(DENSE)
    table.flags.writeable = False
    return table


def _of_category(initials: str, chars: list[str]) -> np.ndarray:
    return np.fromiter((category(char)[0] in initials for char in chars), bool, len(chars))


def _invisible(chars: list[str]) -> np.ndarray:
    space = np.zeros(0x110000, dtype=bool)
    space[_ASSIGNED] = np.fromiter(map(str.isspace, chars), bool, len(chars))
    return (_inside(_IGNORABLE) | _inside(((0x00, 0x1F), (0x7F, 0x9F)))) & ~space


def _inside(ranges: tuple[tuple[int, int], ...]) -> np.ndarray:
    inside = np.zeros(0x110000, dtype=bool)
    for first, last in ranges:
        inside[first : last + 1] = True
    return inside
