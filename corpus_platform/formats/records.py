"""Field values of one record to a document, or to the reason why it cannot be one.

The readers of the formats find the values and say where they stood; here is decided, once for all
of them, what makes a text unusable, what an id is, and what goes to `meta`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import msgspec

from corpus_platform.config import Fields
from corpus_platform.document import EXCERPT_BYTES, Document

__all__ = ["MAX_LANG_CHARS", "Cursor", "Reason", "excerpt", "make_document", "to_json"]

Reason = Literal[
    "digest_mismatch",
    "invalid_header",
    "invalid_json",
    "invalid_utf8",
    "lone_surrogate",
    "nested_too_deep",
    "not_an_object",
    "not_plain_text",
    "record_too_long",
    "text_blank",
    "text_empty",
    "text_missing",
    "text_not_a_string",
    "text_null",
]


@dataclass(slots=True)
class Cursor:
    """Where the next record of a shard stands; runs on over the members of a bundle."""

    row: int = 0
    line: int = 1
    offset: int = 0


# Categories Z*, Cc and Cf, then the rest of Default_Ignorable_Code_Point (Unicode 15.1): Hangul
# and Khmer fillers, joiners, variation selectors. Written out, so that no verdict depends on the
# Unicode version of a Python.
_INVISIBLE = (
    r"\x00-\x20\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\u034f\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    r"\U000e0000-\U000e0fff"
)
_visible = re.compile(f"[^{_INVISIBLE}]").search

# An id is repeated for every copy of its document: one of 30 MB would be a table of terabytes.
MAX_ID_CHARS = 1024
# A language names counts of every stage, and is repeated for every piece of a document; a tag of
# BCP 47 has 35 characters at most.
MAX_LANG_CHARS = 64

# Numbers keep all their digits; NaN and infinity become null.
_encode = msgspec.json.Encoder(order="deterministic", decimal_format="number", enc_hook=str).encode


def to_json(value: object) -> str:
    """Return compact JSON with sorted keys; raises UnicodeEncodeError for lone surrogates."""
    return _encode(value).decode()


def make_document(
    values: Mapping[str, object], fields: Fields, *, shard: str, row: int, line: int
) -> Document | Reason:
    """Make a document of a record's values, or return the reason why it cannot be one.

    What serves as id, url, text or lang leaves the record; all else is in `meta`, also a value
    under one of these names that is of a wrong type, and an id or lang of more than MAX_ID_CHARS or
    MAX_LANG_CHARS.
    """
    name, others = fields.text, dict(values)
    text = others.pop(name, None)
    if not isinstance(text, str):
        if name not in values:
            return "text_missing"
        return "text_null" if text is None else "text_not_a_string"
    if not text:
        return "text_empty"
    if not ("!" <= text[0] <= "~" or _visible(text)):
        return "text_blank"
    identity = _identity(values, others, fields.id) or f"{shard}:{row}"
    url = _string(values, others, fields.url)
    lang = _string(values, others, fields.lang, max_chars=MAX_LANG_CHARS)
    return Document(row, line, identity, url, text, lang, to_json(others) if others else "{}")


def _identity(values: Mapping[str, object], others: dict[str, object], name: str) -> str | None:
    value = values.get(name)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        number = to_json(value)
        if number == "null" or len(number) > MAX_ID_CHARS:
            return None
        others.pop(name, None)
        return number
    return _string(values, others, name, max_chars=MAX_ID_CHARS)


def _string(
    values: Mapping[str, object],
    others: dict[str, object],
    name: str,
    *,
    max_chars: int | None = None,
) -> str | None:
    """Return a string that is not empty, and take it from the others; so too what says nothing."""
    value = values.get(name)
    if max_chars is not None and isinstance(value, str) and len(value) > max_chars:
        return None
    if value is None or isinstance(value, str):
        others.pop(name, None)
        return value or None
    return None


def excerpt(record: bytes) -> str:
    """Return the beginning of a record in printable ASCII, at most EXCERPT_BYTES long.

    Every other byte is written as `\\xNN`; none is cut in two.
    """
    shown, size = [], 0
    for escaped in map(_ESCAPED.__getitem__, record[:EXCERPT_BYTES]):
        size += len(escaped)
        if size > EXCERPT_BYTES:
            break
        shown.append(escaped)
    return "".join(shown)


_ESCAPED = [chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in range(256)]
