"""The folder that downloads land in: unfinished ones to go on with, and whole ones to be taken.

A whole file has a record beside it, `NAME.json`, with its source and hash; what does not fit its
record is fetched again. By default a file leaves the folder when it is taken; a cache keeps it, so
that a machine that starts with an empty disk and this folder fetches nothing twice.
"""

import contextlib
import json
import shutil
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from corpus_platform.errors import StorageError
from corpus_platform.storage import lease
from corpus_platform.storage.files import (
    file_sha256,
    publish_bytes,
    read_if_there,
    safe_name,
)
from corpus_platform.storage.registry import Member
from corpus_platform.storage.remote import Remote
from corpus_platform.storage.transfer import Fetched, Read, shown

__all__ = ["Download", "Downloads"]


@dataclass(frozen=True)
class _Record:
    """What is known of a whole file; `listed_version` is how the listing named its state."""

    source: str
    bytes: int
    sha256: str
    length_known: bool
    version: str | None
    listed_version: str | None


@dataclass(frozen=True)
class Download:
    """A whole file in the folder, held until it is taken or dropped."""

    path: Path
    fetched: Fetched
    cached: bool

    def take(self, target: Path) -> None:
        """Put the file at `target`, on the same disk without a copy; a cache keeps its own.

        It is copied, not linked, out of a cache: who writes into the one would change the other.
        """
        if self.cached:
            shutil.copyfile(self.path, target)
        else:
            shutil.move(self.path, target)
            self.drop()

    def drop(self) -> None:
        """Remove the file and its record: it is of no use, or taken."""
        _record_path(self.path).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


class Downloads:
    """Downloads into one folder; `keep` makes it a cache."""

    def __init__(self, folder: Path, remote: Remote, *, keep: bool = False) -> None:
        self._folder, self._remote, self._keep = folder, remote, keep

    def begun(self, member: Member) -> bool:
        """Tell whether something of a member is here: a whole file, or one that can go on."""
        path = self._path(member)
        return _record_path(path).exists() or self._remote.has_checkpoint(member, path)

    @contextlib.contextmanager
    def get(self, member: Member, *, read: Read) -> Generator[Download]:
        """Give a member's file, whole; no other process fetches it while the block runs.

        Raises SourceRefused where the source does not give it, StorageError where it cannot be had.
        """
        path = self._path(member)
        with lease.hold(self._folder / "leases" / path.name):
            fetched = self._whole(path, member, read)
            if fetched is None:
                try:
                    fetched = self._remote.get_file(member, path, read=read)
                except OSError as error:
                    raise StorageError(f"{path}: cannot be written: {error}; run again") from error
                self._note(path, member, fetched)
            yield Download(path, fetched, self._keep)

    def _path(self, member: Member) -> Path:
        return self._folder / safe_name(shown(member.location))

    def _whole(self, path: Path, member: Member, read: Read) -> Fetched | None:
        """Return what is recorded of a whole file that is here and still the one listed."""
        record = _read_record(_record_path(path))
        if record is None or not path.is_file() or not _fits(record, member):
            return None
        if path.stat().st_size != record.bytes or file_sha256(path) != record.sha256:
            return None
        read(record.bytes)
        known = record.length_known
        return Fetched(record.bytes, record.sha256, known, record.version, 0, attempts=0)

    def _note(self, path: Path, member: Member, fetched: Fetched) -> None:
        record = _Record(
            source=shown(member.location),
            bytes=fetched.bytes,
            sha256=fetched.sha256,
            length_known=fetched.length_known,
            version=fetched.version,
            listed_version=member.listed_version,
        )
        data = json.dumps({"format": 1, **asdict(record)}, indent=1, sort_keys=True) + "\n"
        publish_bytes(_record_path(path), data.encode())


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _read_record(path: Path) -> _Record | None:
    try:
        raw = json.loads(read_if_there(path) or b"{}")
        raw.pop("format")
        return _Record(**raw)
    except (ValueError, KeyError, TypeError, AttributeError):  # torn or foreign: fetched again
        return None


def _fits(record: _Record, member: Member) -> bool:
    return (
        record.source == shown(member.location)
        and member.sha256 in (None, record.sha256)
        and member.bytes in (None, record.bytes)
        and record.listed_version == member.listed_version
    )
