"""Lines to records: what ends a line, what a record may be, and where it stood."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.formats.jsonl import Line, parse_object, read_jsonl, split_lines
from corpus_platform.formats.records import Cursor


def read(
    content: bytes, *, step: int = 1 << 16, max_record_bytes: int = 32 << 20
) -> list[Document | Rejected]:
    chunks = (content[i : i + step] for i in range(0, len(content), step))
    limit = max_record_bytes
    return list(read_jsonl(chunks, Fields(), Cursor(), shard="c/s", max_record_bytes=limit))


def texts(records: list[Document | Rejected]) -> list[str]:
    return [record.text for record in records if isinstance(record, Document)]


def rejected(records: list[Document | Rejected]) -> list[tuple[int, int, int | None, str]]:
    return [record[:4] for record in records if isinstance(record, Rejected)]


def test_rd_01_only_the_line_feed_ends_a_record() -> None:
    lines = ["one\u2028two", "x\u0085y", "p\u2029q\u001c", "v\u000bt\u000cf"]
    content = (
        '{"id":"a","text":"one\u2028two"}\n{"id":"b","text":"x\u0085y"}\n'
        '{"id":"c","text":"p\u2029q\\u001c"}\n{"id":"d","text":"v\\u000bt\\u000cf"}\n'
    )
    assert texts(read(content.encode())) == lines


def test_rd_02_a_lone_surrogate_costs_its_record_only() -> None:
    records = read(
        rb'{"text":"ok"}' b"\n" rb'{"text":"bad \ud83d end"}' b"\n" rb'{"text":"good \ud83d\ude00"}'
    )
    assert texts(records) == ["ok", "good \U0001f600"]
    assert rejected(records) == [(1, 2, 14, "lone_surrogate")]


def test_rd_04_a_record_of_five_megabytes_is_read() -> None:
    _, long = texts(read(b'{"text":"x"}\n{"text":"%s"}\n' % (b"y" * 5_000_000)))
    assert len(long) == 5_000_000
    assert hashlib.sha256(long.encode()).hexdigest() == (
        "c2eba0c1479c2c44756db745866afdcf1b8d9bf92d8d4a5c27964955fb613227"
    )


def test_rd_05_no_value_is_taken_for_a_text() -> None:
    values = ['"text":"x"', '"text":null', '"text":123', "", '"text":["x"]', '"text":"z"']
    records = read("\n".join(f"{{{value}}}" for value in values).encode())
    assert texts(records) == ["x", "z"]
    assert [r[3] for r in rejected(records)] == [
        "text_null",
        "text_not_a_string",
        "text_missing",
        "text_not_a_string",
    ]
    assert [record.row for record in records] == [0, 1, 2, 3, 4, 5]


def test_rd_06_crlf_and_blank_lines_are_no_records() -> None:
    records = read(
        b'{"id":"a","text":"one"}\r\n\r\n{"id":"b","text":"two"}\r\n   \r\n{"id":"c","text":"three"}'
    )
    assert texts(records) == ["one", "two", "three"]
    assert [(r.row, r.line) for r in records] == [(0, 1), (1, 3), (2, 5)]


def test_rd_06_a_cut_record_is_counted_with_its_line() -> None:
    records = read(
        b'{"id":"a","text":"one"}\r\n\r\n{"id":"b","text":"two"}\r\n   \r\n'
        b'{"id":"d","text":"cut\r\n{"id":"c","text":"three"}'
    )
    assert texts(records) == ["one", "two", "three"]
    assert rejected(records) == [(2, 5, 57, "invalid_json")]
    assert records[2] == Rejected(2, 5, 57, "invalid_json", '{"id":"d","text":"cut')


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"text":"a"', "invalid_json"),
        (b'{"text":"a"} {}', "invalid_json"),
        (b"{'text':'a'}", "invalid_json"),
        (b'{"text":"caf\xe9"}', "invalid_utf8"),
        (b'{"text":"\xed\xa0\x80"}', "invalid_utf8"),
        (b'{"text":"a","x":"\xff"}', "invalid_utf8"),
        (rb'{"text":"a","x":{"\udc00":1}}', "lone_surrogate"),
        (rb'{"text":"\ude00\ud83d"}', "lone_surrogate"),
        (b'"text"', "not_an_object"),
        (b"null", "not_an_object"),
        (b"NaN", "not_an_object"),
        (b'[{"text":"a"}]', "not_an_object"),
        (b"[" * 100_000 + b"]" * 100_000, "nested_too_deep"),
        (b"[" * 100_000, "nested_too_deep"),
        (b'{"text":"a","x":' * 100_000, "nested_too_deep"),
        (b'{"text":"a","x":' + b"[" * 300 + b"]" * 300 + b"}", "nested_too_deep"),
        (b'{"text":"a","x":' + b"[" * 200 + b"]" * 200 + b"}", "nested_too_deep"),
        (b'{"text":"a","x":' + b"[" * 200 + b"NaN" + b"]" * 200 + b"}", "nested_too_deep"),
        (b'{"text":"a","x":' + b"[" * 199 + b"}", "invalid_json"),
        (b'{"text":"' + b"[" * 300 + b'","x":', "invalid_json"),
        (b'{"text":"\\"' + b"[{" * 300 + b'\\\\",', "invalid_json"),
    ],
)
def test_what_is_no_object_has_a_reason(record: bytes, reason: str) -> None:
    assert parse_object(record) == reason


@pytest.mark.parametrize(
    ("record", "meta"),
    [
        (b'"x":NaN,"y":[-Infinity]', '{"x":null,"y":[null]}'),
        (b'"x":1e400,"y":1e99999999999999999999999', '{"x":1E+400,"y":null}'),
        (b'"x":0.10000000000000000001,"y":1.0', '{"x":0.10000000000000000001,"y":1.0}'),
        (b'"x":' + b"9" * 5000, '{"x":' + "9" * 5000 + "}"),
        (b'"x":1,"x":{"b":1,"a":[]}', '{"x":{"a":[],"b":1}}'),
        (b'"x":' + b"[" * 199 + b"]" * 199, '{"x":' + "[" * 199 + "]" * 199 + "}"),
        (
            b'"x":' + b"[" * 199 + b"NaN" + b"]" * 199,
            '{"x":' + "[" * 199 + "null" + "]" * 199 + "}",
        ),
    ],
)
def test_odd_values_are_kept_in_meta(record: bytes, meta: str) -> None:
    (document,) = read(b'{"text":"a",' + record + b"}")
    assert isinstance(document, Document)
    assert document.meta == meta


def test_a_text_met_twice_counts_with_its_last_value() -> None:
    assert texts(read(b'{"text":"a","text":"b"}')) == ["b"]


def test_a_byte_order_mark_is_no_part_of_a_record() -> None:
    bom = b"\xef\xbb\xbf"
    assert texts(read(bom + b'{"text":"a"}\n' + bom + b'{"text":"b"}\n' + bom)) == ["a", "b"]


def test_a_line_too_long_is_rejected_and_the_next_one_read() -> None:
    content = b'{"text":"%s"}\n{"text":"b"}\n' % (b"x" * 2000)
    for step in (1, 7, 1 << 16):
        first, second = read(content, step=step, max_record_bytes=1024)
        assert first == Rejected(0, 1, 0, "record_too_long", '{"text":"' + "x" * 191)
        assert second == Document(1, 2, "c/s:1", None, "b", None, "{}")


def test_the_longest_line_allowed_is_read() -> None:
    content = b'{"text":"%s"}\n' % (b"x" * 1013)
    assert len(texts(read(content, max_record_bytes=1024))) == 1
    assert len(texts(read(content, max_record_bytes=1023))) == 0


def test_a_long_line_of_blanks_is_not_passed_over_in_silence() -> None:
    content = b" " * 2000 + b'{"text":"a"}\n'
    assert rejected(read(content, max_record_bytes=1024)) == [(0, 1, 0, "record_too_long")]


def test_the_cursor_stands_behind_the_last_byte() -> None:
    cursor = Cursor(row=5, line=10, offset=100)
    chunks = [b'{"text":"a"}\n\n{"te', b'xt":1}']
    list(read_jsonl(chunks, Fields(), cursor, shard="c/s", max_record_bytes=1024))
    assert cursor == Cursor(row=7, line=13, offset=124)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.integers(1, 9))
def test_lines_are_those_of_split_for_any_chunks(content: bytes, step: int) -> None:
    content = content.replace(b"\x01", b"\n")
    chunks = [content[i : i + step] for i in range(0, len(content), step)]
    *ended, rest = content.split(b"\n")
    expected = [Line(len(line), line, True) for line in ended]
    expected += [Line(len(rest), rest, False)] if rest else []
    assert list(split_lines(chunks, max_bytes=100)) == expected


_ESCAPES = st.sampled_from(
    [r"\ud83d", r"\ude00", r"\uDBFF", r"\u0041", "x", "é", r"\n", r"\\", r"\"", "\\ud8", "\t"]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(_ESCAPES, max_size=6).map("".join))
def test_verdicts_on_escapes_are_those_of_the_standard_library(escapes: str) -> None:
    record = f'{{"text":"{escapes}"}}'
    try:
        expected = json.loads(record)
        expected["text"].encode()
    except UnicodeEncodeError:
        expected = "lone_surrogate"
    except ValueError:
        expected = "invalid_json"
    assert parse_object(record.encode()) == expected
