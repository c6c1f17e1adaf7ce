"""A dataset of the hub becomes a list of files with sizes and hashes, whatever its answers are."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from corpus_platform.config import SourceSettings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage import hub as hub_module
from corpus_platform.storage.hub import (
    access_advice,
    hub_endpoint,
    hub_token,
    list_dataset,
    resolve_url,
)
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member
from corpus_platform.storage.remote import Remote
from corpus_platform_tests.hub_server import Hub, serve

# "abc": its sha256 is from the standard (FIPS 180-2, appendix B); git's hashes are of
# `git hash-object --stdin`, of the pointer to it (version, oid and size in a line each) and of it.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
ABC_POINTER = "80d7d501c2b256023dc42e46d958b9ac2ec283ee"
ABC_OID = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# readme",
    "data/train-0.parquet": b"abc",
    "data/train-1.parquet": b"d",
    "data/x/deep.parquet": b"e",
    "data/small.jsonl": b"abc",
    "sample/10BT/000.parquet": b"f",
}


class Got(NamedTuple):
    """An answer as the lister wants it."""

    data: bytes
    headers: Mapping[str, str]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve FILES two rows a page, as the hub of the environment, without a token."""
    with serve(FILES, page_size=2) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def _source(files: str = "**/*.parquet", **more: str) -> SourceSettings:
    return SourceSettings.model_validate(
        {"huggingface": "owner/data", "files": files, "crawl": "c", **more}
    )


def _get(url: str) -> Got:
    """Get a URL, with the token of the environment, as the platform's fetchers do."""
    request = urllib.request.Request(url)
    if (token := hub_token()) is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Got(answer.read(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        raise SourceRefused(f"{url}: HTTP {error.code}") from error


def _paths(files: str) -> list[str]:
    return [listed.name for listed in list_dataset(_source(files), get=_get)]


def test_a_large_file_is_listed_with_its_hash_and_a_small_one_with_its_size(hub: Hub) -> None:
    small, large = list_dataset(_source("data/{small,train-0}.*"), get=_get)
    where = f"hf://datasets/owner/data@{hub.commit}/data"
    assert small == Listed(
        "c", "data/small.jsonl", Member(f"{where}/small.jsonl", 3, None, ABC_OID)
    )
    assert large == Listed(
        "c", "data/train-0.parquet", Member(f"{where}/train-0.parquet", 3, ABC, ABC_POINTER)
    )


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("data/*.parquet", ["data/train-0.parquet", "data/train-1.parquet"]),
        ("**/deep.parquet", ["data/x/deep.parquet"]),
        ("/sample/10BT/*.parquet", ["sample/10BT/000.parquet"]),
        ("data/train-[1-9].parquet", ["data/train-1.parquet"]),
        ("*.md", ["README.md"]),
        ("data/**/*.csv", []),
    ],
)
def test_a_pattern_chooses_files_over_all_pages(hub: Hub, pattern: str, paths: list[str]) -> None:
    assert _paths(pattern) == paths


def test_only_the_folder_that_the_pattern_begins_with_is_asked_for(hub: Hub) -> None:
    _paths("sample/10BT/*.parquet")
    asked = [request.target for request in hub.requests]
    assert asked == [
        "/api/datasets/owner/data/revision/main?expand=sha",
        f"/api/datasets/owner/data/tree/{hub.commit}/sample%2F10BT?recursive=true",
    ]


def test_a_new_commit_moves_locations_and_leaves_versions(hub: Hub) -> None:
    (before,) = list_dataset(_source("data/train-0.parquet"), get=_get)
    hub.push({**FILES, "README.md": b"# better"})
    (after,) = list_dataset(_source("data/train-0.parquet"), get=_get)
    assert before.member.location != after.member.location
    assert before.member.version == after.member.version
    assert before.key == after.key == "c/data/train-0.parquet"


def test_a_named_commit_is_listed_as_it_was(hub: Hub) -> None:
    old = hub.commit
    hub.push({"data/new.parquet": b"n"})
    assert _paths("**/*.parquet") == ["data/new.parquet"]
    listed = list_dataset(_source("data/*.parquet", revision=old), get=_get)
    assert [file.name for file in listed] == ["data/train-0.parquet", "data/train-1.parquet"]


def test_a_listed_file_is_fetched_by_its_location(hub: Hub) -> None:
    hub.push({"a b/100%#?.parquet": b"abc", "ü=1/x.jsonl": b"def"})
    listed = list_dataset(_source("**/*"), get=_get)
    assert [file.name for file in listed] == ["a b/100%#?.parquet", "ü=1/x.jsonl"]
    assert listed[0].member.location.endswith("/a%20b/100%25%23%3F.parquet")
    assert [_get(resolve_url(f.member.location)).data for f in listed] == [b"abc", b"def"]


def test_a_token_goes_to_the_hub_and_never_to_the_storage_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve(FILES, token="hf_secret") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", " hf_secret\n")
        (file,) = list_dataset(_source("data/train-0.parquet"), get=_get)
        assert _get(resolve_url(file.member.location)).data == b"abc"
        assert (hub.tokens("hub"), hub.tokens("cdn")) == ({"hf_secret"}, {None})


def test_the_platforms_own_requests_list_and_fetch_a_gated_dataset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serve(FILES, token="hf_secret", private=True, page_size=2) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        remote = Remote()
        file, *_ = list_dataset(_source("data/*.parquet"), get=remote.get_hub)
        got = remote.get_file(file.member, tmp_path / "a", read=lambda _: None)
        assert ((tmp_path / "a").read_bytes(), got.bytes, got.sha256) == (b"abc", 3, ABC)
        assert (hub.tokens("hub"), hub.tokens("cdn")) == ({"hf_secret"}, {None})


def test_the_storage_serves_ranges_of_what_did_not_change(hub: Hub) -> None:
    url = resolve_url(f"hf://datasets/owner/data@{hub.commit}/data/train-0.parquet")
    for tag, status, body in ((f'"{ABC}"', 206, b"bc"), ('"other"', 200, b"abc")):
        request = urllib.request.Request(url, headers={"Range": "bytes=1-", "If-Range": tag})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert (answer.status, answer.read()) == (status, body)


def test_a_private_dataset_names_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(FILES, token="hf_secret", private=True) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        with pytest.raises(SourceRefused, match=r"owner/data \(main\): .*HTTP 401; .*set HF_TOKEN"):
            list_dataset(_source(), get=_get)
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises(SourceRefused, match=r"HTTP 401; HF_TOKEN is set: ") as refused:
            list_dataset(_source(), get=_get)
        assert "hf_wrong" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"revision": "v9"}, {"files": "nowhere/*.parquet"}])
def test_what_is_not_there_names_what_to_check(hub: Hub, wrong: dict[str, str]) -> None:
    with pytest.raises(SourceRefused, match="HTTP 404; check its name, `revision` and `files`"):
        list_dataset(_source(**wrong), get=_get)


def test_a_file_of_a_gated_dataset_names_where_to_accept_its_terms(hub: Hub) -> None:
    assert f"accept its terms at {hub.endpoint}/datasets/o/n and set HF_TOKEN" in access_advice(
        "o/n"
    )


# Answers that a hub may give but should not; `hub_with` gives them without a server.


def _row(path: object = "a.parquet", **more: object) -> dict[str, object]:
    return {"type": "file", "path": path, "oid": ABC_OID, "size": 3, **more}


def _hub_with(*pages: object, link: str = "") -> Callable[[str], Got]:
    """Return a hub whose tree has these pages, linked by `link`."""
    left = list(pages)

    def get(url: str) -> Got:
        if "/revision/" in url:
            return Got(json.dumps({"sha": COMMIT}).encode(), {})
        page = left.pop(0) if len(left) > 1 else left[0]
        data = page if isinstance(page, bytes) else json.dumps(page).encode()
        return Got(data, {"link": link} if link else {})

    return get


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (_row("../etc/passwd"), "an empty part, . or .."),
        (_row("/etc/passwd"), "an empty part, . or .."),
        (_row("a//b"), "an empty part, . or .."),
        (_row("a/./b"), "an empty part, . or .."),
        (_row(""), "an empty part, . or .."),
        (_row("a\0b"), "the character '\\x00'"),
        (_row("a\x9bb"), "the character '\\x9b'"),
        (_row("ä" * 2049), "it has 4098 bytes, limit 4096"),
        (_row(size=-1), "its size is -1"),
        (_row(size=2**63), "its size is 9223372036854775808"),
        (_row(size="3"), "Expected `int`"),
        (_row(size=1.5), "Expected `int`"),
        (_row(path=7), "Expected `str`"),
        (_row(oid="../x"), "its oid is '../x'"),
        (_row(lfs={"oid": "00", "size": 1}), "its sha256 is '00'"),
        (_row(lfs={"oid": ABC, "size": -1}), "its size is -1"),
        (_row(lfs="yes"), "Expected `object | null`"),
        ({"type": "file"}, "missing required field"),
        ([], "Expected `object`"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_fault(row: object, fault: str) -> None:
    with pytest.raises(StorageError) as refused:
        list_dataset(_source(), get=_hub_with([row]))
    assert fault in str(refused.value)
    assert "check HF_ENDPOINT" in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>sign in</html>",
        b"{}",
        b"null",
        b"[" * 200_000,
        b'["\xff"]',
        b'[{"path": "\\ud800"',
    ],
    ids=["empty", "html", "object", "null", "deep", "not utf-8", "surrogate"],
)
def test_an_answer_that_is_no_tree_is_refused(body: bytes) -> None:
    with pytest.raises(StorageError, match="not how the hub's API answers"):
        list_dataset(_source(), get=_hub_with(body))


def test_a_file_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(StorageError, match=r"'a.parquet': it is listed twice"):
        list_dataset(_source(), get=_hub_with([_row(), _row()]))


def test_folders_and_unknown_kinds_are_no_files() -> None:
    rows = [_row("d", type="directory"), _row("u", type="unknown"), _row("f")]
    assert [f.name for f in list_dataset(_source("*"), get=_hub_with(rows))] == ["f"]


@pytest.mark.parametrize("commit", ["main", "0" * 39, "../" + COMMIT, ""])
def test_what_is_no_commit_is_refused(commit: str) -> None:
    with pytest.raises(StorageError, match="no commit"):
        list_dataset(_source(), get=lambda url: Got(json.dumps({"sha": commit}).encode(), {}))


@pytest.mark.parametrize(
    "link",
    [
        "http://elsewhere.example/api?cursor=1",
        "//elsewhere.example/?cursor=1",
        "http://user:secret@elsewhere.example/?cursor=1",
        "http://[::1/?cursor=1",
        "file:///etc/passwd",
        "?cursor=a b",
    ],
)
def test_a_next_page_on_another_host_is_not_asked_for(link: str) -> None:
    with pytest.raises(StorageError, match="its next page is not on this host") as refused:
        list_dataset(_source(), get=_hub_with([_row()], link=f'<{link}>; rel="next"'))
    assert "secret" not in str(refused.value)


def test_a_mirror_may_link_to_the_public_hub_and_is_asked_itself(hub: Hub) -> None:
    hub.next_host = "https://huggingface.co"
    assert _paths("data/*.parquet") == ["data/train-0.parquet", "data/train-1.parquet"]
    assert sum("cursor=" in request.target for request in hub.requests) == 2


def test_pages_that_go_round_in_a_circle_end() -> None:
    link = f'<{hub_endpoint()}/?cursor=1>; rel="next"'
    with pytest.raises(StorageError, match="its pages have no end: 2 were read"):
        list_dataset(_source(), get=_hub_with([_row("a")], [_row("b")], link=link))


def test_a_tree_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_FILES", 2)
    with pytest.raises(StorageError, match="more than 2 entries; begin `files` with a folder"):
        list_dataset(_source(), get=_hub_with([_row("a"), _row("b"), _row("c")]))


def test_the_endpoint_is_the_public_one_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    location = f"hf://datasets/o/n@{COMMIT}/data/a.parquet"
    assert resolve_url(location) == (
        f"https://huggingface.co/datasets/o/n/resolve/{COMMIT}/data/a.parquet"
    )
    monkeypatch.setenv("HF_ENDPOINT", "https://hf-mirror.com/")
    assert resolve_url(location) == (
        f"https://hf-mirror.com/datasets/o/n/resolve/{COMMIT}/data/a.parquet"
    )


@pytest.mark.parametrize(
    "value", ["mirror.example", "ftp://x", "https://me:pass@x", "https://x?a", "https://x y"]
)
def test_an_endpoint_that_is_no_address_is_refused_untold(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", value)
    with pytest.raises(SettingsError, match="HF_ENDPOINT: an address such as") as refused:
        hub_endpoint()
    assert value not in str(refused.value)


def test_a_token_that_is_none_is_refused_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_a\r\nX-Other: b")
    with pytest.raises(SettingsError, match="HF_TOKEN: ") as refused:
        hub_token()
    assert "hf_a" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", "  ")
    assert hub_token() is None


@pytest.mark.parametrize(
    "location",
    [
        "hf://datasets/o/n/a.parquet",
        "hf://datasets/o/n@main/a.parquet",
        f"hf://models/o/n@{COMMIT}/a",
        f"hf://datasets/o/n@{COMMIT}/../a",
        f"hf://datasets/o/n@{COMMIT}/%2e%2e/a",
        f"hf://datasets/o/n@{COMMIT}/a%0Ab",
        f"hf://datasets/o/n@{COMMIT}/a?b",
        "https://huggingface.co/a",
    ],
)
def test_only_a_whole_location_has_a_url(location: str) -> None:
    with pytest.raises(SettingsError, match="hf://datasets/OWNER/NAME@COMMIT/PATH is wanted"):
        resolve_url(location)
