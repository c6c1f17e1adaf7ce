"""Plain bytes in chunks to records: one JSON object a line.

Lines end at the byte 0x0A and nowhere else. Memory is bounded by the longest record allowed and
one chunk. Decompression is done before, batching after this.
"""

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec
import numpy as np

from corpus_platform.config import Fields
from corpus_platform.document import EXCERPT_BYTES, Document, Rejected
from corpus_platform.formats.records import Cursor, Reason, excerpt, make_document, to_json

__all__ = ["MAX_DEPTH", "Line", "parse_object", "read_jsonl", "split_lines"]

# Of nested arrays and objects. Python's own limit depends on how deep the caller stands, so what a
# parser makes of deeper ones is not asked.
MAX_DEPTH = 200
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CONTAINERS = frozenset({dict, list})
_BOM = b"\xef\xbb\xbf"

# Decimal keeps the digits that a float would round.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class Line(NamedTuple):
    """One physical line of `size` bytes; where they are too many, `content` has but the first.

    `ended` says whether an LF follows.
    """

    size: int
    content: bytes
    ended: bool


def read_jsonl(
    chunks: Iterable[bytes],
    fields: Fields,
    cursor: Cursor,
    *,
    shard: str,
    max_record_bytes: int,
) -> Iterator[Document | Rejected]:
    """Yield the records of one stream in order, and move `cursor` behind them.

    Blank lines are no records but count as lines. A BOM before a record is no part of it.
    """
    for size, content, ended in split_lines(chunks, max_bytes=max_record_bytes):
        record = content.removesuffix(b"\r").removeprefix(_BOM)
        too_long = size > max_record_bytes
        if too_long or (record and not record.isspace()):
            found: dict[str, object] | Document | Reason
            found = "record_too_long" if too_long else parse_object(record)
            if isinstance(found, dict):
                found = make_document(found, fields, shard=shard, row=cursor.row, line=cursor.line)
            if isinstance(found, Document):
                yield found
            else:
                yield Rejected(cursor.row, cursor.line, cursor.offset, found, excerpt(record))
            cursor.row += 1
        cursor.line += 1
        cursor.offset += size + ended


def split_lines(chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[Line]:
    """Yield the lines of a stream without their LF, and what follows the last LF.

    Of a line longer than `max_bytes` only the first EXCERPT_BYTES are kept.
    """
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        held.append(first)
        size += len(first)
        if others:
            yield Line(size, _content(held, size, max_bytes), ended=True)
            rest = others.pop()
            for line in others:
                content = line if len(line) <= max_bytes else line[:EXCERPT_BYTES]
                yield Line(len(line), content, ended=True)
            held, size = [rest], len(rest)
        if size > max_bytes:
            held = [_content(held, size, max_bytes)]
    if size:
        yield Line(size, _content(held, size, max_bytes), ended=False)


def _content(held: list[bytes], size: int, max_bytes: int) -> bytes:
    if size <= max_bytes:
        return b"".join(held)
    return b"".join(piece[:EXCERPT_BYTES] for piece in held[: EXCERPT_BYTES + 1])[:EXCERPT_BYTES]


def parse_object(record: bytes) -> dict[str, object] | Reason:
    """Parse one JSON object, or return the reason why it is none.

    Of a key met twice the last value counts. NaN, infinities and numbers beyond all measure
    become None.
    """
    try:
        value = _decode(record)
    except (msgspec.DecodeError, InvalidOperation, RecursionError):
        if _opens_deeper(record, MAX_DEPTH):
            return "nested_too_deep"
        try:
            value = _parse_slowly(record)
        except UnicodeDecodeError:
            return "invalid_utf8"
        except UnicodeEncodeError:
            return "lone_surrogate"
        except RecursionError:  # of a caller that stands deep itself
            return "nested_too_deep"
        except ValueError:
            return "invalid_json"
    if not isinstance(value, dict):
        deep = _brackets(record) > MAX_DEPTH and _nested_deeper(value, MAX_DEPTH)
        return "nested_too_deep" if deep else "not_an_object"
    # Most records hold no other: counting the brackets of their texts would cost a fifth of reading.
    if _CONTAINERS.isdisjoint(map(type, value.values())) or _brackets(record) <= MAX_DEPTH:
        return value
    return "nested_too_deep" if _nested_deeper(value, MAX_DEPTH) else value


def _brackets(record: bytes) -> int:
    """Return how many brackets open in a record, those in strings included."""
    return record.count(b"[") + record.count(b"{")


def _opens_deeper(record: bytes, levels: int) -> bool:
    """Tell whether more than so many brackets stand open at any place outside of strings."""
    if _brackets(record) <= levels:
        return False
    brackets = np.frombuffer(_STRING.sub(b"", record).translate(None, _NO_BRACKETS), np.uint8)
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    steps = np.where(opening, np.int8(1), np.int8(-1))
    return bool(len(steps) and steps.cumsum(dtype=np.int32).max() > levels)


def _parse_slowly(record: bytes) -> object:
    # msgspec calls lone surrogates "truncated" and refuses NaN: the standard library tells faults
    # apart. Encoding again finds the surrogates.
    value = json.loads(
        record.decode(),
        parse_int=_number,
        parse_float=_number,
        parse_constant=lambda _: None,
    )
    to_json(value)
    return value


def _number(digits: str) -> int | Decimal | None:
    try:
        return int(digits)
    except ValueError:  # a fraction, an exponent, or more digits than Python allows
        try:
            return Decimal(digits)
        except InvalidOperation:
            return None


def _nested_deeper(value: object, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return False
    return any(isinstance(inner, (dict, list)) for inner in layer)
