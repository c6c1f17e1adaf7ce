"""Tests of a look at a shard: what it is, what its texts are like, and that nothing makes it fail."""

import gzip
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from corpus_platform.config import Fields, ReadSettings, Settings, SourceSettings
from corpus_platform.stages.inspection import Column, File, Inspection, inspect_shard, open_members
from corpus_platform_tests.small import PAGES

ENGLISH = "The library at the corner of the street is open every day except on Mondays. "
GERMAN = "Die Bücherei an der Ecke der Straße ist jeden Tag außer montags geöffnet. "
GARBLED = "Die BÃ¼cherei an der Ecke der StraÃŸe ist jeden Tag auÃŸer montags geÃ¶ffnet. "
REPLACED = "Die B\ufffdcherei an der Ecke der Stra\ufffde ist jeden Tag ge\ufffdffnet. "
HTML = "<p>Open every day &amp; night</p><br>The library at the corner of the street. "


def _lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"id": f"d{i}", "text": t}).encode() + b"\n" for i, t in enumerate(texts))  # fmt: skip


def _write(folder: Path, data: bytes, name: str = "a") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def _look(
    *paths: Path, fields: Fields | None = None, limit: int | None = None, read: ReadSettings | None = None
) -> Inspection:  # fmt: skip
    fields = fields or Fields()
    settings = Settings(sources=(SourceSettings(glob="{crawl}/*"),), read=read or ReadSettings())
    return inspect_shard(paths, open_members(settings, paths, fields, shard="a"), limit=limit)


@pytest.mark.parametrize(
    ("packed", "stored_as"),
    [(bytes, "plain"), (gzip.compress, "gzip"), (zstd.compress, "zstd")],
)
def test_json_lines_in_any_container(tmp_path: Path, packed, stored_as: str) -> None:
    plain = _lines(ENGLISH, GERMAN) + b'{"text": 1}\nno json\n'
    data = packed(plain)
    found = _look(_write(tmp_path, data))
    assert found.files == [File("a", len(data), stored_as, "lines")]
    assert (found.rows, found.records, found.documents) == (4, 4, 2)
    assert dict(found.rejected) == {"text_not_a_string": 1, "invalid_json": 1}
    assert found.decompressed_bytes == len(plain)
    assert found.columns == [
        Column("id", ("string",), 2, 3),
        Column("text", ("number", "string"), 3, 3),
    ]
    assert found.failure is None


def test_parquet_has_the_columns_and_rows_of_its_footer(tmp_path: Path) -> None:
    table = pa.table({"text": [ENGLISH, None, GERMAN], "n": pa.array([1, 2, 3], pa.int32())})
    pq.write_table(table, tmp_path / "a")
    found = _look(tmp_path / "a")
    assert [(f.stored_as, f.holds) for f in found.files] == [("parquet", "Parquet")]
    assert found.columns == [Column("text", ("string",), 3, 3), Column("n", ("int32",), 3, 3)]
    assert (found.rows, found.documents, dict(found.rejected)) == (3, 2, {"text_null": 1})
    first = _look(tmp_path / "a", limit=1)
    assert (first.rows, first.records) == (3, 1)


def test_wet_records_are_counted(tmp_path: Path) -> None:
    body = ENGLISH.encode()
    head = f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Target-URI: https://h/\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    data = head.encode() + body + b"\r\n\r\n"
    found = _look(_write(tmp_path, gzip.compress(data) + gzip.compress(data)))
    assert [(f.stored_as, f.holds) for f in found.files] == [("gzip", "WARC records")]
    assert (found.rows, found.documents, found.columns, found.failure) == (2, 2, [], None)


def test_lengths_are_told_at_shares_of_the_documents(tmp_path: Path) -> None:
    found = _look(_write(tmp_path, _lines(*("ж" * n for n in range(1, 102)))))
    assert found.quantiles() == {
        "0%": 1,
        "5%": 6,
        "25%": 26,
        "50%": 51,
        "75%": 76,
        "95%": 96,
        "100%": 101,
    }
    assert found.utf8_bytes == 2 * sum(range(1, 102))


def test_languages_are_those_of_the_texts(tmp_path: Path) -> None:
    texts = [ENGLISH * 2] * 3 + [GERMAN * 2] * 2 + [PAGES["ru"], PAGES["zh"], "12 34"]
    found = _look(_write(tmp_path, _lines(*texts)))
    assert dict(found.languages) == {"en": 3, "de": 2, "ru": 1, "zh": 1, "und": 1}


def test_garbled_texts_and_html_are_suspected_and_others_are_not(tmp_path: Path) -> None:
    texts = [ENGLISH, GERMAN, *PAGES.values(), GARBLED, REPLACED, HTML]
    texts += ["An <p> and a <br> are tags, and AT&T is none.", "if a < b && c > d: print('&')"]
    found = _look(_write(tmp_path, _lines(*texts)))
    assert (found.documents, found.mojibake, found.html) == (11, 2, 1)


def test_the_beginnings_of_three_documents_are_shown(tmp_path: Path) -> None:
    found = _look(_write(tmp_path, _lines("x" * 600, "b", "c", "d")))
    assert found.beginnings == [("d0", "x" * 500), ("d1", "b"), ("d2", "c")]


def test_at_most_a_limit_of_records_is_judged(tmp_path: Path) -> None:
    path = _write(tmp_path, _lines(*[ENGLISH] * 5))
    found = _look(path, limit=3)
    assert (found.records, found.rows, found.languages.total()) == (3, None, 3)
    whole = _look(path, limit=5)
    assert (whole.records, whole.rows) == (5, 5)


def test_the_members_of_a_bundle_are_one_shard(tmp_path: Path) -> None:
    one = _write(tmp_path, _lines("a", "b"), "one")
    other = _write(tmp_path, gzip.compress(_lines("c")), "other")
    found = _look(one, other)
    assert [f.name for f in found.files] == ["one", "other"]
    assert (found.rows, found.documents) == (3, 3)


def test_a_broken_member_behind_the_limit_leaves_the_rows_uncounted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a line"] * 1000}), tmp_path / "one")  # a batch
    whole = (tmp_path / "one").read_bytes()
    other = _write(tmp_path, whole[:-30], "other")
    found = _look(tmp_path / "one", other, limit=1)
    assert (found.records, found.rows, found.failure) == (1, None, None)
    other.write_bytes(whole)
    assert _look(tmp_path / "one", other, limit=1).rows == 2000


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    for data, stored_as in ((b"", "plain"), (gzip.compress(b""), "gzip")):
        found = _look(_write(tmp_path, data))
        assert found.files == [File("a", len(data), stored_as, "nothing")]
        assert (found.rows, found.documents, found.columns, found.quantiles()) == (0, 0, [], {})
        assert found.failure is None


def test_a_cut_shard_is_shown_up_to_there_with_the_reason(tmp_path: Path) -> None:
    data = gzip.compress(_lines(*[ENGLISH] * 3000))
    found = _look(_write(tmp_path, data[:-20]))
    assert "cut off at byte" in (found.failure or "")
    assert found.documents >= 1000
    assert found.languages == {"en": 500}
    assert found.rows is None


def test_a_wrong_text_column_is_named_and_the_columns_are_shown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": [ENGLISH]}), tmp_path / "a")
    found = _look(tmp_path / "a")
    assert found.columns == [Column("body", ("string",), 1, 1)]
    assert "one column 'text' is wanted" in (found.failure or "")
    assert _look(tmp_path / "a", fields=Fields(text="body")).documents == 1
    lines = _look(_write(tmp_path, b'{"body": "x"}\n'))
    assert (lines.failure, dict(lines.rejected)) == (None, {"text_missing": 1})


def test_the_limits_of_the_settings_hold(tmp_path: Path) -> None:
    path = _write(tmp_path, gzip.compress(_lines(*[ENGLISH] * 20_000)))
    found = _look(path, read=ReadSettings(max_shard_bytes=1 << 20))
    assert "`read.max_shard_bytes` = 1048576" in (found.failure or "")


def test_a_bomb_is_refused_in_seconds(tmp_path: Path) -> None:
    frames = zstd.compress(b"\0" * (64 << 20)) * 40  # 2.7 GB of one line
    before = time.process_time()
    found = _look(_write(tmp_path, frames))
    assert time.process_time() - before < 10
    assert "`read.max_ratio` = 1000" in (found.failure or "")
    assert found.documents == 0


DAMAGED: Mapping[str, bytes] = {
    "no footer": b"PAR1",
    "a footer of nothing": b"PAR1" + b"\0" * 100 + b"PAR1",
    "a footer beyond the file": b"PAR1" + b"\xff" * 8 + b"PAR1",
    "half a gzip header": b"\x1f\x8b",
    "half a zstd header": b"\x28\xb5\x2f\xfd",
    "half a WARC header": b"WARC/1.0\r\nWARC-Type: conv",
    "gzip in gzip": gzip.compress(gzip.compress(b"x")),
    "Parquet in gzip": gzip.compress(b"PAR1" * 10),
    "rubbish behind gzip": gzip.compress(b"{}\n") + b"rubbish",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, data: bytes) -> None:
    found = _look(_write(tmp_path, data))
    assert found.failure


LINES: Sequence[tuple[bytes, str]] = [
    (b'{"text": "\\ud800"}', "lone_surrogate"),
    (b'{"\\ud800": 1}', "lone_surrogate"),
    (b"\xff\xfe", "invalid_utf8"),
    (b"[" * 5000, "nested_too_deep"),
    (b'{"text": ' + b"[" * 100_000, "nested_too_deep"),
    (b"9" * 10_000, "not_an_object"),
]


@pytest.mark.parametrize(("line", "reason"), LINES, ids=[str(n) for n in range(len(LINES))])
def test_a_line_that_cannot_be_read_is_counted_with_its_reason(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    found = _look(_write(tmp_path, line + b"\n" + _lines("a")))
    assert (found.documents, dict(found.rejected), found.failure) == (1, {reason: 1}, None)


def test_every_broken_shard_that_is_known_is_looked_at(shared: Path) -> None:
    paths = sorted(p for p in (shared / "nasty").rglob("*") if p.is_file())
    assert len(paths) > 10
    for path in paths:
        if path.stat().st_size < 50_000_000:
            found = _look(path, limit=10_000)
            assert found.files[0].name == path.name
