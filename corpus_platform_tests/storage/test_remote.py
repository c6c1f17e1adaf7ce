"""Tests of what is fetched by which protocol, and what a glob over S3 finds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform.config import DownloadSettings, S3Settings, SourceSettings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage import remote
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member
from corpus_platform.storage.remote import Remote
from corpus_platform_tests import hub_server
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.s3_stub import S3Stub
from corpus_platform_tests.storage.fetching import OBJECT, OBJECT_SHA256

SETTINGS = DownloadSettings(tries=2, first_wait_seconds=0.001, timeout_seconds=5.0)


@pytest.fixture
def stub(s3_keys: None) -> Iterator[S3Stub]:
    with S3Stub() as stub:
        yield stub


def _remote(stub: S3Stub | None = None) -> Remote:
    return Remote(SETTINGS, S3Settings(endpoint_url=stub.url) if stub else None)


def _glob(stub: S3Stub, **source: object) -> list[Listed]:
    return list(_remote(stub).glob(SourceSettings.model_validate(source)))


def test_a_glob_over_s3_finds_keys_with_sizes_versions_and_sidecars(stub: S3Stub) -> None:
    stub.objects = {
        "in/2026-40/a.jsonl": OBJECT,
        "in/2026-40/a.jsonl.sha256": OBJECT_SHA256.encode(),
        "in/2026-44/deep/b.jsonl": b"b",
        "in/2026-44/c.txt": b"c",
        "elsewhere/2026-44/d.jsonl": b"d",
    }
    assert _glob(stub, glob="s3://crawls/in/{crawl}/**/*.jsonl") == [
        Listed(
            "2026-40",
            "a.jsonl",
            Member(
                "s3://crawls/in/2026-40/a.jsonl",
                1000,
                version=stub.etag("in/2026-40/a.jsonl"),
                sidecar="s3://crawls/in/2026-40/a.jsonl.sha256",
            ),
        ),
        Listed(
            "2026-44",
            "deep/b.jsonl",
            Member("s3://crawls/in/2026-44/deep/b.jsonl", 1, version='"92eb5ffee6ae2fec3ad71c777531578f"'),
        ),
    ]  # fmt: skip
    assert {r.query["prefix"] for r in stub.requests} == {"in/"}


def test_keys_of_s3_that_are_no_names_of_files_are_names_of_shards(stub: S3Stub) -> None:
    keys = ["p/../../x", "p/a\nb", "p/" + "y" * 900]
    stub.objects = dict.fromkeys(keys, b"x")
    found = _glob(stub, glob="s3://crawls/p/**/*", crawl="c")
    assert sorted(f.member.location for f in found) == sorted(f"s3://crawls/{k}" for k in keys)
    assert len({f.key for f in found}) == 3
    assert all(f.key.isprintable() for f in found)


def test_an_excluded_key_is_left_out(stub: S3Stub) -> None:
    stub.objects = {"c/a.jsonl": b"", "c/a.tmp.jsonl": b""}
    found = _glob(stub, glob="s3://crawls/{crawl}/*", exclude=["*.tmp.jsonl"])
    assert [f.key for f in found] == ["c/a.jsonl"]


def test_each_scheme_is_fetched_by_its_own_protocol(
    stub: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.objects = {"o": OBJECT}
    monkeypatch.setenv("HF_TOKEN", "hf_a-secret")
    with HttpServer({"/o": Served(OBJECT)}) as server, hub_server.serve({"o.txt": OBJECT}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.token = "hf_a-secret"
        locations = [
            "s3://crawls/o",
            f"{server.url}/o",
            f"hf://datasets/owner/data@{hub.commit}/o.txt",
        ]
        for number, location in enumerate(locations):
            target = tmp_path / str(number)
            got = _remote(stub).get_file(Member(location), target, read=lambda _: None)
            assert (got.sha256, got.transferred) == (OBJECT_SHA256, 1000)
            assert target.read_bytes() == OBJECT
            assert _remote(stub).get_bytes(location, max_bytes=1000) == OBJECT
        assert "hf_a-secret" in hub.tokens("hub")
        assert hub.tokens("cdn") == {None}
        assert not any("authorization" in r.headers for r in server.requests)


def test_another_scheme_is_refused_by_name_and_without_its_password() -> None:
    with pytest.raises(SettingsError, match=r"ftp://host/a: ftp:// cannot be fetched; http") as e:
        _remote().get_bytes("ftp://me:secret@host/a?sig=5ec2e7", max_bytes=9)
    assert "secret" not in str(e.value)
    assert "5ec2e7" not in str(e.value)


def test_a_small_file_of_this_machine_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"12345")
    assert _remote().get_bytes(str(tmp_path / "list"), max_bytes=5) == b"12345"
    with pytest.raises(StorageError, match="more than the 4 bytes"):
        _remote().get_bytes(str(tmp_path / "list"), max_bytes=4)
    with pytest.raises(StorageError, match="gone: cannot be read: No such file"):
        _remote().get_bytes(str(tmp_path / "gone"), max_bytes=4)
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(StorageError, match="pipe: cannot be read: a pipe or a device; name a file"):
        _remote().get_bytes(str(tmp_path / "pipe"), max_bytes=4)


def test_waits_between_tries_can_be_ended_by_the_caller(tmp_path: Path) -> None:
    waits: list[float] = []
    waiting = Remote(DownloadSettings(tries=3, first_wait_seconds=0.5))
    waiting.sleep = waits.append
    busy = HttpServer({"/o": Served(OBJECT)}, Twist(503), Twist(503), Twist(503))
    with busy as server, pytest.raises(StorageError, match="given up after 3 tries"):
        waiting.get_file(Member(f"{server.url}/o"), tmp_path / "o", read=lambda _: None)
    assert len(waits) == 2


def test_a_missing_object_is_refused_for_good(stub: S3Stub, tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match="crawls/gone"):
        _remote(stub).get_file(Member("s3://crawls/gone"), tmp_path / "x", read=lambda _: None)


def test_a_glob_over_more_objects_than_fit_says_the_way_out(
    stub: S3Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_OBJECTS", 2)
    stub.objects = {"c/a.jsonl": b"", "c/b.jsonl": b""}
    assert len(_glob(stub, glob="s3://crawls/{crawl}/*")) == 2
    stub.objects["c/c.jsonl"] = b""
    with pytest.raises(SettingsError, match=r"s3://crawls/: 2 objects or more .* a longer one"):
        _glob(stub, glob="s3://crawls/{crawl}/*")


def test_waits_for_a_small_file_can_be_ended_by_the_caller() -> None:
    waits: list[float] = []
    with HttpServer({"/list": Served(b"x")}) as server:
        server.twists = [Twist(503)]
        one = _remote()
        one.sleep = waits.append
        assert one.get_bytes(f"{server.url}/list", max_bytes=9) == b"x"
    assert len(waits) == 1


def test_in_a_hurry_a_silent_s3_is_given_up_by_the_settings(stub: S3Stub) -> None:
    def patient(*_: object) -> None:
        raise AssertionError("a client that knows no timeouts")

    stub.objects = {"c/a.jsonl": b""}
    usual = Remote(SETTINGS, S3Settings(endpoint_url=stub.url), connect=patient)
    found = usual.hurried().glob(SourceSettings(glob="s3://crawls/{crawl}/*"))
    assert [file.key for file in found] == ["c/a.jsonl"]
