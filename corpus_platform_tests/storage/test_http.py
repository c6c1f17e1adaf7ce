"""Files over HTTP from a server on loopback whose connections break and that asks to wait."""

import errno
import os
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import SourceRefused, StorageError
from corpus_platform.storage import http
from corpus_platform.storage.http import get_bytes, get_file
from corpus_platform.storage.partial import has_checkpoint
from corpus_platform.storage.transfer import Fetched, Patience
from corpus_platform_tests.http_server import HttpServer, Served, Twist, self_signed, to
from corpus_platform_tests.storage.fetching import (
    BIG,
    BIG_SHA256,
    OBJECT,
    OBJECT_SHA256,
    SETTINGS,
    V1,
    V2,
    Heard,
    failed,
    fetch,
    refused,
)


@pytest.fixture
def new_connections() -> Iterator[None]:
    """Connections that know of the environment of a test, and no other test's."""
    http._client.cache_clear()
    yield
    http._client.cache_clear()


# Whole files ------------------------------------------------------------------------------------


def test_a_file_is_fetched_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}) as server:
        got = fetch(server, tmp_path / "o", expect=1000)
    assert got == Fetched(1000, OBJECT_SHA256, True, '"v1"', transferred=1000, attempts=1)
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert "range" not in server.requests[0].headers


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    with HttpServer({"/o": Served(b"")}) as server:
        assert fetch(server, tmp_path / "o").bytes == 0


def test_a_file_that_was_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(b"old")
    with HttpServer({"/o": V1}) as server:
        assert fetch(server, tmp_path / "o").sha256 == OBJECT_SHA256


def test_a_body_in_chunks_is_of_unknown_length(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=True)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.length_known, got.sha256) == (False, OBJECT_SHA256)


def test_a_body_in_chunks_has_the_length_that_its_listing_states(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=True)) as server:
        assert fetch(server, tmp_path / "o", expect=1000).length_known


def test_a_content_length_beside_chunks_means_nothing(tmp_path: Path) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    with HttpServer({"/o": V1}, Twist(raw=raw)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.bytes, got.length_known) == (3, False)


def test_a_body_that_ends_with_its_connection_is_of_unknown_length(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(raw=b"HTTP/1.0 200 OK\r\n\r\nabc")) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.bytes, got.length_known, got.version) == (3, False, None)


# Connections that break -------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.41, 0.78, 0.99])
def test_a_cut_connection_costs_nothing_twice(tmp_path: Path, share: float) -> None:
    with HttpServer({"/o": Served(BIG)}, Twist(cut=int(len(BIG) * share))) as server:
        got = fetch(server, tmp_path / "o", expect=len(BIG))
    assert (got.sha256, got.attempts) == (BIG_SHA256, 2)
    assert got.transferred == server.sent == len(BIG)


def test_three_cuts_a_wait_and_a_missing_byte_cost_nothing_twice(tmp_path: Path) -> None:
    cuts = [Twist(cut=int(len(BIG) * share)) for share in (0.41, 0.78, 0.99)]
    wait = Twist(503, {"Retry-After": "0"}, body=b"")
    with HttpServer(
        {"/o": Served(BIG)}, cuts[0], wait, cuts[1], cuts[2], Twist(cut=len(BIG) - 1)
    ) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts, server.sent) == (BIG_SHA256, 6, len(BIG))


def test_all_faults_in_a_row_end_with_the_new_version(tmp_path: Path) -> None:
    new = Served(BIG[::-1], '"v2"')
    twists = [
        Twist(cut=1_230_000),
        Twist(ignore_range=True, cut=2_340_000),
        Twist(503, {"Retry-After": "0"}, body=b""),
        Twist(cut=2_970_000),
        Twist(become=new, cut=1_000_000),
        Twist(cut=len(BIG) - 1),
    ]
    with HttpServer({"/o": Served(BIG)}, *twists) as server:
        got = fetch(server, tmp_path / "o")
    assert (tmp_path / "o").read_bytes() == BIG[::-1]
    assert (got.version, got.attempts) == ('"v2"', 7)
    # 41 % that a whole answer replaced, 99 % of the old version, the new one.
    assert got.transferred == server.sent == 1_230_000 + 2_970_000 + len(BIG)


def test_a_body_one_byte_short_gets_its_last_byte(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(cut=999)) as server:
        assert fetch(server, tmp_path / "o").sha256 == OBJECT_SHA256
    assert server.requests[1].headers["range"] == "bytes=999-"
    assert server.requests[1].headers["if-range"] == '"v1"'


def test_chunks_without_an_end_are_a_broken_connection(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=True, cut=600)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.length_known, got.transferred) == (OBJECT_SHA256, True, 1000)


def test_a_silent_server_is_given_up_and_asked_again(tmp_path: Path) -> None:
    impatient = DownloadSettings(tries=3, first_wait_seconds=0.001, timeout_seconds=0.2)
    with HttpServer({"/o": V1}, Twist(silent_seconds=0.6)) as server:
        assert fetch(server, tmp_path / "o", settings=impatient).attempts == 2


@pytest.mark.parametrize(
    "raw", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc"]
)
def test_what_is_no_http_is_asked_for_again(tmp_path: Path, raw: bytes) -> None:
    with HttpServer({"/o": V1}, Twist(raw=raw)) as server:
        assert fetch(server, tmp_path / "o").sha256 == OBJECT_SHA256


def test_a_closed_port_and_an_unknown_host_are_tried_again_and_named(tmp_path: Path) -> None:
    for url, fault in (
        ("http://127.0.0.1:9/o", "refused"),
        ("http://nowhere.invalid/o", "ConnectError"),
    ):
        waits: list[float] = []
        patience = Patience(SETTINGS, url, sleep=waits.append)
        with pytest.raises(StorageError, match=f"{fault}.*after 4 tries") as caught:
            get_file(url, tmp_path / "o", settings=SETTINGS, read=Heard(), patience=patience)
        assert not isinstance(caught.value, SourceRefused)
        assert len(waits) == 3
    assert list(tmp_path.iterdir()) == []


def test_waits_grow_where_the_same_bytes_come_again_and_again(tmp_path: Path) -> None:
    waits: list[float] = []
    patience = Patience(SETTINGS, "o", sleep=waits.append, jitter=lambda: 1.0)
    twists = [Twist(cut=600, ignore_range=True)] * 3
    with HttpServer({"/o": V1}, *twists) as server:
        fetch(server, tmp_path / "o", patience=patience)
    assert waits == [0.001, 0.002, 0.004]


def test_bytes_of_a_new_version_renew_patience_below_those_of_the_old(tmp_path: Path) -> None:
    cuts = [Twist(cut=at) for at in (200, 300, 400, 500, 600, 700)]
    with HttpServer({"/o": V1}, Twist(cut=900), Twist(become=V2, cut=100), *cuts) as server:
        assert fetch(server, tmp_path / "o").attempts == 9


def test_what_is_held_stays_when_patience_ends_and_is_used_by_the_next_call(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(cut=600), *[Twist(500)] * 4) as server:
        assert "HTTP 500; given up after 4 tries" in failed(server, tmp_path / "o")
        assert has_checkpoint(tmp_path / "o")
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.transferred) == (OBJECT_SHA256, 400)


def test_ctrl_c_leaves_all_that_came(tmp_path: Path) -> None:
    def interrupt(count: int) -> None:
        if (tmp_path / "o.partial").stat().st_size > 1_500_000:
            raise KeyboardInterrupt

    with HttpServer({"/o": Served(BIG)}) as server:
        with pytest.raises(KeyboardInterrupt):
            get_file(server.url + "/o", tmp_path / "o", settings=SETTINGS, read=interrupt)
        held = (tmp_path / "o.partial").stat().st_size
        got = fetch(server, tmp_path / "o")
    assert held > 1_500_000
    assert (got.sha256, got.transferred) == (BIG_SHA256, len(BIG) - held)


# Waiting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_fault_is_waited_for(tmp_path: Path, status: int) -> None:
    with HttpServer({"/o": V1}, Twist(status, body=b"later")) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.attempts, got.sha256, got.transferred) == (2, OBJECT_SHA256, 1000)


def _waits_for(tmp_path: Path, header: str) -> list[float]:
    """Return the waits that a Retry-After makes, where none is to be longer than 30 s."""
    bounded = DownloadSettings(first_wait_seconds=0.001, max_wait_seconds=30.0)
    waits: list[float] = []
    with HttpServer({"/o": V1}, Twist(503, {"Retry-After": header})) as server:
        patience = Patience(bounded, "o", sleep=waits.append)
        fetch(server, tmp_path / "o", settings=bounded, patience=patience)
    return waits


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("999999999", 30.0), ("-5", 0.0), ("soon", 0.0), ("9" * 400, 0.0)],
)
def test_retry_after_is_honoured_up_to_the_longest_wait(
    tmp_path: Path, header: str, seconds: float
) -> None:
    assert _waits_for(tmp_path, header) == pytest.approx([seconds], abs=0.002)


def test_retry_after_may_be_a_date(tmp_path: Path) -> None:
    (wait,) = _waits_for(tmp_path, formatdate(time.time() + 20, usegmt=True))
    assert 10.0 < wait < 21.0
    assert _waits_for(tmp_path, formatdate(time.time() + 9e8, usegmt=True)) == [30.0]
    assert _waits_for(tmp_path, formatdate(1, usegmt=True)) == pytest.approx([0.0], abs=0.002)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 501])
def test_another_refusal_is_final_and_says_its_status(tmp_path: Path, status: int) -> None:
    with HttpServer({"/o": Twist(status)}) as server:
        assert f"HTTP {status}" in refused(server, tmp_path / "o")
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []


# TLS, cookies, disk -----------------------------------------------------------------------------


def test_a_certificate_that_nobody_signed_is_refused_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "of the server"
    folder.mkdir()
    with HttpServer({"/o": V1}, certificate=self_signed(folder)) as server:
        message = refused(server, tmp_path / "o")
    assert "certificate is not valid: self-signed certificate (SSL_CERT_FILE" in message
    assert server.requests == []


@pytest.mark.usefixtures("new_connections")
def test_https_never_goes_on_as_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "of the server"
    folder.mkdir()
    certificate = self_signed(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with HttpServer({"/o": V1}) as plain:
        objects = {"/o": to(plain.url + "/o"), "/p": V1}
        with HttpServer(objects, certificate=certificate) as server:
            plain_path = get_file(
                server.url + "/p", tmp_path / "p", settings=SETTINGS, read=Heard()
            )
            assert plain_path.sha256 == OBJECT_SHA256
            assert "redirects from https to http://" in refused(server, tmp_path / "o")
    assert plain.requests == []


def test_cookies_are_not_sent_back(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(headers={"Set-Cookie": "track=1"}, cut=300)) as server:
        fetch(server, tmp_path / "o")
    assert all("cookie" not in request.headers for request in server.requests)


def test_a_full_disk_is_named_and_what_is_held_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [2_000_000]

    def write(file: int, data: memoryview, position: int) -> int:
        if position >= room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os_pwrite(file, data[: room[0] - position], position)

    os_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", write)
    with HttpServer({"/o": Served(BIG)}) as server:
        message = failed(server, tmp_path / "o")
        assert "o.partial: cannot be written: No space left on device" in message
        assert "bytes free there" in message
        room[0] = 10_000_000
        got = fetch(server, tmp_path / "o")
    assert got.sha256 == BIG_SHA256
    assert 1_000_000 <= got.transferred < 1_100_000


# Small documents --------------------------------------------------------------------------------


def test_a_small_document_comes_with_its_address_and_headers() -> None:
    page = Twist(200, {"Link": '</api?page=2>; rel="next"'}, body=b"[]")
    with HttpServer({"/api": to("/there"), "/there": page}) as server:
        got = get_bytes(server.url + "/api", settings=SETTINGS, max_bytes=2)
    assert (got.data, got.url) == (b"[]", server.url + "/there")
    assert got.headers["link"] == got.headers["Link"] == '</api?page=2>; rel="next"'


@pytest.mark.parametrize("chunked", [False, True])
def test_a_document_over_its_limit_is_refused(chunked: bool) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=chunked)) as server:
        why = pytest.raises(SourceRefused, match="longer than the 999 bytes")
        with why:
            get_bytes(server.url + "/o", settings=SETTINGS, max_bytes=999)


def test_a_document_that_broke_off_is_asked_for_again_from_its_start() -> None:
    twists = [Twist(cut=600), Twist(chunked=True, cut=600), Twist(503)]
    with HttpServer({"/o": V1}, *twists) as server:
        assert get_bytes(server.url + "/o", settings=SETTINGS, max_bytes=1000).data == OBJECT
    assert len(server.requests) == 4


def test_a_document_that_never_comes_whole_fails() -> None:
    short = Twist(cut=600)
    with (
        HttpServer({"/o": V1}, *[short] * 9) as server,
        pytest.raises(StorageError, match="given up after 4 tries"),
    ):
        get_bytes(server.url + "/o", settings=SETTINGS, max_bytes=1000)


@pytest.mark.parametrize(
    ("twist", "why"),
    [
        (Twist(404), "HTTP 404"),
        (Twist(401), "token"),
        (Twist(headers={"Content-Encoding": "gzip"}), "Encoding"),
    ],
)
def test_a_document_that_is_refused_is_not_asked_for_again(twist: Twist, why: str) -> None:
    with HttpServer({"/o": V1}, twist) as server, pytest.raises(SourceRefused, match=why):
        get_bytes(server.url + "/o", settings=SETTINGS, max_bytes=1000)
    assert len(server.requests) == 1
