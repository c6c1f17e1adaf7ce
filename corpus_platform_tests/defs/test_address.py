"""Tests of the addresses that the web UI may listen on."""

import socket

import pytest

from corpus_platform.defs.address import Address, address_on, listening_ip
from corpus_platform.errors import UsageError


@pytest.mark.parametrize(
    ("host", "ip"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.8.9.1", "127.8.9.1"),
        ("::1", "::1"),
        ("localhost", "127.0.0.1"),
        ("127.1", "127.0.0.1"),  # as old programs write it
        ("2130706433", "127.0.0.1"),
    ],
)
def test_loopback_in_any_spelling_needs_no_proxy(host: str, ip: str) -> None:
    assert listening_ip(host, behind_a_proxy=False) == ip
    assert listening_ip(host, behind_a_proxy=True) == ip
    assert Address(ip, 1).is_loopback


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "0", "10.1.2.3", "192.168.0.1", "::ffff:10.1.2.3", "fe80::1"]
)
def test_an_address_that_others_reach_needs_a_proxy(host: str) -> None:
    with pytest.raises(UsageError, match=r"no login.*--i-have-an-authenticating-proxy"):
        listening_ip(host, behind_a_proxy=False)
    assert not Address(listening_ip(host, behind_a_proxy=True), 1).is_loopback


def test_a_name_with_one_address_that_others_reach_needs_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(host: str, *_: object, **__: object) -> list[tuple]:
        assert host == "both.example"
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(UsageError, match=r"--host both\.example \(192\.0\.2\.7\) is not loopback"):
        listening_ip("both.example", behind_a_proxy=False)


@pytest.mark.parametrize("host", ["no.such.name.invalid", "a b", "1.2.3.4.5", "x" * 300])
def test_what_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"--host .* is no address of this machine"):
        listening_ip(host, behind_a_proxy=True)


def test_a_free_port_is_found_on_either_kind_of_loopback() -> None:
    for ip in ("127.0.0.1", "::1"):
        assert 1024 <= address_on(ip, 0).port <= 65535


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(UsageError, match=r"port 0 on 192\.0\.2\.7 cannot be used: "):
        address_on("192.0.2.7", 0)


@pytest.mark.parametrize(
    ("ip", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:3000/"),
        ("::1", "http://[::1]:3000/"),
        ("192.0.2.7", "http://192.0.2.7:3000/"),
        ("0.0.0.0", "http://127.0.0.1:3000/"),
        ("::", "http://[::1]:3000/"),
    ],
)
def test_the_url_is_where_this_machine_reaches_it(ip: str, url: str) -> None:
    assert Address(ip, 3000).url == url
