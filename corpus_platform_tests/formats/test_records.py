"""Values to documents or reasons, and what an excerpt shows."""

import sys
import unicodedata
from collections.abc import Mapping
from decimal import Decimal

import pytest

from corpus_platform.config import Fields
from corpus_platform.document import Document
from corpus_platform.formats.records import excerpt, make_document, to_json


def make(values: Mapping[str, object], fields: Fields | None = None) -> Document | str:
    return make_document(values, fields or Fields(), shard="2026-40/s", row=7, line=9)


def made(values: Mapping[str, object]) -> Document:
    document = make({"text": "words", **values})
    assert isinstance(document, Document)
    return document


def test_all_other_fields_go_to_meta_with_sorted_keys() -> None:
    values = {
        "text": "t",
        "id": "a",
        "url": "u",
        "lang": "de",
        "z": [1, {"b": 2, "a": None}],
        "b": "ü",
    }
    meta = '{"b":"ü","z":[1,{"a":null,"b":2}]}'
    assert make(values) == Document(7, 9, "a", "u", "t", "de", meta)


def test_the_fields_may_have_other_names() -> None:
    names = Fields(id="key", url="link", text="content", lang="language")
    values = {"content": "t", "key": "a", "link": "u", "language": "de", "text": "other"}
    assert make(values, names) == Document(7, 9, "a", "u", "t", "de", '{"text":"other"}')


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        ("a", "a"),
        (12, "12"),
        (0, "0"),
        (10**30, "1" + "0" * 30),
        (Decimal("1.50"), "1.50"),
        (2.5, "2.5"),
        (float("nan"), "2026-40/s:7"),
        (None, "2026-40/s:7"),
        ("", "2026-40/s:7"),
        (True, "2026-40/s:7"),
        (["a"], "2026-40/s:7"),
        ("é" * 1024, "é" * 1024),
        ("é" * 1025, "2026-40/s:7"),
        (10**1024, "2026-40/s:7"),
    ],
)
def test_an_id_is_a_string_a_number_or_the_place_of_the_record(
    value: object, identity: str
) -> None:
    assert made({"id": value}).id == identity


def test_a_missing_id_is_the_place_of_the_record() -> None:
    assert made({}).id == "2026-40/s:7"


def test_what_cannot_serve_as_a_field_stays_in_meta() -> None:
    document = made({"id": ["x"], "url": 5, "lang": None})
    assert (document.url, document.lang) == (None, None)
    assert document.meta == '{"id":["x"],"url":5}'
    assert made({"id": "x" * 1025}).meta == '{"id":"' + "x" * 1025 + '"}'


def test_a_language_is_no_longer_than_a_name() -> None:
    assert made({"lang": "é" * 64}).lang == "é" * 64
    document = made({"lang": "x" * 65})
    assert document.lang is None
    assert document.meta == '{"lang":"' + "x" * 65 + '"}'


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "text_missing"),
        ({"text": None}, "text_null"),
        ({"text": 5}, "text_not_a_string"),
        ({"text": True}, "text_not_a_string"),
        ({"text": ["x"]}, "text_not_a_string"),
        ({"text": {"text": "x"}}, "text_not_a_string"),
        ({"text": ""}, "text_empty"),
        ({"text": " \n\u3000\u200b\ufeff\u00ad\u3164\ufe0f\U000e0101\x00"}, "text_blank"),
    ],
)
def test_an_unusable_text_has_a_reason(values: dict[str, object], reason: str) -> None:
    assert make(values) == reason


def _invisible() -> frozenset[str]:
    """Return the separators, controls, formats and default ignorables of Unicode 15.1."""
    codes = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2065}
    for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)):
        codes.update(range(first, last + 1))
    codes.update(range(0x13439, 0x13440))  # formats since Unicode 15
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in ("Zs", "Zl", "Zp", "Cc", "Cf"):
            codes.add(code)
    return frozenset(map(chr, codes))


INVISIBLE = _invisible()


def test_blank_texts_are_of_separators_controls_formats_and_default_ignorables() -> None:
    unknown = ("Cs", "Cn")  # surrogates are no text, and others may get a meaning
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character in INVISIBLE or unicodedata.category(character) not in unknown:
            blank = make({"text": character}) == "text_blank"
            assert blank == (character in INVISIBLE), hex(code)


def test_numbers_keep_their_digits_and_infinities_become_null() -> None:
    values = [Decimal("0.1000000000000000055511151231257827"), 10**40, float("inf"), b"ab"]
    expected = f'[0.1000000000000000055511151231257827,1{"0" * 40},null,"YWI="]'
    assert to_json(values) == expected


def test_an_excerpt_is_printable_ascii() -> None:
    assert excerpt('{"é":\n\x7f}'.encode()) == r'{"\xc3\xa9":\x0a\x7f}'


def test_an_excerpt_is_never_longer_than_200_and_cuts_no_escape() -> None:
    assert excerpt(b"ab" + b"\x00" * 300) == "ab" + r"\x00" * 49
    assert excerpt(b"a" * 300) == "a" * 200
