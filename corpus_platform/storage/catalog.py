"""The catalog of one asset: a rebuildable file of what is known of its artifacts, so that planning
opens no manifests.

One JSON line per artifact, appended; the last line of a (partition, key) counts, a torn last line
is ignored. A line holds only while the manifest has the size and time it was read at. The
manifests stay the truth: without the file everything is read again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Catalog", "Entry", "FileStamp", "stamp"]


@dataclass(frozen=True)
class FileStamp:
    """Size and modification time of a file; `sha256` what its hash was when it had them."""

    name: str
    bytes: int
    mtime_ns: int
    sha256: str = field(default="", compare=False)


def stamp(path: Path | str) -> FileStamp | None:
    """Return a file's stamp, None where there is no such file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileStamp(os.path.basename(path), status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Entry:
    """One artifact as last seen; `files` are the stamps of its outputs when their hashes held."""

    partition: str | None
    key: str
    content: str
    manifest: FileStamp
    files: tuple[FileStamp, ...]
    numbers: dict[str, float]


class Catalog:
    """The entries of one asset, kept in one appended file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[tuple[str | None, str], Entry] = {}
        self._read_to = 0

    def find(self, partition: str | None, key: str) -> Entry | None:
        """Return what the catalog knows of an artifact, after reading what others appended."""
        self._read_on()
        return self._entries.get((partition, key))

    def entries(self) -> list[Entry]:
        """Return all that the catalog knows."""
        self._read_on()
        return list(self._entries.values())

    def record(self, entry: Entry) -> None:
        """Append an entry; one write call, so that lines of several processes do not mix."""
        self._entries[entry.partition, entry.key] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = b"\n" + json.dumps(asdict(entry), sort_keys=True).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _read_on(self) -> None:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            self._entries.clear()
            self._read_to = 0
            return
        if size < self._read_to:
            self._entries.clear()
            self._read_to = 0
        if size == self._read_to:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            tail = file.read()
        whole = tail.rfind(b"\n") + 1
        self._read_to += whole
        for entry in _parse(tail[:whole].split(b"\n")):
            self._entries[entry.partition, entry.key] = entry


def _parse(lines: Iterable[bytes]) -> Iterable[Entry]:
    for line in lines:
        try:
            raw = json.loads(line)
            raw["manifest"] = FileStamp(**raw["manifest"])
            raw["files"] = tuple(FileStamp(**f) for f in raw["files"])
            yield Entry(**raw)
        except (ValueError, KeyError, TypeError):  # torn or foreign: the manifest is read instead
            continue
