"""Cuts a folded text into the units of which shingles are made: words or characters.

Three ways to cut, named as in the settings:
- `word`: a run of letters (L*), marks (M*), decimal digits (Nd) and '_' is one unit; all other
  characters separate. Marks belong to the run, or Hindi and vowelled Arabic words would fall apart.
- `auto`: the same, but each character of a script written without spaces is a unit of its own,
  also where it touches a run. Otherwise a Chinese sentence is one word and five make a chapter.
- `char`: every character of the folded text, blanks and punctuation too.
Categories are those of the interpreter's `unicodedata`; a character it does not know separates.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

__all__ = ["UnitKind", "run_points", "split_units", "unspaced_points"]

UnitKind = Literal["auto", "char", "word"]

# Blocks of scripts written without spaces; what counts in them is letters, marks, digits (Nd) and
# letter-numbers (Nl, for the zero U+3007 of Chinese dates). Their punctuation separates.
_UNSPACED = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # Han: iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Han: Hangzhou numerals
    (0x3038, 0x303C),  # Han: Hangzhou numerals, vertical iteration mark
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana phonetic extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Burmese extended B
    (0xAA60, 0xAA7F),  # Burmese extended A
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # halfwidth Katakana
    (0x1AFF0, 0x1AFFF),  # Kana extended B
    (0x1B000, 0x1B16F),  # Kana supplement, extended A, small Kana
    (0x20000, 0x3FFFD),  # Han extensions B and later: the planes kept for ideographs
)


def split_units(folded: str, kind: UnitKind) -> list[str]:
    """Return the units of a folded text in their order."""
    return list(folded) if kind == "char" else _pattern(folded, kind).findall(folded)


class _Patterns(NamedTuple):
    """`plain` finds the same units as `auto` and `word` where `special` finds nothing."""

    special: re.Pattern[str]
    plain: re.Pattern[str]
    auto: re.Pattern[str]
    word: re.Pattern[str]


def _pattern(folded: str, kind: UnitKind) -> re.Pattern[str]:
    patterns = _patterns()
    if not patterns.special.search(folded):
        return patterns.plain
    return patterns.auto if kind == "auto" else patterns.word


@functools.cache
def _patterns() -> _Patterns:
    # `re` looks a character beyond U+FFFF up range by range, and does so for every character that
    # is not in the class: one class of all runs cuts English at 3 MB/s. So these ranges stand
    # behind a cheap look ahead (17 MB/s), and texts without them get a class without them (50).
    run, unspaced = run_points(), unspaced_points()
    spaced = run - unspaced
    beyond = r"\U00010000-\U0010FFFF"

    def runs(points: Iterable[int]) -> str:
        near = _ranges(p for p in points if p <= 0xFFFF)
        far = _ranges(p for p in points if p > 0xFFFF)
        return rf"(?:[{near}]++|(?=[{beyond}])[{far}]++)+"

    return _Patterns(
        special=re.compile(rf"[{_ranges(p for p in unspaced if p < 0x10000)}{beyond}]"),
        plain=re.compile(rf"[{_ranges(p for p in spaced if p < 0x10000)}]+"),
        auto=re.compile(rf"[{_ranges(unspaced)}]|{runs(spaced)}"),
        word=re.compile(runs(run)),
    )


@functools.cache
def run_points() -> frozenset[int]:
    """Return the code points of which runs are made, those of unspaced scripts included."""
    # The planes between hold nothing, those behind only private characters.
    points = [*range(0x40000), *range(0xE0000, 0xF0000)]
    return frozenset(_of_categories(points, _LETTERS_MARKS | {"Nd"})) | {ord("_")}


@functools.cache
def unspaced_points() -> frozenset[int]:
    """Return the code points that are units of their own for `auto`."""
    points = [p for low, high in _UNSPACED for p in range(low, high + 1)]
    return frozenset(_of_categories(points, _LETTERS_MARKS | {"Nd", "Nl"}))


_LETTERS_MARKS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me"))


def _of_categories(points: Sequence[int], wanted: frozenset[str]) -> Iterator[int]:
    categories = map(unicodedata.category, map(chr, points))
    return (p for p, category in zip(points, categories, strict=True) if category in wanted)


def _ranges(points: Iterable[int]) -> str:
    """Return the inside of a character class that matches exactly `points`."""
    spans: list[list[int]] = []
    for point in sorted(points):
        if spans and spans[-1][1] == point - 1:
            spans[-1][1] = point
        else:
            spans.append([point, point])
    return "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in spans)
