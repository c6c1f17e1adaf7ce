"""A listing names files by URL or path, and nothing that it may not: each refusal says which entry."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.config import SourceSettings
from corpus_platform.errors import CorpusError, SettingsError, StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.storage import listings
from corpus_platform.storage.globs import excluded
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.listings import listing_location, read_listing
from corpus_platform.storage.registry import Member

A, B = "a" * 64, "b" * 64
REMOTE = "https://host/c1/shards.json?Signature=secret"
LOCAL = "/data/c1/shards.txt"


def _gzipped(data: bytes) -> bytes:
    """Compress without the time, which would make other names of tests in each process."""
    return gzip.compress(data, mtime=0)


class Found(NamedTuple):
    """What the tests compare."""

    key: str
    location: str


def _read(text: str | bytes | list | dict, at: str = REMOTE, **source: object) -> list[Listed]:
    if isinstance(text, list | dict):
        text = json.dumps(text)
    data = text.encode() if isinstance(text, str) else text
    chosen = SourceSettings.model_validate({"listing": "x", "crawl": "c1", **source})
    return read_listing(data, location=at, source=chosen)


def _found(text: str | bytes | list | dict, at: str = REMOTE, **source: object) -> list[Found]:
    return [Found(f.key, f.member.location) for f in _read(text, at, **source)]


def _fault(text: str | bytes | list | dict, at: str = REMOTE, **source: object) -> str:
    with pytest.raises(CorpusError) as refused:
        _read(text, at, **source)
    message = str(refused.value)
    assert "secret" not in message
    assert len(message) < 700
    return message


TWO = [
    Found("c1/a.jsonl", "https://host/c1/a.jsonl"),
    Found("c1/x/b.parquet", "https://host/c1/x/b.parquet"),
]


@pytest.mark.parametrize(
    "text",
    [
        "https://host/c1/a.jsonl\nhttps://host/c1/x/b.parquet\n",
        "a.jsonl\nx/b.parquet",
        "# made by hand\r\n\r\n  a.jsonl\t\r\n\r\nx/b.parquet\r\n",
        "\ufeffa.jsonl\nx/b.parquet\n",
        "./a.jsonl\nx/./y/../b.parquet\n",
        "HTTPS://host/c1/a.jsonl\nx/b.parquet\nx/b.parquet\n",
        '["https://host/c1/a.jsonl", "x/b.parquet"]',
        '\ufeff\n {"shards": ["a.jsonl", {"url": "x/b.parquet"}], "made": "today"}',
        '{"files": [{"path": "a.jsonl"}, {"path": "ignored", "url": "x/b.parquet"}]}',
        '{"urls": ["a.jsonl", "https://host/c1/x/b.parquet"]}',
        '{"url": "a.jsonl"}\r\n\r\n{"url": "x/b.parquet", "rows": [[1], {}]}\r\n',
        _gzipped(b"a.jsonl\n") + _gzipped(b"x/b.parquet\n"),
        _gzipped(b'["a.jsonl", "x/b.parquet"]'),
    ],
)
def test_every_form_names_the_same_files(text: str | bytes) -> None:
    assert _found(text) == TWO


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# nothing yet\n", "[]", '{"shards": []}', b"\xef\xbb\xbf"]
)
def test_a_listing_may_be_empty(text: str | bytes) -> None:
    assert _read(text) == []


def test_what_an_entry_says_of_its_file_is_kept() -> None:
    rows = [
        {"url": "a.gz", "sha256": A.upper(), "bytes": 7, "crawl": "c2", "name": "x/y.gz"},
        {"url": "b.gz", "size": 0, "sha256": None, "crawl": None, "name": None},
    ]
    assert _read(rows) == [
        Listed("c2", "x/y.gz", Member("https://host/c1/a.gz", 7, A)),
        Listed("c1", "b.gz", Member("https://host/c1/b.gz", 0, None)),
    ]


def test_a_list_of_sha256sum_is_a_listing_with_hashes() -> None:
    text = f"{A}  a.gz\n{B.upper()} *x/b c.gz\nSHA256 (d.gz) = {A}\n"
    assert [(f.name, f.member.sha256) for f in _read(text)] == [
        ("a.gz", A),
        ("x/b c.gz", B),
        ("d.gz", A),
    ]


def test_the_crawl_of_an_entry_wins_over_that_of_its_listing_and_of_the_source() -> None:
    listing = {"crawl": "c8", "shards": ["a", {"url": "b", "crawl": "c9"}]}
    assert [f.crawl for f in _read(listing, crawl="c7")] == ["c8", "c9"]
    assert [f.crawl for f in _read(["a"], crawl="c7")] == ["c7"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://else/x/c1/seg/a.gz", "seg/a.gz"),
        ("https://else/x/crawl=c1/seg/a.gz?t=1", "seg/a.gz"),
        ("https://else/c1/c1/a.gz", "c1/a.gz"),
        ("https://else/x/c1", "x/c1"),
        ("https://else/xc1/a.gz", "xc1/a.gz"),
        ("https://host/base/y/a.gz", "y/a.gz"),
        ("y/a.gz", "y/a.gz"),
        ("y/c1/a.gz", "a.gz"),
        ("https://host/other//a.gz", "other/a.gz"),
        ("https://host/base/a%20b%C3%A4.gz", "a bä.gz"),
        ("https://host/base/a%FF.gz", "a%FF.gz"),
        ("s3://c1/x/a.gz", "x/a.gz"),
        ("s3://bucket/x/a%20b.gz", "x/a%20b.gz"),
    ],
)
def test_a_name_is_the_path_below_the_crawl_or_the_base(url: str, name: str) -> None:
    (file,) = _read([url], base_url="https://host/base")
    assert file.name == name


def test_relative_entries_lie_below_base_url() -> None:
    paths = "crawl-data/CC-MAIN-2026-12/segments/1.5/wet/x.warc.wet.gz\n"
    crawl = {"crawl": "CC-MAIN-2026-12"}
    below = "crawl-data/CC-MAIN-2026-12/segments/1.5/wet/x.warc.wet.gz"
    key = "CC-MAIN-2026-12/segments/1.5/wet/x.warc.wet.gz"
    for base in (
        "https://data.commoncrawl.org/",
        "https://data.commoncrawl.org",
        "s3://commoncrawl/",
    ):
        found = _found(gzip.compress(paths.encode()), base_url=base, **crawl)
        assert found == [Found(key, f"{base.rstrip('/')}/{below}")]


def test_relative_entries_lie_in_the_folder_of_their_listing() -> None:
    assert _found("a.gz", "s3://bucket/x/list.txt") == [Found("c1/a.gz", "s3://bucket/x/a.gz")]
    assert _found("a.gz", "s3://bucket/list.txt") == [Found("c1/a.gz", "s3://bucket/a.gz")]
    assert _found("a.gz", "http://h:80") == [Found("c1/a.gz", "http://h:80/a.gz")]
    assert _found("a.gz", "http://h/l?x=/y/z") == [Found("c1/a.gz", "http://h/a.gz")]
    assert _found("x/a#1?.gz", "/data/list.txt") == [Found("c1/x/a#1?.gz", "/data/x/a#1?.gz")]
    assert _found("a.gz", "/list.txt") == [Found("c1/a.gz", "/a.gz")]


def test_a_listing_on_this_machine_names_files_anywhere() -> None:
    text = (
        "../x.gz".replace("../", "/mnt/")
        + "\nfile:///mnt/a%20b.gz\n//mnt/./c1/../z.gz\nhttp://h/u.gz"
    )
    assert _found(text, LOCAL) == [
        Found("c1/mnt/x.gz", "/mnt/x.gz"),
        Found("c1/mnt/a b.gz", "/mnt/a b.gz"),
        Found("c1/mnt/z.gz", "/mnt/z.gz"),
        Found("c1/u.gz", "http://h/u.gz"),
    ]


def test_a_listing_elsewhere_may_be_of_files_in_a_folder_that_the_settings_name() -> None:
    found = _found(f"{A}  x/a.gz\n", base_url="file:///mnt/mirror")
    assert found == [Found("c1/x/a.gz", "/mnt/mirror/x/a.gz")]


def test_what_no_url_may_have_is_escaped_and_a_query_stays() -> None:
    text = "ä b%.gz?sig=a%2Fb c/\nx%20y.gz\n"
    assert _found(text) == [
        Found("c1/ä b%25.gz", "https://host/c1/%C3%A4%20b%25.gz?sig=a%2Fb%20c/"),
        Found("c1/x y.gz", "https://host/c1/x%20y.gz"),
    ]
    assert [f.name for f in _read(text)] == ["ä b%.gz", "x y.gz"]


def test_a_sidecar_lies_beside_its_file_before_the_query() -> None:
    urls = ["https://host/a.gz?sig=1", "s3://bucket/a/b.gz", "c.gz"]
    assert [f.member.sidecar for f in _read(urls, sidecars=True)] == [
        "https://host/a.gz.sha256?sig=1",
        "s3://bucket/a/b.gz.sha256",
        "https://host/c1/c.gz.sha256",
    ]
    assert [f.member.sidecar for f in _read(["x?.gz"], LOCAL, sidecars=True)] == [
        "/data/c1/x?.gz.sha256"
    ]
    assert [f.member.sidecar for f in _read(urls)] == [None, None, None]


REMOTE_ENTRIES = [
    ("file:///etc/passwd", "may not name files of this machine"),
    ("FILE:///etc/passwd", "may not name files of this machine"),
    ("/etc/passwd", "may not name files of this machine"),
    ("//other.host/a.gz", "may not name files of this machine"),
]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        *REMOTE_ENTRIES,
        ("../a.gz", "its .. leads out of the folder"),
        ("x/../../a.gz", "its .. leads out of the folder"),
        ("%2e%2E/a.gz", "its .. leads out of the folder"),
        ("x%2F..%2F..%2Fa.gz", "its path has a part . or .."),
        ("https://host/x/../a.gz", "its path has a part . or .."),
        ("https://host/x/.", "it names a folder"),
        ("https://host/x/%2e%2e/a.gz", "its path has a part . or .."),
        ("s3://bucket/../a.gz", "its path has a part . or .."),
        ("https://user:secret@host/a.gz", "without user and password"),
        ("https://user:secret@[::1/a.gz", "without user and password"),
        ("https://host\\@other.example/a.gz", "without user and password"),
        ("https://hö.st/a.gz", "without user and password"),
        ("https://host:99999/a.gz", "without user and password"),
        ("https://host:/a.gz", "without user and password"),
        ("https:///a.gz", "without user and password"),
        ("s3://key:secret@bucket/a.gz", "without user, password and port"),
        ("s3:///a.gz", "without user, password and port"),
        ("s3://bucket/a?versionId=secret", "it has ? or #"),
        ("https://host/a.gz#secret", "it has # or \\"),
        ("https://host", "it is empty"),
        ("https://host/?secret", "it is empty"),
        ("https://host/x/?secret", "it names a folder"),
        ("https://host/x/", "it names a folder"),
        ("x/", "it names a folder"),
        ("x/..", "it names a folder"),
        ("https:/host/a", "https: cannot be fetched"),
        ("ftp://host/a", "ftp: cannot be fetched"),
        ("hf://datasets/o/n@0/a", "hf: cannot be fetched"),
        ("javascript:alert(1)", "javascript: cannot be fetched"),
        ("C:\\x", "c: cannot be fetched"),
        ("a%00b", "the character '\\x00'"),
        ("a%0Ab", "the character '\\n'"),
        ("a\x1bb", "the character '\\x1b'"),
        ("a\rb", "the character '\\r'"),
        ("a\x9bb", "the character '\\x9b'"),
        ("x" * 4097, "it has 4097 bytes, limit 4096"),
        ("ä" * 2049, "it has 4098 bytes, limit 4096"),
        ("d41d8cd98f00b204e9800998ecf8427e  a.gz", "a sha256 has 64 hexadecimal digits"),
        (A + B, "a sha256 has 64 hexadecimal digits"),
        (A, "a sha256 has 64 hexadecimal digits"),
    ],
)
def test_an_entry_that_may_not_be_is_refused_with_its_line(entry: str, fault: str) -> None:
    message = _fault(f"ok.gz\n\n{entry}\n")
    assert message.startswith("https://host/c1/shards.json: line 3: ")
    assert fault in message


@pytest.mark.parametrize(("entry", "fault"), REMOTE_ENTRIES)
def test_a_listing_in_s3_names_no_file_of_this_machine_either(entry: str, fault: str) -> None:
    assert fault in _fault([entry], "s3://bucket/list.json")


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("../a.gz", "its .. leads out of the folder"),
        ("file://host/a", "file:///path is wanted, without a host"),
        ("file:a", "file:///path is wanted, without a host"),
        ("file:///a%00", "the character '\\x00'"),
        ("a\x00b", "the character '\\x00'"),
        ("x:y.gz", "with ./ before one that has a colon"),
        ("/mnt/", "it names a folder"),
        ("//.", "it names a folder"),
        ("/mnt/..", "it names a folder"),
        ("file:///.", "it names a folder"),
    ],
)
def test_a_listing_on_this_machine_is_not_believed_everything(entry: str, fault: str) -> None:
    assert fault in _fault([entry], LOCAL)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (7, "7: a URL, or an object with `url`, is wanted"),
        (None, "None: a URL, or an object"),
        ([], "[]: a URL, or an object"),
        ("", "it is empty"),
        ({}, "a text `url` (or `path`) is wanted, found None"),
        ({"link": "x"}, "found None among the keys link"),
        ({"url": 7}, "found 7"),
        ({"url": ["a"]}, "found ['a']"),
        ({"url": "a", "sha256": "ab"}, "sha256 'ab': 64 hexadecimal digits are wanted"),
        ({"url": "a", "sha256": "sha256:" + A}, "64 hexadecimal digits are wanted"),
        ({"url": "a", "sha256": "g" * 64}, "64 hexadecimal digits are wanted"),
        ({"url": "a", "sha256": 1}, "sha256 1: 64 hexadecimal digits"),
        ({"url": "a", "bytes": -1}, "bytes -1: a whole number, 0 or more"),
        ({"url": "a", "bytes": 1.5}, "bytes 1.5: a whole number"),
        ({"url": "a", "size": "7"}, "bytes '7': a whole number"),
        ({"url": "a", "size": True}, "bytes True: a whole number"),
        ({"url": "a", "bytes": 2**63}, "bytes 9223372036854775808: a whole number"),
        ({"url": "a", "crawl": "../x"}, "crawl '../x': a name of at most 100"),
        ({"url": "a", "crawl": 2026}, "crawl 2026: a name of at most 100"),
        ({"url": "a", "crawl": "c" * 101}, "a name of at most 100"),
        ({"url": "a", "name": "../x"}, "name '../x': it has an empty part, . or .."),
        ({"url": "a", "name": "/x"}, "name '/x': it has an empty part"),
        ({"url": "a", "name": "x//y"}, "name 'x//y': it has an empty part"),
        ({"url": "a", "name": ""}, "name '': it is empty"),
        ({"url": "a", "name": "x\ny"}, "name 'x\\ny': it has the character '\\n'"),
        ({"url": "a", "name": 7}, "name 7: a text is wanted"),
        ({"url": "a", "name": "n" * 4097}, "it has 4097 bytes, limit 4096"),
    ],
)
def test_a_row_that_may_not_be_is_refused_with_its_number(row: object, fault: str) -> None:
    message = _fault(["ok.gz", row])
    assert message.startswith("https://host/c1/shards.json: ")
    assert "entry 2: " in message
    assert fault in message


def test_half_a_character_is_no_text() -> None:
    assert "not JSON" in _fault('["ok.gz", "\\ud800"]')


def test_an_entry_of_no_crawl_says_where_to_name_it() -> None:
    chosen = SourceSettings(listing="x")
    with pytest.raises(
        SettingsError, match=r"line 1: 'a.gz': of no crawl; give the entry a `crawl`"
    ):
        read_listing(b"a.gz", location=REMOTE, source=chosen)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<!DOCTYPE html><html>", "it begins with '<', as a web page does"),
        ("  <?xml version='1.0'?>", "it begins with '<', as a web page does"),
        (b"PAR1\xff\xfe\x00", "byte 4 is not UTF-8"),
        ("a.gz\n".encode("utf-16"), "byte 0 is not UTF-8"),
        (b"\x1f\x8b\x08" + b"\0" * 20, "cannot be unzipped"),
        (_gzipped(b"a.gz\n" * 100)[:-9], "cannot be unzipped"),
        (_gzipped(b"a.gz\n") + b"more", "cannot be unzipped"),
        (_gzipped(_gzipped(b"a.gz\n")), "is not UTF-8"),
        ("[", "not JSON"),
        ('["a.gz",]', "not JSON"),
        ('{"shards": ["a.gz"]', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('["a"] x', "not JSON"),
        ('{"url": "a"}\n{"url": \n', "line 2: not JSON"),
        ('{"url": "a"}\n7\n', "line 2: 7: a URL, or an object"),
        ("{}", "one list named shards, files, urls is wanted, found "),
        ('{"items": []}', "found items"),
        ('{"shards": {}}', "found shards"),
        ('{"shards": [], "urls": []}', "found shards and urls"),
    ],
)
def test_what_is_no_listing_is_refused(text: str | bytes, fault: str) -> None:
    message = _fault(text)
    assert message.startswith("https://host/c1/shards.json: ")
    assert fault in message


def test_two_entries_of_one_url_are_one_and_say_what_either_says() -> None:
    rows = [{"url": "a"}, {"url": "a", "sha256": A}, {"url": "a", "bytes": 0}, "a"]
    assert _read(rows) == [Listed("c1", "a", Member("https://host/c1/a", 0, A))]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            [{"url": "a", "sha256": A}, {"url": "a", "sha256": B}],
            f"entry 2: https://host/c1/a: its sha256 is {A} in entry 1 and {B} here",
        ),
        (
            [{"url": "a", "bytes": 1}, "a", {"url": "a", "bytes": 2}],
            "entry 3: https://host/c1/a: its bytes is 1 in entry 2 and 2 here",
        ),
        (
            ["a", {"url": "a", "crawl": "c2"}],
            "entry 2: https://host/c1/a is 'c1/a' in entry 1 and 'c2/a' here",
        ),
        (
            ["https://x/a?secret", "https://y/a"],
            "entry 2: https://y/a has the name 'a' in crawl c1, as https://x/a in entry 1;",
        ),
        (
            ["https://x/a?secret=1", {"url": "https://x/a?secret=2", "name": "b"}],
            "entry 2: https://x/a differs from entry 1 only in what follows the ?;",
        ),
    ],
)
def test_entries_that_contradict_each_other_are_both_named(rows: list, fault: str) -> None:
    assert fault in _fault(rows)


def test_a_listing_has_a_largest_size_also_when_it_was_zipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listings, "MAX_LISTING_BYTES", 10)
    assert len(_read("abc\ndef\n1\n")) == 3
    for text in (b"abc\ndef\n12\n", gzip.compress(b"a\n" * 1_000_000)):
        assert "more than 10 bytes, the limit of a listing; split it" in _fault(text)


@pytest.mark.parametrize("text", ["1\n2\n3\n", '["1", "2", "3"]', '{"url":"1"}\n' * 3, "\n" * 6])
def test_a_listing_has_a_largest_number_of_entries(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(listings, "MAX_ENTRIES", 2)
    assert "entries or more, limit 2; split the listing" in _fault(text)


FRAGMENTS = ["a", ".", "..", "/", "//", "%2e", "%", "?", "#", ":", "@", "[", "]", "\\", "\n", "\r",
    "\0", "é", "http://h", "s3://b", "file://", "{", "}", '"', ",", '"url":', "[[", "1e999", "c1",
    "SHA256 (", ") = ", A, " ", "  ", "*", "-1", "null", "\ufeff", "\u2028"]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), st.sampled_from([REMOTE, LOCAL])
)
def test_whatever_a_listing_says_it_is_read_or_refused(text: str, at: str) -> None:
    files = []
    with contextlib.suppress(SettingsError, StorageError):
        files = _read(text, at, sidecars=True)
    for file in files:
        assert not {"", ".", ".."} & set(file.name.split("/"))
        assert at == LOCAL or file.member.location.startswith(("http://", "https://", "s3://"))


def test_a_broken_file_is_a_fault_of_storage_and_a_wrong_entry_one_of_settings() -> None:
    with pytest.raises(StorageError):
        _read(gzip.compress(b"a")[:-1])
    with pytest.raises(SettingsError):
        _read("../a")


@pytest.mark.parametrize(
    ("listing", "location"),
    [
        ("shards.txt", "/corpus/shards.txt"),
        ("../{crawl}/shards.txt", "/c1/shards.txt"),
        ("/mnt/x.json", "/mnt/x.json"),
        ("file:///mnt/a%20b.json", "/mnt/a b.json"),
        ("s3://bucket/{crawl}/x.json", "s3://bucket/c1/x.json"),
        ("HTTPS://host/{crawl}/x.json?sig=1", "https://host/c1/x.json?sig=1"),
    ],
)
def test_the_listing_of_a_source_is_a_url_or_an_absolute_path(listing: str, location: str) -> None:
    source = SourceSettings(listing=listing, crawl="c1")
    assert listing_location(source, Path("/corpus")) == location


@pytest.mark.parametrize(
    ("listing", "fault"),
    [
        ("ftp://host/x", "ftp: cannot be fetched"),
        ("hf://datasets/x", "hf: cannot be fetched"),
        ("https://user:secret@host/x", "without user and password"),
        ("file://host/x", "file:///path is wanted"),
        ("", "it is empty"),
        ("a\nb", "the character"),
    ],
)
def test_a_listing_that_cannot_be_read_is_refused(listing: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault) as refused:
        listing_location(SourceSettings(listing=listing), Path("/corpus"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "base", ["s3://", "https://host:99999/x", "file://host/x", "https://h/../x"]
)
def test_a_base_that_is_no_address_is_refused(base: str) -> None:
    source = SourceSettings.model_construct(
        listing="x", crawl="c1", base_url=base.rstrip("/") + "/"
    )
    with pytest.raises(SettingsError, match="sources: base_url '"):
        read_listing(b"a", location=REMOTE, source=source)


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["tinystories", "fineweb-edu-10bt", "common-crawl"])
def test_an_example_is_a_settings_file_of_one_source(name: str) -> None:
    (source,) = load_settings(EXAMPLES / f"{name}.yaml").sources
    assert (source.huggingface is None) == (name == "common-crawl")
    assert sorted(p.stem for p in EXAMPLES.glob("*.yaml")) == [
        "common-crawl",
        "fineweb-edu-10bt",
        "tinystories",
    ]


def test_the_example_of_common_crawl_takes_the_first_file_of_each_segment() -> None:
    (source,) = load_settings(EXAMPLES / "common-crawl.yaml").sources
    where = listing_location(source, EXAMPLES)
    assert where == "https://data.commoncrawl.org/crawl-data/CC-MAIN-2026-12/wet.paths.gz"
    wet = "crawl-data/CC-MAIN-2026-12/segments/{}/wet/CC-MAIN-20260306010203-20260306040203-{}.warc.wet.gz"
    paths = [
        wet.format(s, n)
        for s in ("1.1", "1.2")
        for n in ("00000", "00001", "00010", "00999", "10000")
    ]
    files = read_listing(gzip.compress("\n".join(paths).encode()), location=where, source=source)
    taken = [
        f.name for f in files if not excluded(Path(f.member.location), Path("/"), source.exclude)
    ]
    assert len(files) == 10
    assert taken == [
        "segments/1.1/wet/CC-MAIN-20260306010203-20260306040203-00000.warc.wet.gz",
        "segments/1.2/wet/CC-MAIN-20260306010203-20260306040203-00000.warc.wet.gz",
    ]
