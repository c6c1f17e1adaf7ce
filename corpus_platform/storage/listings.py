"""The bytes of a listing of URLs to listed files: JSON, JSON Lines, text, or what sha256sum writes.

Whoever wrote the listing is not trusted: an entry names what may be fetched, never by which rights
or to where on this machine. No network here; getting the listing, and leaving out what `exclude`
says, is for `sources`.
"""

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from corpus_platform.config import SourceSettings
from corpus_platform.errors import SettingsError, StorageError
from corpus_platform.storage.addresses import (
    Address,
    address,
    beside,
    check_text,
    folder_of,
    told,
    without_query,
)
from corpus_platform.storage.globs import CRAWL
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member
from corpus_platform.storage.sidecars import checksum_line
from corpus_platform.storage.transfer import shown

__all__ = ["MAX_ENTRIES", "MAX_LISTING_BYTES", "listing_location", "read_listing"]

MAX_LISTING_BYTES = 64 << 20  # uncompressed; Common Crawl's 100,000 paths are 14 MB
MAX_ENTRIES = 1_000_000
_OTHER_SUM = re.compile(r"[0-9a-fA-F]{32,}([ \t]|$)")  # of MD5 and longer, with or without a name
_LISTS = ("shards", "files", "urls")


class _Entry(NamedTuple):
    """An entry as it was written. `place` says where, for messages."""

    place: str
    url: str
    sha256: object = None
    bytes: object = None
    crawl: object = None
    name: object = None


def listing_location(source: SourceSettings, base: Path) -> str:
    """Return where the listing of a source is: a URL, or an absolute path.

    A path in the settings is relative to `base`. Raises SettingsError for what cannot be read.
    """
    listing = (source.listing or "").replace(CRAWL, source.crawl or CRAWL)
    try:
        return _listing_location(listing, base)
    except ValueError as error:
        raise SettingsError(f"sources: listing {told(listing)}: {error}") from error


def _listing_location(listing: str, base: Path) -> str:
    check_text(listing)
    if "://" in listing:
        return address(listing, "", local=True).location
    return os.path.normpath(os.path.join(base.absolute(), listing))


def read_listing(data: bytes, *, location: str, source: SourceSettings) -> list[Listed]:
    """Return the files that a listing names, in its order; one that is named twice comes once.

    `location` is where the listing was read: URL or absolute path. Raises SettingsError naming
    the entry that is wrong, StorageError for a broken file.
    """
    where, base = shown(location), _base(source, location)
    found: dict[str, tuple[Listed, str]] = {}  # by location without query
    names: dict[tuple[str, str], tuple[Listed, str]] = {}
    for entry in _entries(_text(data, where), where):
        try:
            listed = _listed(entry, source, base, local="://" not in location)
            plain = without_query(listed.member.location)
            if (before := found.get(plain)) is not None:
                listed = _same(listed, *before)
            other = names.get((listed.crawl, listed.name), before)
            if other is not None and other is not before:
                _two_of_a_name(listed, *other)
        except ValueError as error:
            raise SettingsError(f"{where}: {entry.place}: {error}") from error
        found[plain] = names[listed.crawl, listed.name] = listed, entry.place
    return [listed for listed, _ in found.values()]


def _same(listed: Listed, before: Listed, place: str) -> Listed:
    """Return what two entries of one URL say together; raise ValueError where they disagree."""
    if listed.member.location != before.member.location:
        raise ValueError(
            f"{shown(listed.member.location)} differs from {place} only in what follows the ?; that"
            " may be a signature, and tells no files apart: give them different paths"
        )
    if (listed.crawl, listed.name) != (before.crawl, before.name):
        raise ValueError(
            f"{shown(listed.member.location)} is {before.key!r} in {place} and {listed.key!r} here;"
            " name it once"
        )
    new, old = listed.member, before.member
    for fact in ("sha256", "bytes"):
        one, other = getattr(old, fact), getattr(new, fact)
        if None not in (one, other) and one != other:
            raise ValueError(
                f"{shown(new.location)}: its {fact} is {one} in {place} and {other} here; correct one"
            )
    size = old.bytes if new.bytes is None else new.bytes
    return before._replace(member=replace(new, bytes=size, sha256=new.sha256 or old.sha256))


def _two_of_a_name(listed: Listed, other: Listed, place: str) -> NoReturn:
    raise ValueError(
        f"{shown(listed.member.location)} has the name {listed.name!r} in crawl {listed.crawl}, as"
        f" {shown(other.member.location)} in {place}; give one of them another `name` or crawl"
    )


def _text(data: bytes, where: str) -> str:
    """Return a listing as text, uncompressed and without the mark at its begin."""
    if data.startswith(b"\x1f\x8b"):
        data = _unzipped(data, where)
    if len(data) > MAX_LISTING_BYTES:
        raise SettingsError(
            f"{where}: more than {MAX_LISTING_BYTES} bytes, the limit of a listing; split it"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{where}: no listing: byte {error.start} is not UTF-8; name a list of URLs, as text or JSON"
        ) from error


def _unzipped(data: bytes, where: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(MAX_LISTING_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise StorageError(f"{where}: cannot be unzipped: {error}; get it again") from error


def _entries(text: str, where: str) -> Iterator[_Entry]:
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return _json_entries(text, where)
    if start == "<":
        raise SettingsError(
            f"{where}: no listing: it begins with '<', as a web page does; name a list of URLs"
        )
    if (lines := text.count("\n")) > 2 * MAX_ENTRIES:  # before they are in memory one by one
        _too_many(lines, where)
    return _text_entries(text, where)


def _text_entries(text: str, where: str) -> Iterator[_Entry]:
    count = 0
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        if (count := count + 1) > MAX_ENTRIES:
            _too_many(count, where)
        place = f"line {number}"
        checksum = checksum_line(line)
        if checksum is not None and checksum.name is not None:
            yield _Entry(place, checksum.name, checksum.sha256)
        elif _OTHER_SUM.match(line):
            raise SettingsError(
                f"{where}: {place}: {line[:80]!r}: a sha256 has 64 hexadecimal digits, and a path"
                " stands behind it"
            )
        else:
            yield _Entry(place, line)


def _json_entries(text: str, where: str) -> Iterator[_Entry]:
    try:
        value = _decoded(text)
    except ValueError as error:
        return _json_lines(text, where, error)
    rows, crawl = value if isinstance(value, list) else [], None
    if isinstance(value, dict):
        rows, crawl = _list_of(value, where), value.get("crawl")
    if len(rows) > MAX_ENTRIES:
        _too_many(len(rows), where)
    return (_entry(row, f"entry {i}", where, crawl) for i, row in enumerate(rows, 1))


def _list_of(whole: dict[str, object], where: str) -> list[object]:
    """Return the list in the object that is the listing."""
    keys = [key for key in _LISTS if key in whole]
    if not keys and ("url" in whole or "path" in whole):
        return [whole]  # a line of JSON Lines, alone
    value = whole[keys[0]] if len(keys) == 1 else None
    if not isinstance(value, list):
        found = f"found {' and '.join(keys) or _short(', '.join(whole))}"
        raise SettingsError(f"{where}: one list named {', '.join(_LISTS)} is wanted, {found}")
    return value


def _json_lines(text: str, where: str, whole: ValueError) -> Iterator[_Entry]:
    """Yield the entries of a text that has an object on each line."""
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = _decoded(line)
        except ValueError as error:
            place, said = (f"line {number}: ", error) if count else ("", whole)
            raise SettingsError(f"{where}: {place}not JSON: {said}; correct it") from error
        if (count := count + 1) > MAX_ENTRIES:
            _too_many(count, where)
        yield _entry(row, f"line {number}", where, None)


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _entry(row: object, place: str, where: str, crawl: object) -> _Entry:
    if isinstance(row, str):
        return _Entry(place, row, crawl=crawl)
    if not isinstance(row, dict):
        raise SettingsError(
            f"{where}: {place}: {_short(repr(row))}: a URL, or an object with `url`, is wanted"
        )
    url = row.get("url") if row.get("url") is not None else row.get("path")
    if not isinstance(url, str):
        raise SettingsError(
            f"{where}: {place}: a text `url` (or `path`) is wanted, found {_short(repr(url))} among"
            f" the keys {_short(', '.join(map(str, row)))}"
        )
    size = row.get("bytes") if row.get("bytes") is not None else row.get("size")
    own = row.get("crawl")
    return _Entry(
        place, url, row.get("sha256"), size, crawl if own is None else own, row.get("name")
    )


def _too_many(count: int, where: str) -> NoReturn:
    raise SettingsError(f"{where}: {count} entries or more, limit {MAX_ENTRIES}; split the listing")


def _listed(entry: _Entry, source: SourceSettings, base: str, *, local: bool) -> Listed:
    """Return the file of an entry; raise ValueError for what it may not say."""
    try:
        place = address(entry.url.strip(), base, local=local)
    except ValueError as error:
        raise ValueError(f"{told(entry.url)}: {error}") from error
    crawl = _crawl(entry, source)
    name = _own_name(entry.name) if entry.name is not None else _name(place, crawl)
    sidecar = beside(place.location) if source.sidecars else None
    member = Member(place.location, _size(entry.bytes), _sha256(entry.sha256), sidecar=sidecar)
    return Listed(crawl, name, member)


def _base(source: SourceSettings, location: str) -> str:
    """Return what stands before relative entries: a URL or an absolute path, with / at its end."""
    if source.base_url is None:
        return folder_of(location)
    try:
        # Of a file in the folder, since a folder is no address.
        return folder_of(address(f"{source.base_url}file", "", local=True).location)
    except ValueError as error:
        raise SettingsError(f"sources: base_url {told(source.base_url)}: {error}") from error


def _crawl(entry: _Entry, source: SourceSettings) -> str:
    if entry.crawl is None and source.crawl is not None:
        return source.crawl
    crawl = entry.crawl
    if crawl is None:
        raise ValueError(
            f"{told(entry.url)}: of no crawl; give the entry a `crawl`, or the source the key `crawl`"
        )
    if not isinstance(crawl, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", crawl):
        raise ValueError(
            f"crawl {_short(repr(crawl))}: a name of at most 100 letters, digits, . _ and - is wanted"
        )
    return crawl


def _sha256(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch("[0-9a-fA-F]{64}", value):
        raise ValueError(f"sha256 {_short(repr(value))}: 64 hexadecimal digits are wanted")
    return value.lower()


def _size(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"bytes {_short(repr(value))}: a whole number, 0 or more, is wanted")
    return value


def _own_name(name: object) -> str:
    """Return the name that an entry gives itself."""
    if not isinstance(name, str):
        raise ValueError(f"name {_short(repr(name))}: a text is wanted")
    try:
        check_text(name)
    except ValueError as error:
        raise ValueError(f"name {_short(repr(name))}: {error}") from error
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(
            f"name {_short(repr(name))}: it has an empty part, . or ..; leave that out"
        )
    return name


def _name(place: Address, crawl: str) -> str:
    """Return what follows the crawl's folder, else the path below the base, else the whole path."""
    path = "/" + place.path
    folder = _folder_of_crawl(crawl).search(path)
    name = path[folder.end() :] if folder else place.rest or path
    return re.sub("//+", "/", name).strip("/") if "//" in name or name[0] == "/" else name


@lru_cache(maxsize=1024)
def _folder_of_crawl(crawl: str) -> re.Pattern[str]:
    return re.compile(f"/(?:crawl=)?{re.escape(crawl)}/")


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
