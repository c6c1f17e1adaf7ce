"""Redirects lead where they may, and take no secret along."""

import ipaddress
import logging
from pathlib import Path

import pytest

from corpus_platform.errors import SourceRefused
from corpus_platform.storage import redirects
from corpus_platform.storage.http import get_bytes, get_file
from corpus_platform_tests.http_server import HttpServer, Served, Twist, to
from corpus_platform_tests.storage.fetching import (
    OBJECT,
    OBJECT_SHA256,
    OTHER_SHA256,
    SETTINGS,
    V1,
    V2,
    Heard,
    failed,
    fetch,
    leave,
    refused,
)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_anew_at_every_try(tmp_path: Path, status: int) -> None:
    objects = {"/o": to("/p?signature=1", status), "/p": V1}
    with HttpServer(objects, None, Twist(cut=300)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.transferred, got.attempts) == (OBJECT_SHA256, 1000, 2)
    assert [r.path for r in server.requests] == ["/o", "/p?signature=1"] * 2


def test_a_redirect_to_another_mirror_goes_on_there_if_it_has_the_same_version(
    tmp_path: Path,
) -> None:
    with HttpServer({"/o": V1}) as one, HttpServer({"/o": V2}) as two:
        with HttpServer({"/o": V1}, Twist(cut=300), to(one.url + "/o")) as server:
            assert fetch(server, tmp_path / "o").transferred == 1000
        with HttpServer({"/o": V1}, Twist(cut=300), to(two.url + "/o")) as server:
            assert fetch(server, tmp_path / "o").sha256 == OTHER_SHA256


def test_a_token_goes_to_its_host_alone(tmp_path: Path) -> None:
    with HttpServer({"/q": V1}) as other:
        with HttpServer({"/o": to("/p"), "/p": to(other.url + "/q")}) as server:
            fetch(server, tmp_path / "o", token="s3cret")
        got = get_bytes(other.url + "/q", settings=SETTINGS, max_bytes=1000, token="s3cret")
    assert [r.headers.get("authorization") for r in server.requests] == ["Bearer s3cret"] * 2
    assert [r.headers.get("authorization") for r in other.requests] == [None, "Bearer s3cret"]
    assert got.data == OBJECT


def test_ten_redirects_are_followed_and_eleven_are_not(tmp_path: Path) -> None:
    hops: dict[str, Served | Twist] = {f"/{i}": to(f"/{i + 1}") for i in range(11)}
    with HttpServer({**hops, "/11": V1}) as server:
        assert fetch(server, tmp_path / "o", path="/1").sha256 == OBJECT_SHA256
        (tmp_path / "o").unlink()
        assert "more than 10 redirects" in refused(server, tmp_path / "o", path="/0")


def test_a_circle_of_redirects_is_named(tmp_path: Path) -> None:
    with HttpServer({"/o": to("/p"), "/p": to("/o")}) as server:
        assert "in a circle, back to http://127.0.0.1" in refused(server, tmp_path / "o")


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("ftp://127.0.0.1/o", "http:// or https://"),
        ("file:///etc/passwd", "a host behind a scheme"),
        ("http:///o", "a host behind a scheme"),
        ("https:o", "a host behind a scheme"),
        ("ftp://host/o", "http:// or https://"),
        ("http://user:hunter2@127.0.0.1/o", "user name"),
        ("http://127.0.0.1:99999/o", "no port 99999"),
        ("http://127.0.0.1:port/o", "Invalid port"),
        ("http://[::1/o", "not followed"),
        ("/o\x01", "not an address"),
        ("/two words", "not an address"),
        ("\\\\host\\o", "not an address"),
        ("/" + "x" * 9000, "9,001 characters"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254, inside"),
        ("http://[::ffff:169.254.169.254]/", "169.254.169.254, inside"),
        ("http://2852039166/", "169.254.169.254, inside"),
        ("", "without saying where"),
    ],
)
def test_a_redirect_against_the_rules_is_refused(tmp_path: Path, location: str, why: str) -> None:
    with HttpServer({"/o": to(location)}) as server:
        message = refused(server, tmp_path / "o")
    assert why in message
    assert "hunter2" not in message
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["http://127.0.0.2:{}/p", "http://localhost:{}/p"])
def test_a_public_source_does_not_send_us_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.setattr(redirects, "_is_public", lambda address: str(address) == "127.0.0.3")
    with HttpServer({"/p": V1}, host="0.0.0.0") as inside:
        there = to(location.format(inside.url.rpartition(":")[2]))
        with HttpServer({"/o": there}, host="127.0.0.3") as server:
            assert "inside this network" in refused(server, tmp_path / "o")
        assert inside.requests == []
        # A name that means another address once it is used: what answered is looked at.
        monkeypatch.setattr(redirects, "_addresses", lambda host: [])
        with HttpServer({"/o": there}, host="127.0.0.3") as server:
            assert "inside this network" in refused(server, tmp_path / "o")


def test_what_a_link_local_address_answers_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = ipaddress.ip_address("169.254.169.254")
    monkeypatch.setattr(redirects, "_peer", lambda response: metadata)
    with HttpServer({"/o": V1}) as server:
        assert "/o: is at 169.254.169.254, inside" in refused(server, tmp_path / "o")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://user:hunter2@127.0.0.1/o", "user name or password"),
        ("ftp://127.0.0.1/o", "http:// or https://"),
        ("http://[::1/o", "not a URL"),
        ("http://", "a host"),
    ],
)
def test_a_url_that_cannot_be_asked_for_is_refused(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(SourceRefused, match=why) as caught:
        get_file(url, tmp_path / "o", settings=SETTINGS, read=Heard())
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_cannot_be_asked_for_is_refused_beside_an_old_checkpoint_too(
    tmp_path: Path,
) -> None:
    leave(tmp_path / "o", 300)
    with pytest.raises(SourceRefused, match="not a URL"):
        get_file("http://[::1/o", tmp_path / "o", settings=SETTINGS, read=Heard())


def test_secrets_are_in_no_message_and_in_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="corpus_platform")
    path = "/o?X-Amz-Signature=hunter2"
    with HttpServer({"/o": V1}, Twist(cut=600), *[Twist(500)] * 9) as server:
        message = failed(server, tmp_path / "o", path=path, token="hunter3")
    told = message + caplog.text + (tmp_path / "o.partial.json").read_text()
    assert "/o: HTTP 500" in told
    assert "hunter" not in told


def test_a_token_with_a_line_break_is_refused_unseen(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}) as server:
        message = refused(server, tmp_path / "o", token="hunter2\r\nX: y")
    assert "line breaks" in message
    assert "hunter2" not in message
