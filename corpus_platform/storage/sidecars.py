"""Sidecar files to the hash they promise: bare, as `sha256sum` or as BSD's tools write it.

A sidecar may list many files (SHA256SUMS); the line that names the wanted one counts. Getting the
bytes, and comparing the hash, is for others.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from corpus_platform.errors import SourceRefused
from corpus_platform.storage.transfer import shown

__all__ = ["Checksum", "checksum_line", "parse_sidecar"]

_HEX = "([0-9a-fA-F]{64})"
_BARE = re.compile(_HEX)
_GNU = re.compile(rf"(\\?){_HEX}(?:  | \*|[ \t]+)(\S.*)", re.DOTALL)
# openssl writes SHA2-256(name)= hex.
_BSD = re.compile(rf"(\\?)SHA(?:2-)?256 ?\((.+)\) ?= ?{_HEX}", re.DOTALL)
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


class Checksum(NamedTuple):
    """One hash, and the file it is said to be of; None where only the hash stands."""

    sha256: str
    name: str | None


def parse_sidecar(data: bytes, *, location: str, file_name: str) -> str:
    """Return the sha256 that a sidecar promises for a file, in lower case.

    Of a line's path only the end is compared: a list is often made in another folder. Raises
    SourceRefused where no line, or two that differ, are of this file.
    """
    where = shown(location)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceRefused(f"{where}: no list of hashes: not UTF-8 text; {_WAY_OUT}") from error
    lines = [line for line in re.split(r"\r?\n", text) if line.strip() and line[0] != "#"]
    found = [sum_ for line in lines if (sum_ := checksum_line(line.strip())) is not None]
    if len(lines) == 1 and found and found[0].name is None:
        return found[0].sha256
    hashes = set(_of_file(found, file_name))
    if len(hashes) == 1:
        return hashes.pop()
    raise SourceRefused(f"{where}: {_fault(lines, found, hashes, file_name)}; {_WAY_OUT}")


_WAY_OUT = "correct it at its source, or name no sidecars and expect the first hash that is seen"


def checksum_line(line: str) -> Checksum | None:
    """Return the sha256 and the name in one line of a list of hashes, None where there is none."""
    if _BARE.fullmatch(line):
        return Checksum(line.lower(), None)
    if match := _GNU.fullmatch(line):
        return Checksum(match[2].lower(), _unescaped(match[3], escaped=bool(match[1])))
    if match := _BSD.fullmatch(line):
        return Checksum(match[3].lower(), _unescaped(match[2], escaped=bool(match[1])))
    return None


def _unescaped(name: str, *, escaped: bool) -> str:
    """Return a name as it is; a line that begins with a backslash has it with escapes."""
    return re.sub(r"\\[\\nr]", lambda m: _ESCAPES[m[0]], name) if escaped else name


def _of_file(found: list[Checksum], file_name: str) -> Iterator[str]:
    """Yield the hashes of the lines whose path shares the longest end with the file's."""
    names = {file_name, unquote(file_name)}  # of a URL, escaped; a list has it as it was on a disk
    named = {c: c.name for c in found if c.name is not None}
    shared = {c: max(_shared_end(name, n) for n in names) for c, name in named.items()}
    most = max(shared.values(), default=0)
    return (c.sha256 for c, parts in shared.items() if parts == most > 0)


def _shared_end(one: str, other: str) -> int:
    parts = zip(reversed(one.split("/")), reversed(other.split("/")), strict=False)
    count = 0
    for a, b in parts:
        if a != b:
            break
        count += 1
    return count


def _fault(lines: list[str], found: list[Checksum], hashes: set[str], file_name: str) -> str:
    if not lines:
        return "an empty list of hashes"
    if hashes:
        return f"{len(hashes)} different hashes for {file_name!r}"
    if not found:
        return f"no sha256 (64 hexadecimal digits) in {_short(lines[0])}"
    names = [c.name for c in found if c.name is not None]
    if not names:
        return f"{len(found)} hashes without a name, where one is wanted"
    return f"no hash for {file_name!r}; the first one is of {_short(names[0])}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:97] + "...")
