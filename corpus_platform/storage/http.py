"""Files over HTTP and HTTPS: fetched whole, resumed after any fault, never a mix of two versions.

A download goes on with Range and If-Range where its source named the version by a strong ETag or a
settled time; what the server then answers decides, not what was asked (`http_answers`). A source
that names no version cannot prove that the rest belongs to what is held, so it begins anew. Proxies
and certificates of the environment count (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE); .netrc and cookies
do not.
"""

import functools
import http.cookiejar
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import SourceRefused, StorageError
from corpus_platform.storage.http_answers import (
    Again,
    Asked,
    Body,
    Complete,
    StartOver,
    judge,
)
from corpus_platform.storage.partial import Partial
from corpus_platform.storage.redirects import fault_of, open_answer, parse_url
from corpus_platform.storage.transfer import Fetched, Patience, Read, Whole, shown

__all__ = ["Answer", "get_bytes", "get_file"]


@dataclass(frozen=True)
class Answer:
    """A small document. `url` is where it was in the end; its query may be a secret."""

    data: bytes
    url: str
    headers: Mapping[str, str]  # whatever the case of a name


def get_file(
    url: str,
    target: Path,
    *,
    settings: DownloadSettings,
    read: Read,
    expect: int | None = None,
    token: str | None = None,
    patience: Patience | None = None,
    whole: Whole | None = None,
) -> Fetched:
    """Fetch a file; when this returns it is there, whole and flushed, and nothing beside it.

    `read` hears of all bytes that are there, resumed ones too, and of negative ones where they are
    dropped. `expect` is the size that a listing states: another size is an error. `token` is told
    to the host of `url` alone. On any fault what is there is kept, and the next call goes on. `whole`
    is called just before the file gets its name.
    """
    patience = patience or Patience(settings, shown(url))
    parse_url(url)  # before anything is made for it
    with Partial(target, url, read=read) as partial:
        download = _Download(url, partial, settings, patience, expect=expect, token=token)
        download.run()
        fetched = Fetched(
            bytes=partial.held,
            sha256=partial.sha256,
            length_known=download.size is not None,
            version=partial.version.name if partial.version else None,
            transferred=download.transferred,
            attempts=patience.attempts,
        )
        if whole is not None:
            whole(fetched)
        partial.publish()
        return fetched


def get_bytes(
    url: str,
    *,
    settings: DownloadSettings,
    max_bytes: int,
    token: str | None = None,
    patience: Patience | None = None,
) -> Answer:
    """Fetch a small document, unencoded; raise SourceRefused for one larger than a limit."""
    patience = patience or Patience(settings, shown(url))
    client = _client(os.getpid(), settings.timeout_seconds)
    while True:
        patience.began()
        try:
            with open_answer(client, url, headers={}, token=token) as response:
                meaning = judge(Asked(shown(url)), response.status_code, response.headers)
                if not isinstance(meaning, Again):
                    data = _at_most(response.iter_raw(), max_bytes, shown(url))
                    return Answer(data, str(response.url), response.headers)
                fault, asked = meaning.fault, meaning.asked
        except httpx2.TransportError as error:
            fault, asked = fault_of(error, url), None
        patience.wait(fault, asked=asked)


@dataclass
class _Download:
    """The requests for one file."""

    url: str
    partial: Partial
    settings: DownloadSettings
    patience: Patience
    expect: int | None
    token: str | None
    transferred: int = 0
    furthest: int = field(default=0, init=False)  # bytes held of this version, at best
    begun_anew: int = field(default=0, init=False)
    ended_at: int | None = field(default=None, init=False)  # where a body ended too early, in order

    @property
    def size(self) -> int | None:
        """How long the file is, by its source or its listing."""
        told = self.partial.expected_size
        return told if told is not None else self.expect

    def run(self) -> None:
        """Make requests until the file is whole."""
        if self.expect is not None and self.partial.expected_size not in (None, self.expect):
            self._drop("its listing states another size now")
        self.furthest = self.partial.held
        whole = 0 < self.partial.held == self.size
        while not whole:
            self.patience.began()
            fault, asked = None, None
            try:
                whole, fault, asked = self._request()
            except httpx2.TransportError as error:
                fault = fault_of(error, self.url)
            if fault is not None:
                self.patience.wait(fault, asked=asked)

    def _request(self) -> tuple[bool, str | None, float | None]:
        """Make one request and keep what it brings; return whether the file is whole then.

        Where it is not: what was wrong, if anything was, and for how long the server asks to wait.
        """
        asked = self._asked()
        client = _client(os.getpid(), self.settings.timeout_seconds)
        with open_answer(client, self.url, headers=_range(asked), token=self.token) as response:
            match judge(asked, response.status_code, response.headers):
                case Body() as body:
                    return self._take(body, response.iter_raw())
                case Complete(size):
                    self.partial.expected_size = size
                    return True, None, None
                case StartOver(reason):
                    self._drop(reason)
                    return False, None, None
                case Again() as again:
                    return False, again.fault, again.asked

    def _asked(self) -> Asked:
        partial = self.partial
        provable = partial.version is not None and partial.version.validator is not None
        return Asked(
            where=shown(self.url),
            offset=partial.held if provable else 0,
            version=partial.version,
            size=partial.expected_size,
            expect=self.expect,
        )

    def _take(self, body: Body, chunks: Iterator[bytes]) -> tuple[bool, str | None, float | None]:
        """Keep a body; return as `_request` does."""
        partial = self.partial
        if body.start == 0:
            self._begin(body)
        partial.expected_size = body.size
        for chunk in chunks:
            self.transferred += len(chunk)
            if self._too_long(body, partial.held + len(chunk)):
                self._drop("more bytes came than were told")
                return False, None, None
            partial.append(chunk)
            if partial.held > self.furthest:
                self.furthest = partial.held
                self.patience.progressed()
        if self.size is None or partial.held == self.size:
            return True, None, None
        if partial.held == body.end:
            return False, None, None  # a server may send less than the rest
        return False, self._ended_early(), None

    def _begin(self, body: Body) -> None:
        """Take what comes as the file from its start on."""
        if self.partial.held:
            self._count_anew("the source sent all of it again")
        if self.partial.version != body.version:
            self.furthest = 0
        self.partial.begin(body.version, body.size)

    def _drop(self, reason: str) -> None:
        self._count_anew(reason)
        self.partial.drop()

    def _count_anew(self, reason: str) -> None:
        """Raise StorageError where a file begins anew without end."""
        self.begun_anew += 1
        if self.begun_anew >= max(self.settings.tries, 2):
            raise StorageError(
                f"{shown(self.url)}: had to begin anew {self.begun_anew} times (download.tries),"
                f" the last time since {reason}; run again to go on"
            )

    def _too_long(self, body: Body, held: int) -> bool:
        if body.end is not None:
            return held > body.end
        if self.expect is not None and held > self.expect:
            raise SourceRefused(f"{shown(self.url)}: sends more than the {self.expect:,} bytes that its listing states")  # fmt: skip
        return False

    def _ended_early(self) -> str:
        """Return the fault of a body that ended in order, but too early; the second time it is
        taken for the end."""
        held = self.partial.held
        fault = f"ended after {held:,} of {self.size:,} bytes"
        if self.ended_at == held:
            raise SourceRefused(f"{shown(self.url)}: {fault}, twice, as if that were all")
        self.ended_at = held
        return fault


def _range(asked: Asked) -> dict[str, str]:
    if not asked.offset or asked.version is None or asked.version.validator is None:
        return {}
    return {"Range": f"bytes={asked.offset}-", "If-Range": asked.version.validator}


def _at_most(chunks: Iterator[bytes], limit: int, where: str) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > limit:
            raise SourceRefused(f"{where}: longer than the {limit:,} bytes that are read of it")
    return bytes(data)


@functools.lru_cache(maxsize=4)
def _client(process: int, timeout: float) -> httpx2.Client:
    """Return the connections of this process (a fork must not share them), without cookies."""
    nobody = http.cookiejar.DefaultCookiePolicy(allowed_domains=[])
    return httpx2.Client(
        headers={"User-Agent": "corpus-platform", "Accept-Encoding": "identity"},
        cookies=http.cookiejar.CookieJar(nobody),
        timeout=timeout,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
    )
