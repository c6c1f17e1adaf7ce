"""What an answer to a request for (the rest of) a file means: the answer decides, not the request.

Pure: status and headers in, one of four meanings out. No body is read here.
"""

import datetime
import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from corpus_platform.errors import SourceRefused
from corpus_platform.storage.checkpoints import Version

__all__ = ["Again", "Asked", "Body", "Complete", "Meaning", "StartOver", "judge", "retry_after"]

SETTLED_SECONDS = 60.0  # RFC 7232, 2.2.2: a time is a strong validator if a minute older than Date
_FINAL = (501, 505)  # of 5xx: the server will never be able to
_PASSING = (408, 425, 429)  # of 4xx


@dataclass(frozen=True)
class Asked:
    """A request: which file, from where on, and what is known of it.

    With an offset of 0 the whole was asked for, without Range. `expect` is the size that a listing
    states, `size` the one that this source told before.
    """

    where: str
    offset: int = 0
    version: Version | None = None
    size: int | None = None
    expect: int | None = None


@dataclass(frozen=True)
class Body:
    """The body is the file from `start` up to `end` (None: not told) of `size` (None: not told)."""

    start: int
    end: int | None
    size: int | None
    version: Version


@dataclass(frozen=True)
class Complete:
    """Nothing is missing of what is held."""

    size: int


@dataclass(frozen=True)
class StartOver:
    """What is held cannot be continued."""

    reason: str


@dataclass(frozen=True)
class Again:
    """A fault that may pass; `asked` are the seconds the server asks to wait."""

    fault: str
    asked: float | None = None


Meaning = Body | Complete | StartOver | Again


def judge(asked: Asked, status: int, headers: Mapping[str, str]) -> Meaning:
    """Return what an answer means; `headers` are looked up in lower case.

    Raises SourceRefused where asking again is no help.
    """
    if status == 416 and asked.offset:
        return _of_expected_size(asked, _nothing_left(asked, headers))
    if status in _PASSING or (status >= 500 and status not in _FINAL):
        return Again(f"HTTP {status}", retry_after(headers.get("retry-after")))
    if status not in (200, 206):
        raise SourceRefused(f"{asked.where}: HTTP {status}{_HINTS.get(status, '')}")
    _check_encoding(asked, headers)
    meaning = _whole(asked, headers) if status == 200 else _part(asked, headers)
    return _of_expected_size(asked, meaning)


_HINTS = {
    401: " (a token is wanted, or another one)",
    403: " (it may not be read, or not with this token)",
    404: " (there is no such file)",
    410: " (the file was taken away)",
}


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After asks for, never less than 0; None for no sense."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}", value, re.ASCII):
        return float(value)
    at = _time(value)
    return None if at is None else max(at - time.time(), 0.0)


def _time(value: str | None) -> float | None:
    try:
        at = email.utils.parsedate_to_datetime(value or "")
        return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _version(headers: Mapping[str, str]) -> Version:
    etag, changed = headers.get("etag"), headers.get("last-modified")
    changed_at, told_at = _time(changed), _time(headers.get("date"))
    known = changed_at is not None and told_at is not None
    # What is no entity tag could not be sent back as one.
    etag = etag if etag and re.fullmatch(r'(W/)?"[!#-~]{0,1000}"', etag) else None
    settled = known and told_at - changed_at >= SETTLED_SECONDS
    return Version(etag, changed if changed_at is not None else None, settled)


def _check_encoding(asked: Asked, headers: Mapping[str, str]) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise SourceRefused(
            f"{asked.where}: answers with Content-Encoding {encoding[:40]!r} though none was asked"
            " for: the bytes are not those of the file; have the server or proxy send it as it is"
        )


def _of_expected_size(asked: Asked, meaning: Meaning) -> Meaning:
    size = meaning.size if isinstance(meaning, Body | Complete) else None
    if size is not None and asked.expect is not None and size != asked.expect:
        raise SourceRefused(
            f"{asked.where}: has {size:,} bytes, its listing states {asked.expect:,};"
            " the listing or the file is of another state"
        )
    return meaning


def _nothing_left(asked: Asked, headers: Mapping[str, str]) -> Meaning:
    told = re.fullmatch(r"bytes \*/(\d{1,18})", headers.get("content-range", ""), re.ASCII)
    etag = headers.get("etag")
    if told is None:
        return StartOver("HTTP 416 without the size")
    size = int(told[1])
    if size != asked.offset or asked.size not in (None, size):
        return StartOver(f"HTTP 416: it has {size:,} bytes, {asked.offset:,} are held")
    if etag is not None and asked.version is not None and etag != asked.version.etag:
        return StartOver("it was changed")
    return Complete(size)


def _whole(asked: Asked, headers: Mapping[str, str]) -> Meaning:
    size, version = _length(headers), _version(headers)
    same = asked.version is not None and asked.version.proves(version)
    if same and None not in (size, asked.size) and size != asked.size:
        return Again(f"{size:,} bytes told, {asked.size:,} before, of the same version")
    return Body(0, size, size, version)


def _part(asked: Asked, headers: Mapping[str, str]) -> Meaning:
    if asked.offset == 0 or asked.version is None:
        return Again("HTTP 206, a part, where the whole was asked for")
    if headers.get("content-type", "").lower().startswith("multipart/"):
        return StartOver("several parts in place of one")
    told = re.fullmatch(
        r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", headers.get("content-range", ""), re.ASCII
    )
    if told is None:
        return StartOver("HTTP 206 without a Content-Range")
    start, end = int(told[1]), int(told[2]) + 1
    size = asked.size if told[3] == "*" else int(told[3])
    if start != asked.offset or end <= start or (size is not None and end > size):
        return StartOver(f"bytes from {asked.offset:,} on asked for, {told[0]} answered")
    if asked.size not in (None, size):
        return StartOver(f"{size:,} bytes told, {asked.size:,} before")
    if _length(headers) not in (None, end - start):
        return StartOver(f"{told[0]} answered with a Content-Length of {_length(headers):,}")
    if not asked.version.proves(_version(headers)):
        return StartOver("it was changed")
    return Body(start, end, size, asked.version)


def _length(headers: Mapping[str, str]) -> int | None:
    """Return the length of the body; where it comes in chunks Content-Length means nothing."""
    told = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"\d{1,18}", told, re.ASCII):
        return None
    return int(told)
