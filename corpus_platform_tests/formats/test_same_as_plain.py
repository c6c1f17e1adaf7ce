"""The readers give what a plain version without short cuts gives: products' bytes depend on it."""

import json
from decimal import Decimal, InvalidOperation

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.formats.jsonl import read_jsonl
from corpus_platform.formats.records import Cursor, excerpt, to_json
from corpus_platform_tests.formats.test_records import INVISIBLE

FIELDS = Fields()


def _number(digits: str) -> int | Decimal | None:
    try:
        return int(digits)
    except ValueError:
        try:
            return Decimal(digits)
        except InvalidOperation:
            return None


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def plain(record: bytes, row: int, line: int, offset: int) -> Document | Rejected:
    """Read one record by the standard library alone, one question after another."""

    def rejected(reason: str) -> Rejected:
        return Rejected(row, line, offset, reason, excerpt(record))

    try:
        value = json.loads(
            record.decode(),
            parse_int=_number,
            parse_float=_number,
            parse_constant=lambda _: None,
        )
        to_json(value)
    except UnicodeDecodeError:
        return rejected("invalid_utf8")
    except UnicodeEncodeError:
        return rejected("lone_surrogate")
    except ValueError:
        return rejected("invalid_json")
    if _depth(value) > 200:
        return rejected("nested_too_deep")
    if not isinstance(value, dict):
        return rejected("not_an_object")
    if "text" not in value:
        return rejected("text_missing")
    text = value["text"]
    if not isinstance(text, str):
        return rejected("text_null" if text is None else "text_not_a_string")
    if not text:
        return rejected("text_empty")
    if all(character in INVISIBLE for character in text):
        return rejected("text_blank")
    identity = value.get("id")
    if isinstance(identity, int | Decimal) and not isinstance(identity, bool):
        identity = to_json(identity)
    elif not isinstance(identity, str) or not identity:
        identity = None
    others = {name: v for name, v in value.items() if name != "text"}
    for name in ("id", "url", "lang"):
        if isinstance(others.get(name), str) or others.get(name) is None:
            others.pop(name, None)
    if identity is not None:
        others.pop("id", None)
    url, lang = (v if isinstance(v := value.get(n), str) and v else None for n in ("url", "lang"))
    return Document(row, line, identity or f"c/s:{row}", url, text, lang, to_json(others))


def plainly(content: bytes) -> list[Document | Rejected]:
    """Read all lines so; none is blank here and none too long."""
    records: list[Document | Rejected] = []
    offset = 0
    for line in content.split(b"\n"):
        records.append(plain(line, len(records), len(records) + 1, offset))
        offset += len(line) + 1
    return records


_DIGITS = "0 -0 1.0 1.10 -0.0 0.0000001 1e5 1E400 12345678901234567890123 0.1000000000000000055"
_WORDS = "NaN -Infinity 01 1. true null"
_NUMBERS = st.sampled_from([*_DIGITS.split(), *_WORDS.split()])
_STRINGS = st.text(max_size=8).map(json.dumps) | st.sampled_from(
    [
        *('"a"', '""', '" "', '"\t"', '"é"', '"\u2028"', '"\x7f"', '"[[{{"', '"unclosed'),
        *(r'"\u200b"', r'"\ud83d"', r'"\ud83d\ude00"', r'"\/\b"', r'"\x"'),
    ]
)
_VALUES = st.recursive(
    _NUMBERS | _STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]")
        | st.lists(st.tuples(_STRINGS, inner), max_size=3).map(
            lambda v: "{" + ",".join(f"{k}:{w}" for k, w in v) + "}"
        )
    ),
    max_leaves=4,
)
_NAMES = st.sampled_from(["text", "text", "id", "url", "lang", "date", "z", "é"]).map(json.dumps)
_OBJECTS = st.lists(st.tuples(_NAMES, _STRINGS | _VALUES), max_size=6).map(
    lambda pairs: "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}"
)


_LINES = st.lists(_OBJECTS | _VALUES, min_size=1, max_size=6)


@settings(deadline=None, max_examples=100)
@given(_LINES, st.integers(1, 60))
@example(['{"text":"a","id":' + "[" * 200 + "]" * 200 + "}"], 7)
@example(['{"text":"a","id":' + "[" * 199 + "]" * 199 + "}"], 7)
@example(['{"text":"a","id":0,"url":0,"lang":false}'], 60)
def test_records_are_those_of_a_plain_reading(lines: list[str], step: int) -> None:
    _hold_against_a_plain_reading(lines, step)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(_LINES, st.integers(1, 60))
def test_many_records_are_those_of_a_plain_reading(lines: list[str], step: int) -> None:
    _hold_against_a_plain_reading(lines, step)


def _hold_against_a_plain_reading(lines: list[str], step: int) -> None:
    content = "\n".join(line.replace("\n", " ") for line in lines).encode("utf-8", "replace")
    chunks = (content[i : i + step] for i in range(0, len(content), step))
    records = list(read_jsonl(chunks, FIELDS, Cursor(), shard="c/s", max_record_bytes=1 << 20))
    assert records == plainly(content)


@settings(deadline=None, max_examples=100)
@given(_OBJECTS, st.data())
def test_damaged_records_too(line: str, data: st.DataObject) -> None:
    _hold_damage_against_a_plain_reading(line, data)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(_OBJECTS, st.data())
def test_many_damaged_records_too(line: str, data: st.DataObject) -> None:
    _hold_damage_against_a_plain_reading(line, data)


def _hold_damage_against_a_plain_reading(line: str, data: st.DataObject) -> None:
    content = bytearray(line.encode("utf-8", "replace"))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(33, 255))
    record = bytes(content).replace(b"\n", b" ")
    records = list(read_jsonl([record], FIELDS, Cursor(), shard="c/s", max_record_bytes=1 << 20))
    assert records == plainly(record)
