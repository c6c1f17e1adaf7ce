"""Whole shards to records: broken ones, real ones, and any that can be written."""

import gzip
import hashlib
import io
import json
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports.zstd import compress as zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus_platform.config import Fields, ReadSettings
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.shard import ShardRecords, read_shard

MEGABYTE = 1 << 20

NASTY = [
    "zst_truncated",
    "gz_truncated",
    "zst_trailing_garbage",
    "zst_bad_checksum",
    "zst_multi_frame",
    "zst_multi_frame_split_line",
    "zst_skippable_frame",
    "gz_multi_member",
    "empty_file_zst",
    "empty_file_gz",
    "empty_stream_zst",
    "empty_file_plain",
    "gz_named_zst",
    "zst_named_gz",
    "plain_named_zst",
    "zst_bomb",
    "bom",
    "crlf",
    "no_final_newline",
    "blank_lines",
    "invalid_utf8",
    "invalid_json",
    "cut_last_line",
    "not_an_object",
    "lone_surrogate",
    "surrogate_pair",
    "nul_in_text",
    "text_missing",
    "text_null",
    "text_number",
    "text_list",
    "text_object",
    "text_empty",
    "text_blank",
    "duplicate_ids",
    "missing_ids",
    "nested_records",
    "nan_value",
    "duplicate_keys",
    "unicode_texts",
    "one_word_1mb",
    "one_char_100k",
    "special_tokens",
    "same_text_60",
    "parquet_dictionary",
    "parquet_large_string",
    "parquet_string_view",
    "parquet_null_text",
    "parquet_truncated",
    "parquet_content_column",
    "parquet_no_rows",
    "parquet_text_int",
    "parquet_named_jsonl",
]

# One of each container in the quick tests.
QUICK = [
    "crawl=2026-40/part-00001.jsonl.zst",  # 8 frames
    "crawl=2026-40/part-00004.jsonl.gz",  # 5 members
    "crawl=2026-40/part-00006.parquet",  # large_string
    "crawl=2026-40/part-00007.jsonl",
    "crawl=2026-40/part-00008.warc.wet.gz",  # a member for each record
    "crawl=2026-44/part-00002.parquet",
]
LONG = [
    "crawl=2026-40/part-00000.jsonl.zst",
    "crawl=2026-40/part-00002.jsonl.zst",
    "crawl=2026-40/part-00003.jsonl.gz",
    "crawl=2026-40/part-00005.parquet",
    "crawl=2026-40/part-00009.jsonl.zst",
    "crawl=2026-40/part-00010.jsonl.zst",
    "crawl=2026-40/part-00011.jsonl.zst",
    "crawl=2026-44/part-00000.jsonl.zst",
    "crawl=2026-44/part-00001.jsonl.gz",
    "crawl=2026-44/part-00003.jsonl.zst",
]
WET = "crawl=2026-40/part-00008.warc.wet.gz"


def shard_of(
    *members: Path,
    text: str = "text",
    limits: ReadSettings | None = None,
    max_record_bytes: int = 32 * MEGABYTE,
) -> ShardRecords:
    fields, limit = Fields(text=text), max_record_bytes
    return read_shard(members, fields, shard="c/s", max_record_bytes=limit, limits=limits)


def read(
    *members: Path, text: str = "text", limits: ReadSettings | None = None
) -> list[Document | Rejected]:
    shard = shard_of(*members, text=text, limits=limits)
    return [record for batch in shard for record in batch]


def documents(records: list[Document | Rejected]) -> list[Document]:
    return [record for record in records if isinstance(record, Document)]


def rejected(records: list[Document | Rejected]) -> list[Rejected]:
    return [record for record in records if isinstance(record, Rejected)]


def nasty_case(shared: Path, name: str) -> tuple[Path, dict]:
    cases = json.loads((shared / "nasty" / "cases.json").read_text())
    case = next(case for case in cases if case["name"] == name)
    return shared / "nasty" / case["file"], case["expect"]


def read_or_refuse(path: Path) -> tuple[list[Document | Rejected], DamagedShard | None]:
    try:
        return read(path), None
    except DamagedShard as error:
        return [], error


def test_every_broken_shard_is_tried(shared: Path) -> None:
    cases = json.loads((shared / "nasty" / "cases.json").read_text())
    assert [case["name"] for case in cases if case["kept"]] == NASTY
    assert [case["name"] for case in cases if not case["kept"]] == ["line_60mb"]


@pytest.mark.parametrize("name", NASTY)
def test_a_broken_shard_is_read_or_refused_as_it_must(shared: Path, name: str) -> None:
    path, expected = nasty_case(shared, name)
    records, error = read_or_refuse(path)
    assert expected["outcome"] in ("either", "error" if error else "read")
    if error:
        assert error.partition == "c/s"
        assert error.offset == expected.get("offset", error.offset)
        assert error.offset is None or str(error.offset) in str(error)
        return
    assert len(documents(records)) in expected["docs_ok"]
    assert [record.row for record in records] == list(range(len(records)))
    if "rejected" in expected:
        faults = rejected(records)
        assert Counter(fault.reason for fault in faults) == expected["rejected"]
        assert [fault.line for fault in faults] == expected["lines"][: len(faults)]


@pytest.mark.slow
def test_a_line_of_60_megabytes_is_read_or_rejected_by_its_length(
    shared: Path, tmp_path: Path
) -> None:
    # The case line_60mb, which is too large to be kept.
    words = (shared / "corpus" / "crawl=2026-40" / "part-00007.jsonl").read_text("utf-8").split()
    text = " ".join(words[i * 7919 % len(words)] for i in range(9_000_000))[:60_000_000]
    lines = [json.dumps({"text": t}, ensure_ascii=False) for t in ("first", text, "last")]
    path = tmp_path / "line_60mb.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    first, long, last = read(path)
    assert (first.row, last.row) == (0, 2)
    assert long[:4] == (1, 2, len('{"text": "first"}\n'), "record_too_long")
    batches = shard_of(path, max_record_bytes=128 * MEGABYTE)
    found = documents([record for batch in batches for record in batch])
    assert [len(document.text) for document in found] == [5, 60_000_000, 4]


def test_texts_come_with_every_code_point(shared: Path) -> None:
    path, _ = nasty_case(shared, "unicode_texts")
    lines = path.read_bytes().split(b"\n")[:-1]
    assert [d.text for d in documents(read(path))] == [json.loads(line)["text"] for line in lines]


def test_a_surrogate_pair_and_a_nul_are_in_their_texts(shared: Path) -> None:
    pair, _ = nasty_case(shared, "surrogate_pair")
    nul, _ = nasty_case(shared, "nul_in_text")
    assert "\U0001f600" in documents(read(pair))[4].text
    before, _, after = documents(read(nul))[5].text.partition("\0")
    assert before
    assert after


def test_missing_ids_are_distinct_and_the_same_in_every_run(shared: Path) -> None:
    path, _ = nasty_case(shared, "missing_ids")
    first, second = ([d.id for d in documents(read(path))] for _ in range(2))
    assert first == second
    assert len(set(first)) == 12


def test_a_column_of_another_name_is_read_when_it_is_named(shared: Path) -> None:
    path, _ = nasty_case(shared, "parquet_content_column")
    assert len(read(path, text="content")) == 12


@pytest.mark.parametrize("compress", [zstd, partial(gzip.compress, compresslevel=1)])
def test_a_record_of_100_megabytes_is_rejected_in_bounded_memory(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "shard"
    path.write_bytes(compress(bytes(100 * MEGABYTE) + b'\n{"text":"after"}'))
    tracemalloc.start()
    try:
        bomb, after = read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bomb[:4] == (0, 1, 0, "record_too_long")
    assert isinstance(after, Document)
    assert peak < 50 * MEGABYTE


def test_a_bomb_is_named_with_its_ratio_its_line_and_the_setting(shared: Path) -> None:
    path, _ = nasty_case(shared, "zst_bomb")
    with pytest.raises(DamagedShard) as caught:
        read(path)
    assert re.search(
        r"268\d{6} plain bytes of 32790 stored ones, 818\d times as many at line 1, byte 32790 of the"
        r" file; the limit is `read.max_ratio` = 1000: raise it to read the shard",
        caught.value.reason,
    )


def test_a_bomb_is_one_rejected_record_where_the_ratio_is_allowed(shared: Path) -> None:
    path, _ = nasty_case(shared, "zst_bomb")
    (record,) = read(path, limits=ReadSettings(max_ratio=40_000))
    assert record[:4] == (0, 1, 0, "record_too_long")


def test_a_shard_of_too_many_plain_bytes_is_named_with_the_setting(tmp_path: Path) -> None:
    lines, limits = b'{"text":"%s"}\n' % (b"a" * 50_000) * 25, ReadSettings(max_shard_bytes=1 << 20)
    pages = [f"{i}" * 50_000 for i in range(25)]
    one, two, wet = tmp_path / "one", tmp_path / "two", tmp_path / "wet"
    one.write_bytes(gzip.compress(lines))
    pq.write_table(pa.table({"text": pages}), two, use_dictionary=False)
    header = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 50000\r\n\r\n"
    wet.write_bytes((header + b"a" * 50_000 + b"\r\n\r\n") * 25)
    for path in (one, two, wet):
        assert len(read(path)) == 25
        with pytest.raises(DamagedShard, match=r"the limit is `read.max_shard_bytes` = 1048576"):
            read(path, limits=limits)


def test_the_members_of_a_bundle_count_together(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b'{"text":"%s"}\n' % (b"a" * 600_000))
    limits = ReadSettings(max_shard_bytes=1 << 20)
    assert len(read(path, limits=limits)) == 1
    with pytest.raises(DamagedShard, match=r"member part: 1\d{6} plain bytes at line 2"):
        read(path, path, limits=limits)


def test_a_dictionary_that_stands_for_more_than_a_shard_may_hold_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "part.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["a" * 900_000])
    pq.write_table(pa.table({"text": text}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    with pytest.raises(DamagedShard, match=r"the limit is `read.max_ratio` = 1000"):
        read(path)


@pytest.mark.parametrize("name", QUICK + [pytest.param(n, marks=pytest.mark.slow) for n in LONG])
def test_a_real_shard_has_the_documents_and_bytes_of_its_listing(shared: Path, name: str) -> None:
    listing = json.loads((shared / "corpus" / "shards.json").read_text())["shards"]
    about = next(shard for shard in listing if shard["file"] == name)
    shard, count, text_bytes = shard_of(shared / "corpus" / name), 0, 0
    for batch in shard:
        found = documents(batch)
        assert len(found) == len(batch) <= 1000
        count += len(found)
        text_bytes += sum(len(document.text.encode()) for document in found)
    assert (count, text_bytes) == (about["docs"], about["text_bytes"])
    assert shard.stored_bytes_read == about["bytes"]


def test_every_real_shard_is_tried(shared: Path) -> None:
    listing = json.loads((shared / "corpus" / "shards.json").read_text())["shards"]
    assert sorted([*QUICK, *LONG]) == sorted(shard["file"] for shard in listing)


def test_what_a_wet_shard_holds_besides_pages_is_counted(shared: Path) -> None:
    shard = shard_of(shared / "corpus" / WET)
    found = documents([record for batch in shard for record in batch])
    assert shard.passed == {"warcinfo": 1}
    assert Counter(document.lang for document in found) == {
        "en": 285,
        "zh": 234,
        "code": 32,
        "de": 21,
        "es": 19,
        "ru": 13,
        "ja": 8,
        "fr": 5,
    }
    assert found[0][:4] == (
        0,
        1,
        "a35a0589f27943c583382bbfbf083b0f",
        "https://tldr.inbrowser.app/pages/linux/gnutsort",
    )


def test_a_wet_shard_is_known_by_its_first_bytes_however_its_members_are_cut(
    tmp_path: Path,
) -> None:
    record = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 5\r\n\r\nwords\r\n\r\n"
    content = record * 3
    for step in (1, 3, 50):
        path = tmp_path / f"{step}.wet.gz"
        pieces = [content[i : i + step] for i in range(0, len(content), step)]
        path.write_bytes(b"".join(map(gzip.compress, pieces)))
        assert [document.text for document in documents(read(path))] == ["words"] * 3


def test_what_is_counted_is_counted_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "part.wet"
    path.write_bytes(b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n")
    shard = shard_of(path, path)
    for _ in range(2):
        assert list(shard) == []
        assert shard.passed == {"warcinfo": 2}


@pytest.mark.parametrize("inner", [gzip.compress, zstd, lambda line: b"PAR1" + line])
def test_a_container_inside_a_container_is_refused(
    tmp_path: Path, inner: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "twice.jsonl.gz"
    path.write_bytes(gzip.compress(inner(b'{"text":"a"}')))
    with pytest.raises(DamagedShard, match="inside another container"):
        read(path)


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("compress", [bytes, zstd, gzip.compress])
def test_dec_07_a_character_may_stand_across_a_chunk_border(
    tmp_path: Path, shift: int, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "shard"
    line = b'{"id":"u","text":"' + b"x" * 65517 + "中文末".encode() + b'"}\n'
    path.write_bytes(compress(b" " * shift + line))
    (document,) = documents(read(path))
    assert len(document.text) == 65520
    assert hashlib.sha256(document.text.encode()).hexdigest() == (
        "1a5ec31ebd2574eeccc05a4474b25a16dd4605f531fb5aa5ced7ffc0317ebec7"
    )


def test_rows_lines_and_offsets_run_on_over_the_members(tmp_path: Path) -> None:
    one, two, three = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    one.write_bytes(b'{"text":"a"}\n\n{"text":"b"}')
    pq.write_table(pa.table({"text": ["c", None]}), two)
    three.write_bytes(gzip.compress(b'{"text":"d"}\n{"text":5}\n'))
    shard = shard_of(one, two, three)
    records = [record for batch in shard for record in batch]
    assert [d[:3] for d in documents(records)] == [
        (0, 1, "c/s:0"),
        (1, 3, "c/s:1"),
        (2, 4, "c/s:2"),
        (4, 6, "c/s:4"),
    ]
    assert [r[:4] for r in rejected(records)] == [
        (3, 5, None, "text_null"),
        (5, 7, 39, "text_not_a_string"),
    ]
    assert shard.stored_bytes_read == sum(path.stat().st_size for path in (one, two, three))


def test_a_damaged_member_of_a_bundle_is_named(tmp_path: Path) -> None:
    good, cut = tmp_path / "good.jsonl", tmp_path / "cut.jsonl.gz"
    good.write_bytes(b'{"text":"a"}\n')
    cut.write_bytes(gzip.compress(b'{"text":"b"}\n')[:-3])
    with pytest.raises(DamagedShard, match=r"member cut\.jsonl\.gz: cut off"):
        read(good, cut)


def test_batches_end_at_a_thousand_records_or_eight_million_characters(tmp_path: Path) -> None:
    many, large = tmp_path / "many", tmp_path / "large"
    many.write_bytes(b'{"text":"a"}\n' * 2500)
    large.write_bytes(b'{"text":"%s"}\n' % (b"a" * 5_000_000) * 5)
    assert [len(batch) for batch in shard_of(many)] == [1000, 1000, 500]
    assert [len(batch) for batch in shard_of(large)] == [2, 2, 1]


def test_fields_that_are_kept_as_meta_fill_a_batch_too(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b'{"text":"a","more":"%s"}\n' % (b"a" * 5_000_000) * 5)
    assert [len(batch) for batch in shard_of(large)] == [2, 2, 1]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
_OBJECTS = st.dictionaries(
    st.sampled_from(["id", "url", "text", "lang", "date", "é"]), _VALUES, max_size=5
) | st.builds(lambda text: {"text": text}, st.text(max_size=20))


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(_OBJECTS, max_size=8),
    st.sampled_from([bytes, gzip.compress, zstd]),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_objects_written_as_lines_come_back(
    tmp_path: Path,
    objects: list[dict],
    compress: Callable[[bytes], bytes],
    step: int,
    ascii_only: bool,
) -> None:
    path = tmp_path / "shard"
    lines = "".join(json.dumps(o, ensure_ascii=ascii_only) + "\n" for o in objects).encode()
    pieces = io.BytesIO(lines)
    path.write_bytes(b"".join(compress(piece) for piece in iter(lambda: pieces.read(step), b"")))
    records = read(path)
    assert len(records) == len(objects)
    for row, (record, values) in enumerate(zip(records, objects, strict=True)):
        assert (record.row, record.line) == (row, row + 1)
        if isinstance(record, Document):
            assert record.text == values["text"]
            known = {"id": record.id, "url": record.url, "lang": record.lang, "text": record.text}
            meta = json.loads(record.meta)
            for name, value in values.items():
                if name in meta or name not in known:
                    assert meta[name] == value
                else:
                    assert known[name] == value or name == "id" or value in (None, "")
        else:
            assert not (isinstance(values.get("text"), str) and values["text"].isalnum())


def test_what_stands_before_a_cut_comes_before_the_error(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"text": "one"}\n{"text": "two"}\n', mtime=0)
    (tmp_path / "s").write_bytes(whole + whole[:-9])
    parts = iter(read_shard([tmp_path / "s"], Fields(), shard="c/s", max_record_bytes=1000))
    texts = [record.text for record in next(parts) if isinstance(record, Document)]
    assert texts[:2] == ["one", "two"]
    with pytest.raises(DamagedShard, match="cut off"):
        next(parts)
