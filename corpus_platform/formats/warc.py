"""Plain bytes in chunks to records: the conversion records of WARC files, as WET files have them.

A conversion record is the text of a page, and one record of the shard; records of other types are
no documents and are counted by type. Framing that cannot be trusted raises DamagedShard, since
what follows has no beginning then; a fault inside a record costs that record. Written by hand
since fastwarc 2.0.1 takes a missing or broken Content-Length for 0, a header that is cut short for
a whole one and the first record with bare LF for the end of the file, all without a word.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from corpus_platform.config import Fields
from corpus_platform.document import EXCERPT_BYTES, Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.iso_639 import short_code
from corpus_platform.formats.records import Cursor, Reason, excerpt, make_document

__all__ = ["MAX_HEADER_BYTES", "read_warc"]

MAX_HEADER_BYTES = 1 << 16  # of one record; an address alone may have some thousands
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_VERSION = re.compile(rb"WARC/\d\.\d+\s")
_LENGTH = re.compile(r"[0-9]{1,18}")
_UUID = re.compile(r"<?urn:uuid:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})>?", re.IGNORECASE)
_TYPES = frozenset(
    ("warcinfo", "response", "resource", "request", "metadata", "revisit", "continuation")
)
_ID, _URL, _LANG = "warc-record-id", "warc-target-uri", "warc-identified-content-language"
# What becomes a field of its own, or frames the record and says nothing of the page.
_TAKEN = frozenset({_ID, _URL, _LANG, "warc-type", "content-length"})
_DIGESTS = frozenset({"md5", "sha1", "sha256", "sha512"})
_SURROGATES = re.compile("[\ud800-\udfff]")


def read_warc(
    chunks: Iterable[bytes],
    fields: Fields,
    cursor: Cursor,
    passed: Counter[str],
    *,
    shard: str,
    max_record_bytes: int,
) -> Iterator[Document | Rejected]:
    """Yield the conversion records of one stream in order, and move `cursor` behind them.

    A record counts as one line. Records of other types are counted in `passed`. Raises
    DamagedShard for what is no record, a record that is cut off or has not the length it says,
    and a file that has pages but no texts of them.
    """
    stream, begun, types = _Stream(chunks), cursor.row, Counter[str]()
    while (frame := _next_frame(stream, shard)) is not None:
        if frame.kind in ("conversion", ""):
            found, content = _read(stream, frame, fields, cursor, shard, max_record_bytes)
            yield _outcome(found, content, cursor)
            cursor.row += 1
            cursor.line += 1
        else:
            types[frame.kind] += 1
            passed[frame.kind] += 1
            _skip(stream, frame, frame.size, shard)
        _end(stream, frame, shard)
        cursor.offset += stream.position - frame.start
    if cursor.row == begun and types.keys() - {"warcinfo"}:
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(types.items()))
        reason = (
            f"no conversion record, but {found}: the texts of a crawl are in its WET files;"
            " leave it out with `exclude`"
        )
        raise DamagedShard(shard, reason=reason)


class _Header(NamedTuple):
    name: str  # as it is written
    values: list[str]


class _Frame(NamedTuple):
    """A record up to its block; `kind` is empty where its type cannot be told."""

    start: int
    head: bytes
    headers: dict[str, _Header]  # by names in lower case
    fault: Reason | None
    kind: str
    size: int

    def first(self, key: str) -> str | None:
        return self.headers[key].values[0] if key in self.headers else None


def _next_frame(stream: "_Stream", shard: str) -> _Frame | None:
    start = stream.position
    begin = stream.peek(10)
    if not begin:
        return None
    if not _VERSION.match(begin):
        raise _damage(
            shard, start, f"begins with {excerpt(begin)!r}, not with WARC/1.0 or the like"
        )
    end = stream.search(_HEADER_END, MAX_HEADER_BYTES)
    if end < 0:
        what = f"has a header of more than {MAX_HEADER_BYTES} bytes, or is cut off in it"
        raise _damage(shard, start, what)
    head = stream.take(end)
    headers, fault = _headers(head)
    kinds = {value.lower() for value in _values(headers, "warc-type")}
    kind = kinds.pop() if len(kinds) == 1 else ""
    if kind not in ("", "conversion", *_TYPES):
        kind = "other"
    lengths = set(_values(headers, "content-length"))
    if len(lengths) != 1 or not _LENGTH.fullmatch(length := lengths.pop()):
        found = ", ".join(_values(headers, "content-length")) or "none"
        raise _damage(shard, start, f"wants one Content-Length, a number; found {found[:80]!r}")
    return _Frame(start, head, headers, fault if kind else "invalid_header", kind, int(length))


def _headers(head: bytes) -> tuple[dict[str, _Header], Reason | None]:
    """Return the headers, and what is wrong with them; a line that begins with blanks goes on."""
    text = head.decode("utf-8", "surrogateescape")
    fault: Reason | None = "invalid_utf8" if _SURROGATES.search(text) else None
    headers: dict[str, _Header] = {}
    last: list[str] = []
    for line in text.rstrip("\r\n").split("\n")[1:]:
        name, colon, value = line.partition(":")
        if line[:1] in (" ", "\t") and last:
            last[-1] += " " + line.strip()
        elif colon and name.strip():
            last = headers.setdefault(name.strip().lower(), _Header(name.strip(), [])).values
            last.append(value.strip())
        else:
            fault = fault or "invalid_header"
    return headers, fault


def _values(headers: dict[str, _Header], key: str) -> list[str]:
    return headers[key].values if key in headers else []


def _read(
    stream: "_Stream",
    frame: _Frame,
    fields: Fields,
    cursor: Cursor,
    shard: str,
    max_record_bytes: int,
) -> tuple[Document | Reason, bytes]:
    """Return the document or the reason why it is none, and the bytes to show then."""
    if frame.size > max_record_bytes:
        begin = stream.take(EXCERPT_BYTES)
        _skip(stream, frame, frame.size - len(begin), shard)
        return "record_too_long", begin
    block = stream.take(frame.size)
    if len(block) < frame.size:
        raise _cut_off(shard, frame, len(block))
    found = frame.fault or _fault(frame, block)
    if found:
        return found, block or frame.head
    try:
        values = _record_values(frame, block.decode(), fields)
    except UnicodeDecodeError:
        return "invalid_utf8", block
    made = make_document(values, fields, shard=shard, row=cursor.row, line=cursor.line)
    return made, block or frame.head


def _fault(frame: _Frame, block: bytes) -> Reason | None:
    media = (frame.first("content-type") or "text/plain").partition(";")[0]
    if media.strip().lower() != "text/plain":
        return "not_plain_text"
    digest = frame.first("warc-block-digest")
    return "digest_mismatch" if digest and not _agrees(digest, block) else None


def _agrees(digest: str, block: bytes) -> bool:
    """Tell whether a digest is that of the block; one of an unknown algorithm is not judged."""
    algorithm, _, value = digest.partition(":")
    name = algorithm.strip().lower().replace("-", "")
    if name not in _DIGESTS:
        return True
    raw = hashlib.new(name, block, usedforsecurity=False).digest()
    texts = {
        raw.hex(),
        base64.b32encode(raw).decode().rstrip("=").lower(),
        base64.b64encode(raw).decode().rstrip("=").lower(),
    }
    return value.strip().rstrip("=").lower() in texts


def _record_values(frame: _Frame, text: str, fields: Fields) -> dict[str, object]:
    """Return the fields of a record: the text, what names the page, and all other headers."""
    values: dict[str, object] = {
        header.name: header.values if len(header.values) > 1 else header.values[0]
        for key, header in frame.headers.items()
        if key not in _TAKEN
    }
    languages = (frame.first(_LANG) or "").split(",")
    if len(languages) > 1:
        values[frame.headers[_LANG].name] = frame.first(_LANG)
    values[fields.id] = _identity(frame.first(_ID) or "")
    values[fields.url] = (frame.first(_URL) or "").removeprefix("<").removesuffix(">")
    values[fields.lang] = short_code(languages[0])
    values[fields.text] = text
    return values


def _identity(record_id: str) -> str:
    """Return a UUID as 32 hex digits, as ids of pages are written elsewhere; else what it is."""
    uuid = _UUID.fullmatch(record_id)
    if uuid:
        return uuid[1].replace("-", "").lower()
    return record_id.removeprefix("<").removesuffix(">")


def _outcome(found: Document | Reason, content: bytes, cursor: Cursor) -> Document | Rejected:
    if isinstance(found, Document):
        return found
    return Rejected(cursor.row, cursor.line, cursor.offset, found, excerpt(content))


def _skip(stream: "_Stream", frame: _Frame, size: int, shard: str) -> None:
    missing = size - stream.skip(size)
    if missing:
        raise _cut_off(shard, frame, frame.size - missing)


def _end(stream: "_Stream", frame: _Frame, shard: str) -> None:
    """Pass over the two line ends behind a block; more of them do no harm."""
    ends = _HEADER_END.match(stream.peek(4))
    if not ends:
        what = (
            f"has not the {frame.size} bytes of its Content-Length, or is cut off: two line ends"
            f" are wanted behind them, found {excerpt(stream.peek(12))!r}"
        )
        raise _damage(shard, frame.start, what)
    stream.take(ends.end())
    while blank := len(begin := stream.peek(1024)) - len(begin.lstrip(b"\r\n")):
        stream.take(blank)


def _cut_off(shard: str, frame: _Frame, found: int) -> DamagedShard:
    what = f"is cut off: it has {found} of the {frame.size} bytes of its Content-Length"
    return _damage(shard, frame.start, what)


def _damage(shard: str, start: int, what: str) -> DamagedShard:
    return DamagedShard(shard, reason=f"the WARC record at byte {start} of the content {what}")


class _Stream:
    """A stream of chunks; `position` is that of the next byte to take."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._held, self._at = iter(chunks), b"", 0
        self.position = 0

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._held, self._at = self._held[self._at :] + chunk, 0
        return True

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end."""
        while len(self._held) - self._at < size and self._more():
            pass
        return self._held[self._at : self._at + size]

    def search(self, pattern: re.Pattern[bytes], limit: int) -> int:
        """Return how far it is to the end of a pattern, -1 where it is not within `limit` bytes."""
        while not (match := pattern.search(self._held, self._at, self._at + limit)):
            if len(self._held) - self._at >= limit or not self._more():
                return -1
        return match.end() - self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end."""
        return b"".join(self._pieces(size))

    def skip(self, size: int) -> int:
        """Pass over `size` bytes, fewer only at the end; return how many."""
        return sum(map(len, self._pieces(size)))

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size and self.peek(1):
            piece = self._held[self._at : self._at + size]
            self._at += len(piece)
            self.position += len(piece)
            size -= len(piece)
            yield piece
