"""What real servers and networks do wrong, done by a stand-in on loopback."""

import errno
import functools
import hashlib
import os
import random
import signal
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # a client of boto3 has no type

import pytest

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage import parts, s3
from corpus_platform.storage.parts import has_parts
from corpus_platform.storage.transfer import Fetched, Patience
from corpus_platform_tests.s3_server import ACCESS_KEY, SECRET_KEY
from corpus_platform_tests.s3_stub import Reply, Request, S3Stub, refusal

pytestmark = pytest.mark.usefixtures("s3_keys")

SETTINGS = DownloadSettings(part_bytes=1024, connections=3, tries=10)
KEY, URL = "a/part-0", "s3://crawls/a/part-0"
DATA = random.Random(4).randbytes(5000)  # four parts and a piece
OTHER = random.Random(5).randbytes(5000)


class Loss:
    """A download's environment: its waits are written down, not waited for."""

    def __init__(self, stub: S3Stub, folder: Path) -> None:
        self.stub, self.target = stub, folder / "x"
        self.waits: list[float] = []
        self.told = 0
        self.settings = SETTINGS

    def read(self, count: int) -> None:
        self.told += count

    def fetch(self, url: str = URL, *, client: Any = None, **options) -> Fetched:
        return s3.get_file(
            client or usual_client(self.stub.url),
            url,
            self.target,
            settings=self.settings,
            read=self.read,
            patience=Patience(self.settings, url, sleep=self.waits.append),
            **options,
        )

    @property
    def left(self) -> list[str]:
        return sorted(p.name for p in self.target.parent.iterdir())


def new_client(url: str, **download) -> Any:
    return s3.connect(S3Settings(endpoint_url=url), DownloadSettings(**download))


usual_client = functools.cache(new_client)  # making one takes a quarter of a second


@pytest.fixture(scope="module")
def server() -> Iterator[S3Stub]:
    with S3Stub() as server:
        yield server


@pytest.fixture
def loss(server: S3Stub, tmp_path: Path) -> Loss:
    server.reset()
    server.objects[KEY] = DATA
    return Loss(server, tmp_path)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def first(count: int, reply: Reply):
    """Answer the first requests so."""
    return lambda number, request: reply if number <= count else None


# Parts


@pytest.mark.parametrize(
    ("size", "requests"), [(0, 2), (1, 1), (1023, 1), (1024, 1), (1025, 2), (4096, 4), (5000, 5)]
)
def test_objects_of_any_size_come_whole(loss: Loss, size: int, requests: int) -> None:
    loss.stub.objects[KEY] = DATA[:size]
    fetched = loss.fetch()
    etag = loss.stub.etag(KEY)
    assert fetched == Fetched(size, sha(DATA[:size]), True, etag, size, requests)
    assert (loss.target.read_bytes(), loss.left, loss.told) == (DATA[:size], ["x"], size)


def test_parts_are_asked_for_of_the_version_of_the_first(loss: Loss) -> None:
    loss.fetch()
    assert sorted(r or "" for r in loss.stub.ranges) == [
        "bytes=0-1023",
        "bytes=1024-2047",
        "bytes=2048-3071",
        "bytes=3072-4095",
        "bytes=4096-4999",
    ]
    matches = [request.headers.get("if-match") for request in loss.stub.requests]
    assert matches == [None, *[loss.stub.etag(KEY)] * 4]


def test_parts_that_an_earlier_process_left_are_not_fetched_again(loss: Loss) -> None:
    loss.stub.before = lambda n, request: refusal(403, "AccessDenied") if n == 4 else None
    loss.settings = SETTINGS.model_copy(update={"connections": 1})
    with pytest.raises(SourceRefused):
        loss.fetch()
    assert has_parts(loss.target)
    assert loss.told == 3072
    loss.told, loss.stub.before = 0, lambda n, request: None
    loss.stub.requests.clear()
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.transferred, loss.told) == (sha(DATA), 5000 - 3072, 5000)
    assert loss.stub.ranges == ["bytes=3072-4095", "bytes=4096-4999"]
    assert not has_parts(loss.target)


def test_memory_is_bounded_by_blocks_not_by_parts(loss: Loss) -> None:
    loss.settings = DownloadSettings(part_bytes=32 << 20, connections=2)
    loss.stub.objects[KEY] = data = random.Random(1).randbytes(64 << 20)
    expected = sha(data)
    # The server sends slices of what it holds; only what is new here counts.
    loss.stub.before = lambda n, request: piece(n, data)
    piece(0, data)
    tracemalloc.start()
    try:
        fetched = loss.fetch()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fetched.sha256 == expected
    assert peak < 16 << 20


_PIECES: dict[int, bytes] = {}


def piece(number: int, data: bytes) -> Reply | None:
    """Answer with halves of an object that were cut before memory is measured."""
    half = len(data) // 2
    if number == 0:
        _PIECES.update({1: data[:half], 2: data[half:]})
        return None
    start = (number - 1) * half
    place = f"bytes {start}-{start + half - 1}/{len(data)}"
    return Reply(206, {"ETag": '"v"', "Content-Range": place}, _PIECES[number])


def test_a_slow_disk_holds_back_the_network(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process killed then has no more to fetch again than twice as many parts as connections."""
    keep, begun = parts.PartsFile.keep, []

    def slow(file: parts.PartsFile, finished: list[parts.Part]) -> None:
        time.sleep(0.3)
        begun.append(len(loss.stub.requests) - file.kept // 1024)
        keep(file, finished)

    loss.stub.objects[KEY] = data = random.Random(6).randbytes(30 * 1024)
    monkeypatch.setattr(parts.PartsFile, "keep", slow)
    assert loss.fetch().sha256 == sha(data)
    assert max(begun) == 2 * SETTINGS.connections


# Versions


def test_an_object_replaced_meanwhile_is_fetched_anew_and_never_mixed(loss: Loss) -> None:
    loss.stub.before = replaced_at(3, loss.stub)
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.version) == (sha(OTHER), loss.stub.etag(KEY))
    assert (loss.told, fetched.transferred > 5000) == (5000, True)


def test_a_server_that_ignores_if_match_gets_no_mix_either(loss: Loss) -> None:
    loss.stub.ignores_match = True
    loss.stub.before = replaced_at(3, loss.stub)
    fetched = loss.fetch()
    assert (fetched.sha256, loss.told) == (sha(OTHER), 5000)


def test_an_object_cut_meanwhile_is_fetched_anew(loss: Loss) -> None:
    loss.stub.ignores_match = True
    loss.stub.before = replaced_at(3, loss.stub, by=OTHER[:1500])
    assert loss.fetch().sha256 == sha(OTHER[:1500])


def test_a_length_that_differs_under_one_etag_is_another_version(loss: Loss) -> None:
    def lying(number: int, request: Request) -> Reply | None:
        if number != 3:
            return None
        reply = loss.stub.usual(request)
        place = reply.headers["Content-Range"].replace("/5000", "/5001")
        return Reply(206, {**reply.headers, "Content-Range": place}, reply.body)

    loss.stub.before = lying
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.transferred > 5000) == (sha(DATA), True)


def test_a_pinned_version_that_is_gone_is_refused_with_both_named(loss: Loss) -> None:
    pinned = loss.stub.etag(KEY)
    loss.stub.before = replaced_at(3, loss.stub)
    with pytest.raises(SourceRefused) as refused:
        loss.fetch(version=pinned)
    assert pinned in str(refused.value)
    assert loss.stub.etag(KEY) in str(refused.value)
    assert not loss.target.exists()


def test_a_version_pinned_by_a_listing_is_asked_for_from_the_first_request(loss: Loss) -> None:
    pinned = loss.stub.etag(KEY)
    loss.stub.objects[KEY] = OTHER
    with pytest.raises(SourceRefused, match="list it anew"):
        loss.fetch(version=pinned)
    assert loss.told == 0
    assert loss.fetch(version=loss.stub.etag(KEY)).sha256 == sha(OTHER)


def test_parts_of_a_version_that_is_no_longer_listed_are_dropped(loss: Loss) -> None:
    loss.stub.before = lambda n, request: refusal(403, "AccessDenied") if n == 4 else None
    with pytest.raises(SourceRefused):
        loss.fetch()
    loss.stub.before, loss.told = lambda n, request: None, 0
    loss.stub.objects[KEY] = OTHER
    fetched = loss.fetch(version=loss.stub.etag(KEY))
    assert (fetched.sha256, fetched.transferred, loss.told) == (sha(OTHER), 5000, 5000)


def test_an_object_replaced_between_two_runs_is_fetched_anew(loss: Loss) -> None:
    loss.stub.before = lambda n, request: refusal(403, "AccessDenied") if n == 4 else None
    with pytest.raises(SourceRefused):
        loss.fetch()
    loss.stub.before, loss.told = lambda n, request: None, 0
    loss.stub.objects[KEY] = OTHER
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.transferred, loss.told) == (sha(OTHER), 5000, 5000)


def test_an_object_replaced_each_time_is_given_up(loss: Loss) -> None:
    def always(number: int, request: Request) -> None:
        loss.stub.objects[KEY] = random.Random(number).randbytes(5000)

    loss.stub.before, loss.settings = always, SETTINGS.model_copy(update={"tries": 3})
    with pytest.raises(StorageError, match="replaced during each of 3 downloads"):
        loss.fetch()
    assert not loss.target.exists()


def test_another_length_than_listed_is_refused_before_it_is_fetched(loss: Loss) -> None:
    with pytest.raises(SourceRefused, match="has 5000 bytes, its listing says 4999"):
        loss.fetch(expect=4999)
    assert (len(loss.stub.requests), loss.left) == (1, [])


def replaced_at(number: int, stub: S3Stub, *, by: bytes = OTHER):
    """Replace the object before that request is answered."""

    def before(at: int, request: Request) -> None:
        if at == number:
            stub.objects[KEY] = by

    return before


# Servers that know less


def test_a_server_without_ranges_gives_objects_of_one_part(loss: Loss) -> None:
    loss.stub.ignores_range = True
    loss.settings = DownloadSettings(part_bytes=8192)
    assert loss.fetch().sha256 == sha(DATA)


def test_a_server_without_ranges_is_refused_with_what_to_set(loss: Loss) -> None:
    loss.stub.ignores_range = True
    with pytest.raises(SourceRefused, match=r"set download\.part_bytes to 5000 or more"):
        loss.fetch()


def test_an_answer_of_other_bytes_than_asked_for_is_refused(loss: Loss) -> None:
    reply = Reply(206, {"ETag": '"v"', "Content-Range": "bytes 10-19/5000"}, DATA[10:20])
    loss.stub.before = first(1, reply)
    with pytest.raises(SourceRefused, match=r"bytes 0-1023 of it, the server gave 10-19"):
        loss.fetch()


@pytest.mark.parametrize("headers", [{}, {"ETag": '"v"', "Content-Range": "bytes 0-9/*"}])
def test_an_answer_that_names_no_version_or_length_is_refused(
    loss: Loss, headers: dict[str, str]
) -> None:
    loss.stub.before = first(1, Reply(206, headers, b"0123456789"))
    with pytest.raises(SourceRefused, match="is this an S3 server"):
        loss.fetch()


def test_a_server_that_gives_less_than_asked_for_is_asked_for_the_rest(loss: Loss) -> None:
    def stingy(number: int, request: Request) -> Reply | None:
        begin = int((request.range or "").removeprefix("bytes=").partition("-")[0])
        end = min(begin + 700, int((request.range or "").partition("-")[2]) + 1) - 1
        place = f"bytes {begin}-{end}/5000"
        return Reply(206, {"ETag": '"v"', "Content-Range": place}, DATA[begin : end + 1])

    loss.stub.before = stingy
    assert loss.fetch().sha256 == sha(DATA)


# Throttling


def test_six_times_slow_down_then_the_object_takes_seven_requests(loss: Loss) -> None:
    loss.stub.objects[KEY] = DATA[:1000]
    loss.stub.before = first(6, refusal(503, "SlowDown"))
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.attempts) == (sha(DATA[:1000]), 7)
    assert len(loss.stub.requests) == 7
    bounds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(loss.waits) == 6
    assert all(0.0 <= wait <= bound for wait, bound in zip(loss.waits, bounds, strict=True))
    assert loss.waits != bounds  # they are random, so that many clients do not come back at once


def test_slow_down_without_end_fails_with_its_code_and_leaves_no_file(loss: Loss) -> None:
    loss.stub.before = first(50, refusal(503, "SlowDown"))
    with pytest.raises(StorageError, match=r"SlowDown \(HTTP 503\); given up after 10 tries"):
        loss.fetch()
    assert (len(loss.stub.requests), loss.left) == (10, [])
    assert max(loss.waits) <= SETTINGS.max_wait_seconds


def test_connections_that_are_throttled_together_wait_once(loss: Loss) -> None:
    """With three connections patience would else be at its end after a third of the time."""
    together = threading.Barrier(3, timeout=20)

    def before(number: int, request: Request) -> Reply | None:
        if 2 <= number <= 4:
            together.wait()
            return refusal(503, "SlowDown")
        return None

    loss.stub.before = before
    loss.settings = DownloadSettings(part_bytes=1250, connections=3, tries=2)
    # The first part is on its way, so that three requests are for the other three.
    loss.settings = loss.settings.model_copy(update={"connections": 4})
    assert loss.fetch().sha256 == sha(DATA)
    assert len(loss.waits) == 1


def test_a_wait_that_the_server_asks_for_is_kept(loss: Loss) -> None:
    busy = refusal(503, "SlowDown")
    loss.stub.before = first(1, Reply(503, {**busy.headers, "Retry-After": "7"}, busy.body))
    loss.fetch()
    assert len(loss.waits) == 1
    assert 7.0 <= loss.waits[0] <= 7.5  # spread, so that not all come back at once


@pytest.mark.parametrize(
    "reply",
    [
        refusal(500, "InternalError"),
        refusal(400, "RequestTimeout"),
        refusal(429, "TooManyRequests"),
        Reply(502, {"Content-Type": "text/html"}, b"<html>Bad <b>gateway"),
        Reply(504, {}, b""),
    ],
    ids=lambda reply: str(reply.status),
)
def test_faults_that_pass_are_asked_again(loss: Loss, reply: Reply) -> None:
    loss.stub.before = first(2, reply)
    assert (loss.fetch().attempts, len(loss.waits)) == (7, 2)


# Connections


def breaking(number: int, *, after: int, hangs: bool = False):
    """Break the answer to one request after some bytes."""

    def before(stub: S3Stub, at: int, request: Request) -> Reply | None:
        if at != number:
            return None
        reply = stub.usual(request)
        return Reply(reply.status, reply.headers, reply.body, sends=after, hangs=hangs)

    return before


@pytest.mark.parametrize("after", [0, 1, 700, 1023])
def test_a_part_that_ends_early_goes_on_where_it_broke(loss: Loss, after: int) -> None:
    cut = breaking(1, after=after)
    loss.stub.before = lambda n, request: cut(loss.stub, n, request)
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.transferred, fetched.attempts) == (sha(DATA), 5000, 6)
    assert f"bytes={after}-1023" in loss.stub.ranges[1:]
    assert loss.told == 5000


def test_a_silent_connection_is_given_up_and_gone_on_with(loss: Loss) -> None:
    cut = breaking(2, after=100, hangs=True)
    loss.stub.before = lambda n, request: cut(loss.stub, n, request)
    began = time.monotonic()
    fetched = loss.fetch(client=new_client(loss.stub.url, timeout_seconds=0.3))
    assert (fetched.sha256, fetched.transferred) == (sha(DATA), 5000)
    assert time.monotonic() - began < 5


def test_a_server_that_is_not_there_is_given_up_after_bounded_tries(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings, waits = DownloadSettings(tries=4), []
    client = new_client(f"http://127.0.0.1:{port}")
    patience = Patience(settings, URL, sleep=waits.append)
    with pytest.raises(StorageError, match=r"EndpointConnectionError.*after 4 tries") as failed:
        s3.get_file(
            client,
            URL,
            tmp_path / "x",
            settings=settings,
            read=lambda n: None,
            patience=patience,
        )
    assert not isinstance(failed.value, SourceRefused)
    assert (len(waits), list(tmp_path.iterdir())) == (3, [])


# Ends


def test_an_error_in_one_part_stops_the_others_and_keeps_what_is_finished(loss: Loss) -> None:
    loss.stub.objects[KEY] = random.Random(6).randbytes(60_000)

    def before(number: int, request: Request) -> Reply | None:
        return refusal(403, "AccessDenied") if number == 20 else None

    loss.stub.before = before
    with pytest.raises(SourceRefused, match="AccessDenied"):
        loss.fetch()
    assert len(loss.stub.requests) <= 20 + 2 * SETTINGS.connections
    assert loss.left == ["x.partial", "x.partial.json"]
    loss.stub.before = lambda n, request: None
    assert loss.fetch().transferred <= 60_000 - 1024 * 15


def test_a_full_disk_is_named_and_the_download_goes_on_when_there_is_room(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, pwrite = [3], os.pwrite

    def full(descriptor: int, data: memoryview, at: int) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, at)

    loss.settings = SETTINGS.model_copy(update={"connections": 1})
    with monkeypatch.context() as patch:
        patch.setattr(parts.os, "pwrite", full)
        with pytest.raises(StorageError, match=r"x: cannot be written: .*No space left"):
            loss.fetch()
    assert not loss.target.exists()
    loss.told = 0
    fetched = loss.fetch()
    assert (fetched.sha256, fetched.transferred) == (sha(DATA), 5000 - 3072)


def test_an_object_larger_than_the_disk_is_refused_before_it_is_fetched(loss: Loss) -> None:
    place = {"ETag": '"v"', "Content-Range": f"bytes 0-1023/{10**18}"}
    loss.stub.before = first(9, Reply(206, place, DATA[:1024]))
    with pytest.raises(StorageError, match=rf"{10**18} more bytes .* are free on this disk"):
        loss.fetch()
    assert (len(loss.stub.requests), loss.told) == (1, 0)


def test_ctrl_c_ends_quickly_while_a_server_is_silent_and_a_good_list_stays(loss: Loss) -> None:
    def before(number: int, request: Request) -> Reply | None:
        reply = loss.stub.usual(request)
        if number < 4:
            return reply
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return Reply(reply.status, reply.headers, reply.body, sends=10, hangs=True)

    loss.stub.before = before
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loss.fetch()
    assert time.monotonic() - began < 4
    loss.stub.before, loss.told = lambda n, request: None, 0
    fetched = loss.fetch()
    assert (fetched.sha256, loss.told) == (sha(DATA), 5000)
    assert fetched.transferred <= 5000 - 2048


def test_an_error_of_who_listens_ends_the_download(loss: Loss) -> None:
    def read(count: int) -> None:
        raise SystemExit(7)

    loss.read = read
    with pytest.raises(SystemExit):
        loss.fetch()
    assert not loss.target.exists()


# Refusals


@pytest.mark.parametrize(
    ("status", "code", "way_out"),
    [
        (404, "NoSuchKey", "deleted or its listing is wrong"),
        (404, "NoSuchBucket", "s3.endpoint_url"),
        (403, "AccessDenied", "s3: {anonymous: true}"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "AWS_SESSION_TOKEN"),
        (403, "RequestTimeTooSkewed", "clock"),
        (403, "InvalidObjectState", "archived"),
        (412, "PreconditionFailed", "412"),  # though nothing was asked of the version
        (418, "SomethingNew", "418"),
    ],
)
def test_a_refusal_names_object_code_and_way_out_and_no_secret(
    loss: Loss, status: int, code: str, way_out: str
) -> None:
    loss.stub.before = first(99, refusal(status, code))
    with pytest.raises(SourceRefused) as refused:
        loss.fetch()
    words = str(refused.value)
    assert words.startswith(f"s3://crawls/a/part-0: {code} (HTTP {status}); ")
    assert way_out in words
    assert SECRET_KEY not in words
    assert ACCESS_KEY not in words
    assert (len(loss.stub.requests), loss.waits, loss.left) == (1, [], [])


def test_without_keys_the_message_says_what_to_set(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SettingsError, match=r"no complete keys.*AWS_ACCESS_KEY_ID.*anonymous"):
        loss.fetch(client=new_client(loss.stub.url))
    assert loss.stub.requests == []


def test_half_a_pair_of_keys_says_so_too(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SettingsError, match=r"AWS_SECRET_ACCESS_KEY"):
        loss.fetch(client=new_client(loss.stub.url))


def test_a_profile_that_does_not_exist_is_an_error_of_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(SettingsError, match="nobody"):
        s3.connect(S3Settings(), DownloadSettings())


def test_anonymous_requests_are_not_signed(
    loss: Loss, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    settings = S3Settings(endpoint_url=loss.stub.url, anonymous=True)
    client = s3.connect(settings, SETTINGS)
    assert s3.get_bytes(client, URL, settings=SETTINGS, max_bytes=5000) == DATA
    assert "authorization" not in loss.stub.requests[0].headers


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///key", "s3://crawls", "s3://crawls/", "http://h/x", "s3://me:pw1@crawls/x"],
)
def test_an_address_that_names_no_object_is_an_error_of_settings(loss: Loss, url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loss.fetch(url)
    assert "pw1" not in str(refused.value)
    assert loss.stub.requests == []


# Small objects


def test_small_objects_come_as_bytes_also_after_a_break(loss: Loss) -> None:
    cut = breaking(1, after=300)
    loss.stub.before = lambda n, request: cut(loss.stub, n, request)
    client = usual_client(loss.stub.url)
    quick = SETTINGS.model_copy(update={"first_wait_seconds": 0.01})
    assert s3.get_bytes(client, URL, settings=quick, max_bytes=5000) == DATA
    assert len(loss.stub.requests) == 2


def test_an_object_larger_than_small_ones_may_be_is_refused(loss: Loss) -> None:
    client = usual_client(loss.stub.url)
    with pytest.raises(SourceRefused, match="it has 5000 bytes; 4999 are read"):
        s3.get_bytes(client, URL, settings=SETTINGS, max_bytes=4999)


def test_an_empty_object_is_no_bytes(loss: Loss) -> None:
    loss.stub.objects[KEY] = b""
    client = usual_client(loss.stub.url)
    assert s3.get_bytes(client, URL, settings=SETTINGS, max_bytes=0) == b""
