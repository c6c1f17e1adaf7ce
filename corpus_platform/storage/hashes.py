"""Hashes of source files, remembered by path, size and time, so that an unchanged source is not
read at every look. One JSON line per file, appended; rebuildable.
"""

import json
import os
from pathlib import Path

from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import file_sha256

__all__ = ["HashMemo"]


class HashMemo:
    """The sha256 of files outside the store; with `read_only` nothing is written."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path, self._read_only = path, read_only
        self._known: dict[str, tuple[int, int, str]] | None = None

    def sha256(self, file: Path) -> str | None:
        """Return the hash of a file as it is now; read it if it changed.

        None where there is no file, or none that may be read.
        """
        seen = stamp(file)
        if seen is None:
            return None
        known = self._load().get(str(file))
        if known is not None and known[:2] == (seen.bytes, seen.mtime_ns):
            return known[2]
        try:
            sha256 = file_sha256(file)
        except PermissionError:
            return None
        self.note(file, seen, sha256)
        return sha256

    def forget(self) -> None:
        """Have each file hashed at the next look, whatever its size and time."""
        self._known = {}

    def note(self, file: Path, seen: FileStamp, sha256: str) -> None:
        """Remember the hash that a file had when it had this stamp."""
        self._load()[str(file)] = (seen.bytes, seen.mtime_ns, sha256)
        if self._read_only:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps([str(file), seen.bytes, seen.mtime_ns, sha256]).encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, b"\n" + line + b"\n")
        finally:
            os.close(descriptor)

    def _load(self) -> dict[str, tuple[int, int, str]]:
        if self._known is None:
            self._known = {}
            lines = self._path.read_bytes().split(b"\n") if self._path.exists() else []
            for line in lines:
                try:
                    path, size, mtime_ns, sha256 = json.loads(line)
                except (ValueError, TypeError):  # torn: the file is hashed again
                    continue
                self._known[path] = (size, mtime_ns, sha256)
        return self._known
