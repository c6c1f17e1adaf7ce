"""What an entry of a listing names, to the location of a file: of this machine, http, https or s3.

Whoever wrote the entry is not trusted: it names a file by no user and password, none above the
folder that it is relative to, and none of this machine unless the listing lies here. A ValueError
says what is wrong; who reads the listing says where.
"""

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from corpus_platform.storage.globs import SIDECAR

__all__ = [
    "Address",
    "address",
    "beside",
    "check_text",
    "file_path",
    "folder_of",
    "told",
    "without_query",
]

_MAX_BYTES = 4096  # of a location or name; PATH_MAX of Linux, half of what most servers take
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# A relative path of parts that begin with no dot, with nothing in it that needs a closer look: most
# entries are such, and a listing of them takes two thirds of the time.
_PLAIN = re.compile(r"[\w=+,~-][\w.=+,~-]*(?:/[\w=+,~-][\w.=+,~-]*)*", re.ASCII)
_CLEAN = re.compile(r"(?:[\w/:=&+!$,;'@()*\[\]~?.-]|%[0-9A-Fa-f]{2})*", re.ASCII)
_LEGAL = "/:=&+!$,;'@()*[]~?%"  # stays as it is in a URL; everything else is escaped


class Address(NamedTuple):
    """Where a file lies.

    `path` is what follows host or bucket, unescaped and without a query; `rest` the part of it
    below the base, None where it lies elsewhere.
    """

    location: str
    path: str
    rest: str | None


def address(entry: str, base: str, *, local: bool) -> Address:
    """Return the file that an entry names; a relative one lies below `base`, which ends in /.

    `local` says that the listing lies on this machine. Raises ValueError for what is refused.
    """
    check_text(entry)
    scheme = _SCHEME.match(entry)
    if scheme is None and not entry.startswith("/"):
        return _relative(entry, base)
    kind = scheme[1].lower() if scheme is not None else "file"
    if kind != "file":
        return _absolute(entry, kind, base)
    if not local:
        raise ValueError("a listing from elsewhere may not name files of this machine; list URLs")
    _check_file(entry)
    path = file_path(entry) if scheme is not None else os.path.normpath("/" + entry.lstrip("/"))
    return Address(path, path, path[len(base) :] if path.startswith(base) else None)


def folder_of(location: str) -> str:
    """Return the folder of a URL or an absolute path, with / at its end and no query."""
    if "://" not in location:
        return os.path.dirname(location).rstrip("/") + "/"
    scheme, _, rest = without_query(location).partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}/{path.rpartition('/')[0]}".rstrip("/") + "/"


def file_path(url: str) -> str:
    """Return the absolute path of a file:// URL; raise ValueError for another machine's."""
    match = re.fullmatch(r"file://(?:localhost)?(/.*)", url, re.IGNORECASE)
    if match is None:
        raise ValueError("file:///path is wanted, without a host")
    path = unquote(match[1], errors="surrogateescape")
    if "\0" in path:
        raise ValueError("it has the character '\\x00'; leave it out")
    return os.path.normpath("/" + path.lstrip("/"))


def without_query(location: str) -> str:
    """Return a URL up to its query; a path as it is."""
    return location.partition("?")[0] if "://" in location else location


def beside(location: str) -> str:
    """Return where the sidecar of a file lies: its hash, by the same rights."""
    url = without_query(location)
    return url + SIDECAR + location[len(url) :]


def check_text(text: str) -> None:
    """Raise ValueError for what no location and no name may be."""
    if not text:
        raise ValueError("it is empty")
    if match := _CONTROL.search(text):
        raise ValueError(f"it has the character {match[0]!r}; escape or rename it")
    if len(text) * 4 > _MAX_BYTES and (length := len(text.encode())) > _MAX_BYTES:
        raise ValueError(f"it has {length} bytes, limit {_MAX_BYTES}")


def told(text: str) -> str:
    """Return an entry for a message, however broken it is: no secrets of it, and not all of it."""
    plain = re.sub(r"//.*@", "//", re.split(r"[?#]", text, maxsplit=1)[0], flags=re.DOTALL)
    return repr(plain if len(plain) <= 200 else plain[:197] + "...")


def _absolute(url: str, scheme: str, base: str) -> Address:
    if scheme not in ("http", "https", "s3") or url[len(scheme) :][:3] != "://":
        raise ValueError(
            f"{scheme}: cannot be fetched; http://, https:// and s3:// can, and paths in a listing"
            " that lies here (with ./ before one that has a colon)"
        )
    host, _, path = url[len(scheme) + 3 :].partition("/")
    found = _s3(host, path) if scheme == "s3" else _http(scheme, host, path)
    if not found.location.startswith(base):
        return found
    rest = found.location[len(base) :].partition("?")[0]
    return found._replace(rest=rest if scheme == "s3" else _unescaped(rest))


def _relative(entry: str, base: str) -> Address:
    """Return the file of a relative entry; a URL's path in it may be escaped."""
    if _PLAIN.fullmatch(entry) and "%" not in base:
        return Address(base + entry, _path_of(base) + entry, entry)
    if base.startswith("/"):
        _check_file(entry)
        rest = _below(entry, escaped=False)
        return Address(os.path.normpath(base + rest), base + rest, rest)
    scheme, _, after = base.partition("://")
    host, _, folder = after.partition("/")
    if scheme == "s3":
        rest = _below(entry, escaped=False)
        return _s3(host, folder + rest)._replace(rest=rest)
    path, sign, query = entry.partition("?")
    rest = _below(path, escaped=True)
    return _http(scheme, host, f"{folder}{rest}{sign}{query}")._replace(rest=_unescaped(rest))


def _path_of(base: str) -> str:
    """Return the part of a base that follows host or bucket."""
    return base if base.startswith("/") else base.split("/", 3)[3]


def _below(path: str, *, escaped: bool) -> str:
    """Return a relative path without `.` and `..`; raise ValueError where it leads above its base."""
    if "." not in path and "%" not in path:
        return path
    kept: list[str] = []
    for part in path.split("/"):
        plain = unquote(part) if escaped and "%" in part else part
        if plain == ".." and not kept:
            raise ValueError("its .. leads out of the folder that it is relative to; list a URL")
        if plain == "..":
            kept.pop()
        elif plain != ".":
            kept.append(part)
    _check_file("/".join(kept))
    return "/".join(kept)


def _http(scheme: str, host: str, rest: str) -> Address:
    match = _HOST.fullmatch(host)
    if match is None or int(match[2] or 0) > 65535:
        raise ValueError(f"{scheme}://host/path is wanted, without user and password")
    path, sign, query = rest.partition("?")
    if "#" in rest or "\\" in path:
        raise ValueError("it has # or \\; write %23 or %5C for one that belongs to the path")
    plain = _unescaped(path)
    _check_parts(plain)
    location = f"{scheme}://{host}/{_escaped(path)}{sign}{_escaped(query)}"
    return Address(location, plain, None)


def _s3(bucket: str, key: str) -> Address:
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("s3://bucket/key is wanted, without user, password and port")
    if "?" in key or "#" in key:
        raise ValueError("it has ? or #, which are no part of a key here; rename the object")
    _check_parts(key)
    return Address(f"s3://{bucket}/{key}", key, None)


def _check_file(path: str) -> None:
    if re.search(r"(?:^|/)\.{0,2}\Z", path):
        raise ValueError("it names a folder; name a file")


def _check_parts(path: str) -> None:
    """Raise ValueError for a path that servers and names may read in two ways."""
    check_text(path)
    _check_file(path)
    if "." in path and any(part in (".", "..") for part in path.split("/")):
        raise ValueError("its path has a part . or ..; write it without")


def _unescaped(path: str) -> str:
    """Return a URL's path as text; as it is where its escapes are not UTF-8."""
    if "%" not in path:
        return path
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return path


def _escaped(path: str) -> str:
    """Return the path of a URL with what no URL may have escaped, and escapes left alone."""
    if _CLEAN.fullmatch(path):
        return path
    return quote(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", path), safe=_LEGAL)
