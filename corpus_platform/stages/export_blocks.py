"""What goes into one exported file, in blocks; and whether a file that was opened again holds it.

The comparison goes by what the format's own reader gives, token by token, document by document, and
so serves any two token files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corpus_platform.formats.token_file import TokenFile

__all__ = ["BLOCK", "Block", "Span", "blocks", "first_difference"]

BLOCK = 1 << 22  # tokens, and documents, that are held together

Told = Callable[[int], None]  # tokens that were done


class Block(NamedTuple):
    """Documents back to back; `ends` (int64) are exclusive and begin at 0."""

    tokens: np.ndarray
    ends: np.ndarray
    loss: np.ndarray | None


@dataclass(frozen=True)
class Span:
    """The documents, or rows, [begin, end) of a token file; `name` is what messages call it.

    `ends` None is that of a file that knows no documents: all its tokens are taken.
    """

    name: str
    tokens: np.ndarray
    ends: np.ndarray | None
    loss: np.ndarray | None
    begin: int
    end: int

    @classmethod
    def whole(cls, file: TokenFile) -> "Span":
        """Return all of a token file."""
        count = 0 if file.ends is None else len(file.ends)
        return cls(str(file.path), file.tokens, file.ends, file.loss, 0, count)

    @property
    def first(self) -> int:
        """Where its first token lies."""
        return 0 if self.ends is None or not self.begin else int(self.ends[self.begin - 1])

    @property
    def last(self) -> int:
        """Where its last token ends."""
        if self.ends is None:
            return len(self.tokens)
        return int(self.ends[self.end - 1]) if self.end else 0

    @property
    def count(self) -> int:
        """Its tokens."""
        return self.last - self.first

    @property
    def documents(self) -> int:
        """Its documents."""
        return self.end - self.begin


def blocks(span: Span, size: int = BLOCK) -> Iterator[Block]:
    """Yield a span in runs of whole documents of about `size` tokens; a longer one stands alone."""
    assert span.ends is not None
    begin, before = span.begin, span.first
    while begin < span.end:
        ends = span.ends[begin : min(begin + size, span.end)]
        fitting = _search(ends, before + size)
        ends = ends[: max(fitting, 1)].astype(np.int64) - before
        after = before + int(ends[-1])
        loss = None if span.loss is None else span.loss[before:after]
        yield Block(span.tokens[before:after], ends, loss)
        begin, before = begin + len(ends), after


def _search(ends: np.ndarray, place: int) -> int:
    """Count the ends up to a place; in the type of the ends, or numpy converts all of them."""
    return int(np.searchsorted(ends, np.array(place, ends.dtype), side="right"))


def first_difference(
    file: TokenFile,
    spans: Sequence[Span],
    *,
    documents: bool = True,
    empty: bool = True,
    masks: bool = True,
    told: Told = lambda tokens: None,
) -> str | None:
    """Say in words where a token file differs first from some spans back to back; None: nowhere.

    `documents` says whether their borders are compared, those of `empty` ones too, and `masks`
    whether those are: no mask is one in which all tokens count.
    """
    found = _token_difference(file, spans, told)
    if found is None and documents and file.ends is not None:
        found = _border_difference(file, spans, empty=empty)
    if found is None and masks:
        found = _mask_difference(file, spans)
    return found


def _token_difference(file: TokenFile, spans: Sequence[Span], told: Told) -> str | None:
    at = 0
    for span in spans:
        for start in range(span.first, span.last, BLOCK):
            wanted = np.asarray(span.tokens[start : min(start + BLOCK, span.last)])
            there = np.asarray(file.tokens[at : at + len(wanted)])
            differs = there != wanted[: len(there)]
            if differs.any():
                place = int(differs.argmax())
                said = f"{there[place]} here and {wanted[place]} there"
                return f"{_place(file, span, at + place, start + place)}: {said}"
            if len(there) < len(wanted):
                break
            at += len(wanted)
            told(len(wanted))
    total = sum(span.count for span in spans)
    return None if total == len(file.tokens) else f"{len(file.tokens)} tokens, not {total}"


def _place(file: TokenFile, span: Span, at: int, source: int) -> str:
    """Name a token by its document and its position in that, as either side knows documents."""
    if span.ends is not None:
        number = _search(span.ends, source)
        begin = int(span.ends[number - 1]) if number else 0
        return f"document {number} of {span.name}, token {source - begin} of it (token {at} here)"
    if file.ends is not None:
        number = _search(file.ends, at)
        begin = int(file.ends[number - 1]) if number else 0
        return f"document {number}, token {at - begin} of it (token {at} here)"
    return f"token {at}"


def _border_difference(file: TokenFile, spans: Sequence[Span], *, empty: bool) -> str | None:
    assert file.ends is not None
    number = total = moved = 0
    for span in spans:
        if span.ends is None:
            return None
        before = span.first
        for begin in range(span.begin, span.end, BLOCK):
            ends = span.ends[begin : min(begin + BLOCK, span.end)].astype(np.int64)
            if not empty:
                ends = ends[np.diff(ends, prepend=before) > 0]
            before = int(ends[-1]) if len(ends) else before
            wanted = ends - span.first + moved
            there = np.asarray(file.ends[number : number + len(wanted)]).astype(np.int64)
            differs = there != wanted[: len(there)]
            if differs.any():
                at = int(differs.argmax())
                return f"document {number + at} ends at token {there[at]} here and at {wanted[at]} there"
            total += len(wanted)
            number += len(there)
        moved += span.count
    return None if total == len(file.ends) else f"{len(file.ends)} documents, not {total}"


def _mask_difference(file: TokenFile, spans: Sequence[Span]) -> str | None:
    at = 0
    for span in spans:
        if span.loss is None and file.loss is None:
            at += span.count
            continue
        for start in range(span.first, span.last, BLOCK):
            stop = min(start + BLOCK, span.last)
            wanted = _mask(span.loss, start, stop)
            differs = _mask(file.loss, at, at + stop - start) != wanted
            if differs.any():
                place = int(differs.argmax())
                said = "counts there and not here" if wanted[place] else "counts here and not there"
                return f"{_place(file, span, at + place, start + place)}: {said}"
            at += stop - start
    return None


def _mask(loss: np.ndarray | None, start: int, stop: int) -> np.ndarray:
    if loss is None:
        return np.ones(stop - start, np.bool_)
    return np.asarray(loss[start:stop]).astype(np.bool_)
