"""The sample is real, spread over two crawls in mixed containers, and the same every time."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from backports import zstd

from corpus_platform.errors import UsageError
from corpus_platform.stages import sample
from corpus_platform.stages.documentation import Kind, Page
from corpus_platform.stages.sample import KindCount, SampleReport, later_version, make_sample

FILES = [
    "crawl=2026-40/part-00000.jsonl.zst",
    "crawl=2026-40/part-00001.jsonl.gz",
    "crawl=2026-40/part-00002.parquet",
    "crawl=2026-40/part-00003.jsonl.zst",
    "crawl=2026-40/part-00004.jsonl.gz",
    "crawl=2026-40/part-00005.parquet",
    "crawl=2026-44/part-00000.jsonl.zst",
    "crawl=2026-44/part-00001.parquet",
]


def _records(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    data = path.read_bytes()
    plain = zstd.decompress(data) if path.suffix == ".zst" else gzip.decompress(data)
    return [json.loads(line) for line in plain.splitlines()]


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def _use(monkeypatch: pytest.MonkeyPatch, *kinds: tuple[str, float, list[Page]]) -> None:
    made = [Kind(name, share, lambda pages=pages: iter(pages)) for name, share, pages in kinds]
    monkeypatch.setattr(sample, "installed_documentation", lambda: made)


def _pages(kind: str, count: int) -> list[Page]:
    return [
        Page(f"{kind}:{n}", f"Page {n} of release 1.{n} of 2024. ".ljust(100, "x"))
        for n in range(count)
    ]


REAL = pytest.mark.xdist_group("sample")  # what is installed here is read once, and once again


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> SampleReport:
    return make_sample(tmp_path_factory.mktemp("real"), target_bytes=400_000)


@REAL
def test_the_documentation_of_this_machine_fills_the_target(real: SampleReport) -> None:
    assert 380_000 <= real.text_bytes <= 400_000
    assert real.short_of_target == 0


@REAL
def test_the_shards_hold_what_the_report_says(real: SampleReport) -> None:
    found = [(f, len(_records(real.folder / f)), (real.folder / f).stat().st_size) for f in FILES]
    assert [(s.file, s.documents, s.file_bytes) for s in real.shards] == found
    assert sorted(_files(real.folder)) == FILES


@REAL
def test_records_have_an_id_of_their_own_a_url_and_a_text(real: SampleReport) -> None:
    records = [record for file in FILES for record in _records(real.folder / file)]
    assert {tuple(record) for record in records} == {("id", "url", "text")}
    assert len({record["id"] for record in records}) == len(records)
    assert min(len(record["text"].strip()) for record in records) >= 50
    assert max(len(record["text"].encode()) for record in records) <= 200_000


@REAL
def test_no_url_names_a_place_of_this_machine(real: SampleReport) -> None:
    urls = [record["url"] for file in FILES for record in _records(real.folder / file)]
    assert [url for url in urls if ":/" in url or ".." in url] == []


@REAL
def test_a_second_call_leaves_the_files_as_they_are(real: SampleReport) -> None:
    paths = [real.folder / file for file in FILES]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    assert make_sample(real.folder, target_bytes=real.target_bytes) == real
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    assert sorted(_files(real.folder)) == FILES


def test_a_damaged_shard_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, ("pages", 1.0, _pages("a", 2000)))
    make_sample(tmp_path, target_bytes=100_000)
    whole = _files(tmp_path)
    (tmp_path / FILES[2]).write_bytes(b"damaged")
    make_sample(tmp_path, target_bytes=100_000)
    assert _files(tmp_path) == whole


def test_the_second_crawl_meets_some_pages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = _pages("a", 2000)
    _use(monkeypatch, ("pages", 1.0, pages))
    report = make_sample(tmp_path, target_bytes=1_000_000)
    first = {r["url"]: r["text"] for file in FILES[:6] for r in _records(tmp_path / file)}
    second = [r for file in FILES[6:] for r in _records(tmp_path / file)]
    again = [record for record in second if record["url"] in first]
    changed = [record for record in again if record["text"] != first[record["url"]]]
    assert (len(again) - len(changed), len(changed)) == (
        report.met_again,
        report.met_again_changed,
    )
    assert 20 <= report.met_again <= 75  # 3 % of about 1500
    assert 20 <= report.met_again_changed <= 75
    assert Counter(first | {r["url"]: "" for r in second}).keys() == {page.url for page in pages}


def test_every_page_is_in_a_shard_once_or_counted_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [*_pages("a", 300), Page("a:short", "Too short."), Page("a:bad", None)]
    _use(monkeypatch, ("pages", 1.0, pages))
    report = make_sample(tmp_path, target_bytes=1_000_000)
    assert report.kinds == (KindCount("pages", 300, 30_000),)
    assert (report.left_out_short, report.left_out_unreadable) == (1, 1)
    assert report.documents == 300 + report.met_again + report.met_again_changed


def test_a_kind_stops_at_its_share_and_the_last_fills_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = (
        ("many", 0.2, _pages("a", 99)),
        ("few", 0.4, _pages("b", 1)),
        ("last", 0.4, _pages("c", 99)),
    )
    _use(monkeypatch, *kinds)
    report = make_sample(tmp_path, target_bytes=1_000)
    assert [kind.documents for kind in report.kinds] == [2, 1, 7]


def test_a_machine_with_little_documentation_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, ("pages", 1.0, _pages("a", 3)))
    report = make_sample(tmp_path, target_bytes=10_000)
    assert (report.text_bytes, report.short_of_target) == (300, 9_700)


def test_no_more_is_read_than_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def pages() -> Iterator[Page]:
        for page in _pages("a", 100):
            read.append(page.url)
            yield page

    monkeypatch.setattr(sample, "installed_documentation", lambda: [Kind("pages", 1.0, pages)])
    make_sample(tmp_path, target_bytes=500)
    assert read == ["a:0", "a:1", "a:2", "a:3", "a:4", "a:5"]


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("Release 2.9.1 of May.", "Release 2.10.1 of May."),
        ("Copyright 2019 the authors, 2020.", "Copyright 2020 the authors, 2020."),
        ("Version 1.0, 2024.\n", "Version 1.1, 2025.\n"),
        ("No number.\n", "No number.\n\nLast updated: 26 October 2026\n"),
    ],
)
def test_a_later_version_counts_up_or_gets_a_date(text: str, later: str) -> None:
    assert later_version(text) == later


def test_progress_tells_what_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int | None]] = []
    _use(monkeypatch, ("pages", 1.0, _pages("a", 3)))
    make_sample(tmp_path, target_bytes=300, progress=lambda *what: told.append(what))
    assert told == [("read pages", 300, 300), *(("write shards", n, 8) for n in range(1, 9))]


def test_a_target_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="target_bytes is 0"):
        make_sample(tmp_path, target_bytes=0)
