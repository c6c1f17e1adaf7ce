"""Requests that follow redirects, by rules of ours: where an answer sends us is untrusted.

At most ten hops, never in a circle, never from https to http, never to another scheme, never to an
address with a user name. A token goes to the scheme, host and port it was given for, nowhere else.
A source on the public internet never sends us to an address inside (loopback, private, link-local),
checked before the request and at the connection it was made on; a source that is inside itself
may, since mirrors in a company's net do. What a link-local address answers (metadata of clouds) is
taken from nobody, without a redirect neither: a listing may name it as well. Behind a proxy of the environment (HTTPS_PROXY and so on, which are honoured) names are the
proxy's to resolve, and the connection says nothing; the check before the request stays.
"""

import contextlib
import ipaddress
import re
import socket
import ssl
import urllib.request
from collections.abc import Generator, Mapping

import httpx2

from corpus_platform.errors import SourceRefused
from corpus_platform.storage.transfer import shown

__all__ = ["MAX_REDIRECTS", "fault_of", "open_answer", "parse_url"]

MAX_REDIRECTS = 10
MAX_LOCATION = 8192  # signed addresses have some two thousand characters
# Without a backslash, which some take for a slash; a scheme without a host would be joined as a path.
_LOCATION = re.compile(r"(?:[a-z][a-z0-9+.-]*://[^/?#\\]|(?![a-z][a-z0-9+.-]*:))[!-\[\]-~]*", re.I)
_REDIRECTS = (301, 302, 303, 307, 308)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_url(url: str) -> httpx2.URL:
    """Return a URL that may be requested; raise SourceRefused for another."""
    try:
        parsed = httpx2.URL(url)
        port = parsed.port
    except (httpx2.InvalidURL, ValueError) as error:
        raise SourceRefused(f"{shown(url)}: not a URL: {error}") from error
    if parsed.userinfo:
        raise SourceRefused(
            f"{shown(url)}: has a user name or password; secrets come from the environment alone"
        )
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise SourceRefused(f"{shown(url)}: http:// or https:// and a host are wanted")
    if port is not None and not 0 < port < 65536:
        raise SourceRefused(f"{shown(url)}: there is no port {port}")
    return parsed


@contextlib.contextmanager
def open_answer(
    client: httpx2.Client, url: str, *, headers: Mapping[str, str], token: str | None = None
) -> Generator[httpx2.Response, None, None]:
    """Ask for a URL; give the answer that is no redirect, its body not read yet.

    Raises SourceRefused for redirects against the rules, httpx2.TransportError for faults.
    """
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise SourceRefused(f"{shown(url)}: the token for it has blanks, line breaks or letters beyond ASCII")  # fmt: skip
    hops, public = [parse_url(url)], False
    while True:
        response = client.send(
            client.build_request("GET", hops[-1], headers=_told_to(hops, headers, token)),
            stream=True,
            auth=None,
            follow_redirects=False,
        )
        with contextlib.closing(response):
            peer = _peer(response)
            if peer is not None:
                _check_place(hops, peer, public=public)
            if response.status_code not in _REDIRECTS:
                yield response
                return
            public = public or (peer is not None and _is_public(peer))
            hops.append(_next_hop(hops, response.headers.get("location")))
        _check_address(hops, public=public)


def fault_of(error: httpx2.TransportError, url: str) -> str:
    """Return what to say of a fault; raise SourceRefused for one that trying again does not help."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise SourceRefused(
                f"{shown(url)}: its certificate is not valid: {cause.verify_message}"
                " (SSL_CERT_FILE names further authorities)"
            ) from error
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)):
        raise SourceRefused(f"{shown(url)}: cannot be asked for: {text}") from error
    return text


def _told_to(
    hops: list[httpx2.URL], headers: Mapping[str, str], token: str | None
) -> dict[str, str]:
    if token is None or _origin(hops[-1]) != _origin(hops[0]):
        return dict(headers)
    return {**headers, "Authorization": f"Bearer {token}"}


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


def _next_hop(hops: list[httpx2.URL], location: str | None) -> httpx2.URL:
    """Return where an answer sends us; raise SourceRefused where it may not."""
    where = shown(str(hops[0]))
    if not location:
        raise SourceRefused(f"{where}: redirects without saying where to")
    if len(location) > MAX_LOCATION or not _LOCATION.fullmatch(location):
        raise SourceRefused(
            f"{where}: redirects to what is not an address ({len(location):,} characters;"
            f" at most {MAX_LOCATION:,} are followed, ASCII without blanks, a host behind a scheme)"
        )
    try:
        found = parse_url(str(hops[-1].join(location)))
    except (SourceRefused, httpx2.InvalidURL, ValueError) as error:
        raise SourceRefused(f"{where}: redirects to an address that is not followed: {error}") from error  # fmt: skip
    found = found.copy_with(fragment=None)
    if hops[-1].scheme == "https" and found.scheme == "http":
        raise SourceRefused(f"{where}: redirects from https to {shown(str(found))}; give an address that stays encrypted")  # fmt: skip
    if found in hops:
        raise SourceRefused(f"{where}: redirects in a circle, back to {shown(str(found))}")
    if len(hops) > MAX_REDIRECTS:
        raise SourceRefused(f"{where}: more than {MAX_REDIRECTS} redirects, the last to {shown(str(found))}")  # fmt: skip
    return found


def _check_address(hops: list[httpx2.URL], *, public: bool) -> None:
    """Raise SourceRefused where a redirect leads to an address inside."""
    for address in _addresses(hops[-1].host):
        _check_place(hops, address, public=public)


def _check_place(hops: list[httpx2.URL], address: _Address, *, public: bool) -> None:
    """Raise SourceRefused for an address inside; without a redirect for a link-local one alone."""
    if address.is_link_local or (public and not _is_public(address)):
        way = f"redirects to {shown(str(hops[-1]))}, which " if len(hops) > 1 else ""
        raise SourceRefused(f"{shown(str(hops[0]))}: {way}is at {address}, inside this network")


def _addresses(host: str) -> list[_Address]:
    """Return the addresses of a host, none where its name is not known here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [_address(str(place[0])) for *_, place in found]


def _address(text: str) -> _Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _peer(response: httpx2.Response) -> _Address | None:
    """Return the address that answered, None where it is a proxy's or not told."""
    stream = response.extensions.get("network_stream")
    if stream is None or urllib.request.getproxies():
        return None
    place = stream.get_extra_info("server_addr")
    return _address(str(place[0])) if place else None


def _is_public(address: _Address) -> bool:
    return address.is_global
