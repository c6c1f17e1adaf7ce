"""The folder that downloads land in: unfinished ones to go on with, and whole ones to be taken.

A whole file `NAME.file` has a record beside it, `NAME.file.json`, with its source and hash, which is
there before the file is; what does not fit its record is fetched again. By default a file leaves the
folder once its shard is stored; a cache keeps it, so that a machine that starts with an empty disk
and this folder fetches nothing twice.
"""

import contextlib
import errno
import functools
import json
import os
import shutil
from collections.abc import Collection, Generator
from dataclasses import asdict, dataclass
from pathlib import Path

from corpus_platform.errors import StorageError
from corpus_platform.storage import lease
from corpus_platform.storage.files import (
    file_sha256,
    publish_bytes,
    read_if_there,
)
from corpus_platform.storage.locations import download_name, source_of
from corpus_platform.storage.registry import Member
from corpus_platform.storage.remote import Remote
from corpus_platform.storage.transfer import Fetched, Read

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
        """Put the file at `target`, without a copy of its bytes; it stays here until it is settled.

        It is copied, not linked, out of a cache: who writes into the one would change the other.
        """
        if self.cached:
            shutil.copyfile(self.path, target)
            return
        try:
            os.link(self.path, target)
        except OSError:  # a file system without links, or another disk
            shutil.move(self.path, target)

    def drop(self) -> None:
        """Remove the file and its record: it is of no use."""
        _drop(self.path)


class Downloads:
    """Downloads into one folder; `keep` makes it a cache."""

    def __init__(self, folder: Path, remote: Remote, *, keep: bool = False) -> None:
        self._folder, self._remote, self._keep = folder, remote, keep

    def begun(self, member: Member) -> bool:
        """Tell whether something of a member is here: a whole file, or one that can go on."""
        path = self._path(member)
        return _recorded(path, member) is not None or self._remote.has_checkpoint(member, path)

    def settle(self, member: Member) -> None:
        """Let go of a member's file, of which the store has a copy now; a cache keeps it."""
        if not self._keep:
            self.drop(member)

    def drop(self, member: Member) -> None:
        """Remove a member's whole file, so that the next `get` asks the source; of a cache too."""
        path = self._path(member)
        with lease.hold(self._lease(path)):  # another shard may be about to take it
            _drop(path)

    @contextlib.contextmanager
    def get(
        self, member: Member, *, read: Read, outdated: Collection[str] = ()
    ) -> Generator[Download]:
        """Give a member's file, whole; no other process fetches it while the block runs.

        A file that is here with an `outdated` sha256 does not count as the member's. Raises
        SourceRefused where the source does not give it, StorageError where it cannot be had.
        """
        path = self._path(member)
        self._make_folder()
        with lease.hold(self._lease(path)):
            fetched = self._whole(path, member, read, outdated)
            if fetched is None:
                note = functools.partial(self._note, path, member)
                try:
                    fetched = self._remote.get_file(member, path, read=read, whole=note)
                except OSError as error:
                    raise StorageError(f"{path}: cannot be written: {error}; run again") from error
            yield Download(path, fetched, self._keep)

    def _make_folder(self) -> None:
        """Make the folder; raise StorageError where nothing can be written into it."""
        leases = self._folder / "leases"
        try:
            leases.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        if not os.access(leases, os.W_OK):
            raise self._unwritable(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._folder}: downloads cannot be written there: {error.strerror}; allow it, or name"
            " another folder (download.cache_dir, --cache-dir)"
        )

    def _lease(self, path: Path) -> Path:
        return self._folder / "leases" / path.name

    def _path(self, member: Member) -> Path:
        # `.file`: no URL, whatever it ends in, has the name of another one's record or checkpoint.
        return self._folder / f"{download_name(member.location)}.file"

    def _whole(
        self, path: Path, member: Member, read: Read, outdated: Collection[str]
    ) -> Fetched | None:
        """Return what is recorded of a whole file that is here and still the one listed."""
        record = _recorded(path, member)
        if record is None or record.sha256 in outdated or file_sha256(path) != record.sha256:
            return None
        read(record.bytes)
        known = record.length_known
        return Fetched(record.bytes, record.sha256, known, record.version, 0, attempts=0)

    def _note(self, path: Path, member: Member, fetched: Fetched) -> None:
        record = _Record(
            source=source_of(member.location),
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


def _drop(path: Path) -> None:
    _record_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _recorded(path: Path, member: Member) -> _Record | None:
    """Return the record of a file that is here, of its size, and of what is listed of the member."""
    record = _read_record(_record_path(path))
    if record is None or not path.is_file() or not _fits(record, member):
        return None
    return record if path.stat().st_size == record.bytes else None


def _read_record(path: Path) -> _Record | None:
    try:
        raw = json.loads(read_if_there(path) or b"{}")
        raw.pop("format")
        return _Record(**raw)
    except (ValueError, KeyError, TypeError, AttributeError):  # torn or foreign: fetched again
        return None


def _fits(record: _Record, member: Member) -> bool:
    return (
        record.source == source_of(member.location)
        and member.sha256 in (None, record.sha256)
        and member.bytes in (None, record.bytes)
        and record.listed_version == member.listed_version
    )
