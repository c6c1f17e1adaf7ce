"""Tests of the folder of downloads: what is here and right is not fetched, all else is, once."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.errors import SourceRefused, StorageError
from corpus_platform.storage import partial, parts
from corpus_platform.storage.downloads import Downloads
from corpus_platform.storage.registry import Member
from corpus_platform.storage.remote import Remote
from corpus_platform.storage.transfer import Fetched
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.s3_stub import S3Stub
from corpus_platform_tests.storage.fetching import BIG, OBJECT, OBJECT_SHA256, OTHER, OTHER_SHA256

SETTINGS = DownloadSettings(tries=2, first_wait_seconds=0.001, timeout_seconds=5.0)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer({"/o": Served(OBJECT)}) as server:
        yield server


def _downloads(folder: Path, *, keep: bool = False) -> Downloads:
    return Downloads(folder / "downloads", Remote(SETTINGS), keep=keep)


def _take(downloads: Downloads, member: Member, target: Path) -> Fetched:
    heard: list[int] = []
    with downloads.get(member, read=heard.append) as download:
        download.take(target)
    assert sum(heard) == download.fetched.bytes
    return download.fetched


def _left(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "downloads").iterdir() if p.is_file())


def test_a_file_stays_until_its_shard_is_stored_and_leaves_then(
    tmp_path: Path, server: HttpServer
) -> None:
    downloads, member = _downloads(tmp_path), Member(server.url + "/o")
    assert not downloads.begun(member)
    got = _take(downloads, member, tmp_path / "first")
    assert (got.sha256, got.transferred, got.length_known) == (OBJECT_SHA256, 1000, True)
    assert downloads.begun(member)
    again = _take(downloads, member, tmp_path / "second")  # as after a kill before that
    assert (again.sha256, again.transferred, again.attempts) == (OBJECT_SHA256, 0, 0)
    downloads.settle(member)
    assert _left(tmp_path) == []
    assert not downloads.begun(member)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes() == OBJECT


def test_a_cache_keeps_a_copy_of_its_own(tmp_path: Path, server: HttpServer) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o")
    _take(downloads, member, tmp_path / "first")
    downloads.settle(member)
    (tmp_path / "first").write_bytes(b"someone writes into the copy")
    got = _take(_downloads(tmp_path, keep=True), member, tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == OBJECT
    assert (got.transferred, got.version, len(server.requests)) == (0, '"v1"', 1)


@pytest.mark.parametrize("damage", [b"", OBJECT[:-1], OBJECT[:-1] + b"x", OTHER])
def test_a_damaged_file_of_a_cache_is_fetched_again(
    tmp_path: Path, server: HttpServer, damage: bytes
) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o")
    _take(downloads, member, tmp_path / "first")
    (cached,) = (tmp_path / "downloads").glob("*.file")
    cached.write_bytes(damage)
    assert _take(downloads, member, tmp_path / "second").transferred == 1000
    assert (tmp_path / "second").read_bytes() == cached.read_bytes() == OBJECT


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 1}', b"\xff", b"null"])
def test_a_file_without_a_sound_record_is_fetched_again(
    tmp_path: Path, server: HttpServer, damage: bytes
) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o")
    _take(downloads, member, tmp_path / "first")
    (record,) = (tmp_path / "downloads").glob("*.file.json")
    record.write_bytes(damage)
    assert not downloads.begun(member)
    assert _take(downloads, member, tmp_path / "second").transferred == 1000


def test_a_file_that_is_listed_otherwise_now_is_fetched_again(
    tmp_path: Path, server: HttpServer
) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o", 1000)
    _take(downloads, replace(member, sha256=OBJECT_SHA256, version="v1"), tmp_path / "1")
    same = replace(member, sha256=OBJECT_SHA256, version="v1")
    assert _take(downloads, same, tmp_path / "2").transferred == 0
    server.objects["/o"] = Served(OTHER, '"v2"')
    assert _take(downloads, replace(same, changed="v2"), tmp_path / "3").transferred == 1000
    stated = replace(member, sha256=OTHER_SHA256, version="v2")
    assert _take(downloads, stated, tmp_path / "4").transferred == 0
    server.objects["/o"] = Served(OBJECT)
    stated = replace(member, sha256=OBJECT_SHA256, version="v2")
    assert _take(downloads, stated, tmp_path / "5").sha256 == OBJECT_SHA256


def test_bytes_that_are_outdated_are_asked_for_again(tmp_path: Path, server: HttpServer) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o")
    _take(downloads, member, tmp_path / "first")
    server.objects["/o"] = Served(OTHER, '"v2"')
    with downloads.get(member, read=lambda _: None, outdated=[OBJECT_SHA256]) as download:
        assert download.fetched.sha256 == OTHER_SHA256


def test_dropped_bytes_are_asked_for_again_of_a_cache_too(
    tmp_path: Path, server: HttpServer
) -> None:
    downloads, member = _downloads(tmp_path, keep=True), Member(server.url + "/o")
    _take(downloads, member, tmp_path / "first")
    downloads.drop(member)
    assert _left(tmp_path) == []
    assert _take(downloads, member, tmp_path / "second").transferred == 1000


def test_a_broken_download_is_begun_and_goes_on(tmp_path: Path, server: HttpServer) -> None:
    server.objects["/o"], server.twists = Served(BIG), [Twist(cut=2_000_000), Twist(503), None]
    downloads, member = _downloads(tmp_path), Member(server.url + "/o")
    with pytest.raises(StorageError), downloads.get(member, read=lambda _: None):
        pass
    assert downloads.begun(member)
    assert _take(_downloads(tmp_path), member, tmp_path / "o").transferred == 1_000_000
    assert (tmp_path / "o").read_bytes() == BIG


def test_a_signature_is_in_no_name_and_no_record(tmp_path: Path, server: HttpServer) -> None:
    member = Member(server.url + "/o?X-Amz-Signature=5ec2e7")
    downloads = _downloads(tmp_path, keep=True)
    _take(downloads, member, tmp_path / "first")
    assert server.requests[0].path == "/o?X-Amz-Signature=5ec2e7"
    told = [p.name.encode() + p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(b"5ec2e7" in text for text in told)
    signed_anew = Member(server.url + "/o?X-Amz-Signature=0ther")
    assert _take(downloads, signed_anew, tmp_path / "second").transferred == 0


def test_a_broken_download_goes_on_with_another_signature(
    tmp_path: Path, server: HttpServer
) -> None:
    server.objects["/o"], server.twists = Served(BIG), [Twist(cut=2_000_000), Twist(503), None]
    downloads, old = _downloads(tmp_path), Member(server.url + "/o?n=1&X-Amz-Signature=5ec2e7")
    with pytest.raises(StorageError), downloads.get(old, read=lambda _: None):
        pass
    signed_anew = Member(server.url + "/o?X-Amz-Signature=0ther&n=1")
    assert downloads.begun(signed_anew)
    assert _take(downloads, signed_anew, tmp_path / "o").transferred == 1_000_000


@pytest.mark.usefixtures("s3_keys")
def test_keys_of_s3_that_differ_behind_a_question_mark_are_two_files(tmp_path: Path) -> None:
    keys = ("a?1", "a?2", "a#1", "a", "a\n")
    with S3Stub() as stub:
        stub.objects = {key: key.encode() for key in keys}
        remote = Remote(SETTINGS, S3Settings(endpoint_url=stub.url))
        downloads = Downloads(tmp_path / "downloads", remote, keep=True)
        for transferred in (1, 0):
            for key in keys:
                got = _take(downloads, Member(f"s3://crawls/{key}"), tmp_path / "o")
                assert (tmp_path / "o").read_text() == key
                assert got.transferred == transferred * len(key)


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


STEPS = {
    ("http", "publish"): partial.Partial,
    ("http", "flush_folder"): partial,
    ("s3", "publish"): parts.PartsFile,
    ("s3", "flush_folder"): parts,
}


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _take_and_die(member: Member, remote: Remote, folder: Path, place: str, step: str) -> None:
    """Fetch a member in a process of its own, which kills itself before a step."""
    with mock.patch.object(STEPS[place, step], step, _die):
        _take(Downloads(folder / "downloads", remote), member, folder / "o")


@pytest.mark.usefixtures("s3_keys")
@pytest.mark.parametrize("place", ["http", "s3"])
@pytest.mark.parametrize(
    ("step", "again"),
    # Before it has its name, when not all of it is marked; and when it just got it.
    [("publish", partial.MARK_BYTES), ("flush_folder", 0)],
)
def test_a_whole_file_of_a_killed_process_is_not_fetched_again(
    tmp_path: Path, place: str, step: str, again: int
) -> None:
    with HttpServer({"/o": Served(BIG)}) as server, S3Stub() as stub:
        stub.objects = {"o": BIG}
        remote = Remote(SETTINGS, S3Settings(endpoint_url=stub.url))
        member = Member({"http": f"{server.url}/o", "s3": "s3://crawls/o"}[place])
        process = FORKS.Process(target=_take_and_die, args=(member, remote, tmp_path, place, step))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        downloads = Downloads(tmp_path / "downloads", remote)
        assert downloads.begun(member)
        got = _take(downloads, member, tmp_path / "o")
    assert got.transferred <= again
    assert (tmp_path / "o").read_bytes() == BIG


NAMES = ("o", "o.json", "o.file", "o.file.json", "o.partial", "o.file.partial.json", "leases")


def test_no_file_has_the_name_of_a_record_of_another(tmp_path: Path) -> None:
    objects = {f"/{name}": Served(name.encode() * 9) for name in NAMES}
    downloads = _downloads(tmp_path, keep=True)
    with HttpServer(objects) as server:
        for attempt in range(2):
            for name in NAMES:
                target = tmp_path / f"{attempt}-{name}"
                got = _take(downloads, Member(f"{server.url}/{name}"), target)
                assert target.read_bytes() == name.encode() * 9
                assert got.transferred == (0 if attempt else 9 * len(name))


@pytest.mark.parametrize("path", ["/%2e%2e/x", "/a%00b", f"/{'y' * 3000}", "/a/"])
def test_whatever_its_url_a_file_lies_in_the_folder(tmp_path: Path, path: str) -> None:
    with HttpServer({path: Served(OBJECT)}) as server:
        _take(_downloads(tmp_path, keep=True), Member(server.url + path), tmp_path / "o")
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent.name != "leases"]
    assert {p.parent for p in files} == {tmp_path, tmp_path / "downloads"}
    assert len(files) == 3


def test_a_refusal_leaves_nothing(tmp_path: Path, server: HttpServer) -> None:
    downloads = _downloads(tmp_path)
    with pytest.raises(SourceRefused, match="404"):
        _take(downloads, Member(server.url + "/gone"), tmp_path / "o")
    assert _left(tmp_path) == []


def test_two_who_want_one_file_fetch_it_once(tmp_path: Path) -> None:
    with HttpServer({"/o": Served(BIG)}, bytes_per_second=10e6) as server:
        member, got = Member(server.url + "/o"), list[Fetched]()
        threads = [
            threading.Thread(
                target=lambda n=n: got.append(
                    _take(_downloads(tmp_path, keep=True), member, tmp_path / f"{n}")
                )
            )
            for n in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(f.transferred for f in got) == [0, len(BIG)]
        assert server.sent == len(BIG)
    digests = {hashlib.sha256((tmp_path / str(n)).read_bytes()).hexdigest() for n in range(2)}
    assert digests == {got[0].sha256}


def test_the_record_says_what_is_known_of_a_file(tmp_path: Path, server: HttpServer) -> None:
    member = Member(server.url + "/o", version="listed")
    _take(_downloads(tmp_path, keep=True), member, tmp_path / "o")
    (record,) = (tmp_path / "downloads").glob("*.file.json")
    assert json.loads(record.read_bytes()) == {
        "bytes": 1000,
        "format": 1,
        "length_known": True,
        "listed_version": "listed",
        "sha256": OBJECT_SHA256,
        "source": server.url + "/o",
        "version": '"v1"',
    }


def test_a_folder_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(
        b""
    )  # root may write everywhere, so a file stands in its place
    downloads = Downloads(tmp_path / "cache", Remote(), keep=True)
    member = Member("http://127.0.0.1:9/x")
    words = r"cache: downloads cannot be written there: Not a directory; .*--cache-dir"
    with pytest.raises(StorageError, match=words), downloads.get(member, read=lambda count: None):
        pass
