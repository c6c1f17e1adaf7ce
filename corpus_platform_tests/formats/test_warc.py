"""WARC to records: conversion records are documents, others are counted, cut ones raise."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator

import pytest

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.records import Cursor
from corpus_platform.formats.warc import read_warc

UUID = "<urn:uuid:A35A0589-f279-43c5-8338-2bbfbf083b0f>"


def record(block: bytes, *headers: str, kind: str = "conversion", size: object = None) -> bytes:
    lines = ["WARC/1.0", f"WARC-Type: {kind}", *headers]
    lines += [f"Content-Length: {len(block) if size is None else size}"]
    return "\r\n".join([*lines, "", ""]).encode() + block + b"\r\n\r\n"


GOOD = record(b"some words", f"WARC-Record-ID: {UUID}")


def read(
    content: bytes, *, step: int = 1 << 15, limit: int = 1 << 20, passed: Counter | None = None
) -> list[Document | Rejected]:
    chunks: Iterator[bytes] = (content[i : i + step] for i in range(0, len(content), step))
    counts = Counter() if passed is None else passed
    return list(read_warc(chunks, Fields(), Cursor(), counts, shard="c/s", max_record_bytes=limit))


def damage(content: bytes) -> str:
    with pytest.raises(DamagedShard) as caught:
        read(content)
    return caught.value.reason


def reasons(content: bytes, *, limit: int = 1 << 20) -> list[str]:
    return [r.reason if isinstance(r, Rejected) else "" for r in read(content, limit=limit)]


@pytest.mark.parametrize("step", [1, 7, 1 << 15])
def test_a_conversion_record_is_a_document_with_the_fields_of_its_headers(step: int) -> None:
    page = record(
        "Grüße\r\naus Köln\n".encode(),
        f"WARC-Record-ID: {UUID}",
        "WARC-Target-URI: https://example.org/ä?b",
        "WARC-Date: 2026-10-03T14:34:19Z",
        "WARC-Identified-Content-Language: deu",
        "Content-Type: text/plain",
    )
    assert read(page, step=step) == [
        Document(
            0,
            1,
            "a35a0589f27943c583382bbfbf083b0f",
            "https://example.org/ä?b",
            "Grüße\r\naus Köln\n",
            "de",
            '{"Content-Type":"text/plain","WARC-Date":"2026-10-03T14:34:19Z"}',
        )
    ]


@pytest.mark.parametrize(
    ("header", "lang", "meta"),
    [
        ("eng", "en", "{}"),
        ("zho,eng", "zh", '{"WARC-Identified-Content-Language":"zho,eng"}'),
        ("nob", "no", "{}"),
        ("ger", "de", "{}"),
        ("ceb", "ceb", "{}"),
        ("fr", "fr", "{}"),
        ("code", "code", "{}"),
        ("", None, "{}"),
    ],
)
def test_the_first_language_counts_by_its_code_of_two_letters(
    header: str, lang: str | None, meta: str
) -> None:
    (document,) = read(record(b"words", f"WARC-Identified-Content-Language: {header}"))
    assert isinstance(document, Document)
    assert (document.lang, document.meta) == (lang, meta)


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        (UUID, "a35a0589f27943c583382bbfbf083b0f"),
        ("urn:uuid:a35a0589-f279-43c5-8338-2bbfbf083b0f", "a35a0589f27943c583382bbfbf083b0f"),
        ("<https://example.org/records/1>", "https://example.org/records/1"),
        ("", "c/s:0"),
    ],
)
def test_the_id_is_that_of_the_record(value: str, identity: str) -> None:
    (document,) = read(record(b"words", f"WARC-Record-ID: {value}"))
    assert isinstance(document, Document)
    assert document.id == identity


def test_records_of_other_types_are_counted_by_type() -> None:
    passed = Counter[str]()
    content = (
        record(b"software: x\r\n", kind="warcinfo")
        + record(b"GET / HTTP/1.1\r\n\r\n", kind="request")
        + GOOD
        + record(b"a: b", kind="metadata")
        + record(b"a: b", kind="METADATA")
        + record(b"?", kind="something of its own")
    )
    (document,) = read(content, passed=passed)
    assert (document.row, document.line) == (0, 1)
    assert passed == {"warcinfo": 1, "request": 1, "metadata": 2, "other": 1}


def test_a_file_of_pages_without_texts_is_refused() -> None:
    content = record(b"x", kind="warcinfo") + record(b"x", kind="response") * 2
    assert "no conversion record, but 2 response, 1 warcinfo" in damage(content)


def test_a_file_of_nothing_but_its_own_description_has_no_documents() -> None:
    assert read(record(b"x", kind="warcinfo")) == []


@pytest.mark.parametrize("block", [b"", b" \n\t"])
def test_an_empty_or_blank_page_is_rejected(block: bytes) -> None:
    (rejected,) = read(record(block))
    assert rejected[3] == ("text_blank" if block else "text_empty")


def test_faults_inside_a_record_cost_that_record() -> None:
    content = b"".join(
        [
            GOOD,
            record(b"caf\xe9"),
            record(b"x" * 2000),
            record(b"{}", "Content-Type: application/json"),
            record(b"words", "no colon here"),
            record(b"words", "WARC-Type: resource"),
            record(b"words", "WARC-Block-Digest: sha1:AAAA"),
            record(b"words", "X: y").replace(b"X: y", b"X: \xff"),
            GOOD,
        ]
    )
    assert reasons(content, limit=1024) == [
        "",
        "invalid_utf8",
        "record_too_long",
        "not_plain_text",
        "invalid_header",
        "invalid_header",
        "digest_mismatch",
        "invalid_utf8",
        "",
    ]


def test_a_rejected_record_says_where_it_stands_and_how_it_begins() -> None:
    first, second = GOOD, record(b"caf\xe9 and more")
    assert read(first + second + GOOD)[1:] == [
        Rejected(1, 2, len(first), "invalid_utf8", r"caf\xe9 and more"),
        Document(2, 3, "a35a0589f27943c583382bbfbf083b0f", None, "some words", None, "{}"),
    ]


@pytest.mark.parametrize("name", ["md5", "sha1", "SHA-256"])
def test_a_digest_in_any_writing_agrees(name: str) -> None:
    raw = hashlib.new(name.lower().replace("-", ""), b"words").digest()
    for value in (raw.hex(), base64.b32encode(raw).decode(), base64.b64encode(raw).decode()):
        assert reasons(record(b"words", f"WARC-Block-Digest: {name}:{value}")) == [""]


def test_a_digest_of_an_unknown_algorithm_is_not_judged() -> None:
    assert reasons(record(b"words", "WARC-Block-Digest: crc9:17")) == [""]


def test_headers_may_go_on_in_the_next_line_and_come_twice() -> None:
    (document,) = read(record(b"words", "X-A: one", "\ttwo", "x-a: three", "Y:"))
    assert isinstance(document, Document)
    assert document.meta == '{"X-A":["one two","three"],"Y":""}'


def test_bare_line_feeds_end_lines_and_more_blank_lines_do_no_harm() -> None:
    unix = GOOD.replace(b"\r\n", b"\n")
    assert reasons(unix + b"\n\n\r\n" + GOOD + unix) == ["", "", ""]


def test_a_block_of_the_longest_size_allowed_is_read() -> None:
    assert reasons(record(b"x" * 1024), limit=1024) == [""]
    assert reasons(record(b"x" * 1025), limit=1024) == ["record_too_long"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"garbage\r\n\r\n", "begins with 'garbage"),
        (record(b"words", size=3), "has not the 3 bytes of its Content-Length"),
        (record(b"words", size=9), "has not the 9 bytes of its Content-Length"),
        (record(b"words", size=900), "it has 143 of the 900 bytes"),
        (record(b"words", size=9000, kind="metadata"), "it has 143 of the 9000 bytes"),
        (record(b"words", size=-5), "wants one Content-Length, a number; found '-5'"),
        (record(b"words", size="x"), "wants one Content-Length, a number; found 'x'"),
        (record(b"words", size="9" * 30), "wants one Content-Length, a number; found '999"),
        (record(b"words", "Content-Length: 4"), "found '4, 5'"),
        (record(b"words").replace(b"Content-Length: 5\r\n", b""), "found 'none'"),
        (record(b"words", "X: " + "y" * 70_000), "has a header of more than 65536 bytes"),
        (record(b"words").replace(b"WARC/1.0", b"WARC 1.0"), "begins with 'WARC 1.0"),
    ],
)
def test_framing_that_cannot_be_trusted_raises_with_its_place(bad: bytes, message: str) -> None:
    reason = damage(GOOD + bad + GOOD)
    assert f"the WARC record at byte {len(GOOD)} of the content" in reason
    assert message in reason


def test_a_file_cut_anywhere_but_between_records_raises() -> None:
    content = record(b"x", kind="warcinfo") + GOOD
    between = len(content) - len(GOOD)
    for cut in range(1, len(content)):
        if cut != between:
            assert "cut off" in damage(content[:cut]) or "begins with" in damage(content[:cut])


def test_a_skipped_record_of_any_size_is_not_held() -> None:
    def chunks() -> Iterator[bytes]:
        yield record(b"", size=10**9)[:-4]
        for _ in range(1000):
            yield bytes(10**6)
        yield b"\r\n\r\n"

    cursor, zeros = Cursor(), Counter[str]()
    found = list(read_warc(chunks(), Fields(), cursor, zeros, shard="c/s", max_record_bytes=1024))
    assert found[0][:4] == (0, 1, 0, "record_too_long")
    assert cursor.offset == 10**9 + 4 + len(record(b"", size=10**9)) - 4
