"""A file on its way: bytes beside their target, and a checkpoint that counts those that are sure.

`<target>.partial` holds the data, `<target>.partial.json` lines of JSON: the checkpoint, which is
flushed after the data that it counts, and behind it marks, which nobody waits for. What a next
process takes over is the longest counted prefix whose hash is the one that was written down;
whatever a crash did to the rest, and in whatever order, it is cut off. One process at a time.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from corpus_platform.errors import StorageError
from corpus_platform.storage.checkpoints import Checkpoint, Version, parse_checkpoint
from corpus_platform.storage.files import flush_folder, publish_bytes, text_sha256
from corpus_platform.storage.transfer import Read, shown

__all__ = ["Partial", "has_checkpoint", "identity"]

# What a power cut loses. Flushing each 8 MiB costs an eighth of the time of a download over loopback
# to a disk that writes 270 MB/s (4.1 against 3.6 s for 300 MB), and nothing on a slower line.
CHECKPOINT_BYTES = 8 << 20
CHECKPOINT_SECONDS = 2.0
MARK_BYTES = 256 << 10  # what a killed process loses; a mark is one small write
BLOCK = 1 << 20

# Parts of a query that sign it. They are other ones with every listing, for the same file. A name
# that is missing here costs a download from the start, one too many could join two files: so the
# short ones count only beside the signature that they go with.
_SIGNATURES = re.compile(r"x-(amz|goog|ms)-.*|signature|sig", re.IGNORECASE | re.ASCII)
_BESIDE = {
    "signature": {"awsaccesskeyid", "googleaccessid", "expires", "policy", "key-pair-id"},
    "sig": {"se", "ske", "skoid", "sks", "skt", "sktid", "skv", "sp", "spr", "sr", "st", "sv"},
}


def identity(url: str) -> str:
    """Return the hash of what a URL names: without user, password, fragment and signatures.

    Other parts of a query may choose between files, so they count.
    """
    parts = urlsplit(url)
    # Escaped bytes that are not UTF-8 stay apart.
    said = parse_qsl(parts.query, True, errors="surrogateescape")
    names = {name.lower() for name, _ in said}
    beside = set().union(*(more for one, more in _BESIDE.items() if one in names))
    query = [
        (name, value)
        for name, value in said
        if not (_SIGNATURES.fullmatch(name) or name.lower() in beside)
    ]
    host = parts.netloc.rpartition("@")[2].lower()
    return text_sha256(json.dumps([parts.scheme.lower(), host, parts.path, query]))


def has_checkpoint(target: Path) -> bool:
    """Tell whether a download of a file began before and can go on where it was.

    That its source answers, and has the same version still, is found out by going on.
    """
    found = _checkpoint(target)
    if found is None or not found.resumable:
        return False
    try:
        return _data(target).stat().st_size >= found.verified_bytes
    except OSError:
        return False


class _Held(NamedTuple):
    """A true prefix. One value, so that an interrupt never finds its count without its hash."""

    bytes: int
    digest: "hashlib._Hash"


class Partial:
    """A file being downloaded, open from the start on; `read` hears of its bytes.

    What a former process left is taken over if it is of the same URL. Leaving the block keeps what
    is there, unless it was published.
    """

    version: Version | None
    expected_size: int | None

    def __init__(self, target: Path, url: str, *, read: Read) -> None:
        self._target, self._url, self._read = target, url, read
        self._marks: int | None = None
        self._forget()
        with self._named_faults():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._data = os.open(_data(target), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take_over()
        except BaseException:
            os.close(self._data)
            raise

    @property
    def held(self) -> int:
        """How many are held."""
        return self._held.bytes

    @property
    def sha256(self) -> str:
        """The hash of those."""
        return self._held.digest.hexdigest()

    def begin(self, version: Version, expected_size: int | None) -> None:
        """Drop what is held, and hold what comes now as the beginning of a version."""
        self.drop()
        self.version, self.expected_size = version, expected_size

    def drop(self) -> None:
        """Lose what is held, for good."""
        if self.held:
            self._read(-self.held)
        with self._named_faults():
            self._close_marks()
            _meta(self._target).unlink(missing_ok=True)
            os.ftruncate(self._data, 0)
        self._forget()

    def append(self, chunk: bytes) -> None:
        """Write the bytes that come next."""
        with self._named_faults():
            _write(self._data, chunk, self.held)
            digest = self._held.digest.copy()
            digest.update(chunk)
            self._held = _Held(self.held + len(chunk), digest)
            self._count()
        self._read(len(chunk))

    def checkpoint(self) -> None:
        """Flush the data, then what counts it."""
        held, version = self._held, self.version
        if version is None or held.bytes == 0:
            return
        with self._named_faults():
            os.fsync(self._data)
            counted = Checkpoint(
                source=identity(self._url),
                url=shown(self._url),
                verified_bytes=held.bytes,
                sha256=held.digest.hexdigest(),
                expected_size=self.expected_size,
                version=version,
            )
            self._close_marks()
            publish_bytes(_meta(self._target), counted.line())
            self._marks = os.open(_meta(self._target), os.O_WRONLY | os.O_APPEND)
        self._sure = self._marked = held.bytes
        self._sure_at = time.monotonic()

    def publish(self) -> str:
        """Give the file its name, whole and flushed; return its sha256."""
        with self._named_faults():
            os.fsync(self._data)
            os.replace(_data(self._target), self._target)
            self._close_marks()
            _meta(self._target).unlink(missing_ok=True)
            flush_folder(self._target.parent)
        sha256 = self.sha256
        self._forget()
        return sha256

    def __enter__(self) -> "Partial":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if self.held > self._sure:
                with contextlib.suppress(StorageError):  # the one before counts then
                    self.checkpoint()
            elif self.held == 0 and not _meta(self._target).exists():
                _data(self._target).unlink(missing_ok=True)
        finally:
            self._close_marks()
            os.close(self._data)

    def _forget(self) -> None:
        self._held = _Held(0, hashlib.sha256())
        self.version = self.expected_size = None
        self._sure = self._marked = 0  # bytes that a checkpoint counts, or a mark
        self._sure_at = time.monotonic()

    def _take_over(self) -> None:
        """Hold the longest true prefix of this URL; without one nothing of what was there."""
        found = _checkpoint(self._target)
        held = _true_prefix(self._data, found) if found else None
        if found is None or held is None or found.source != identity(self._url):
            self.drop()
            return
        with self._named_faults():
            os.ftruncate(self._data, held.bytes)
        self._held, self._sure = held, found.verified_bytes
        self.version, self.expected_size = found.version, found.expected_size
        self._read(held.bytes)

    def _count(self) -> None:
        """Write a checkpoint or a mark where one is due."""
        since = self.held - self._sure
        late = time.monotonic() - self._sure_at > CHECKPOINT_SECONDS
        if since >= CHECKPOINT_BYTES or late or (self._marks is None and since >= MARK_BYTES):
            self.checkpoint()
        elif self._marks is not None and self.held - self._marked >= MARK_BYTES:
            _write_mark(self._marks, self.held, self._held.digest.hexdigest())
            self._marked = self.held

    def _close_marks(self) -> None:
        if self._marks is not None:
            os.close(self._marks)
            self._marks = None

    @contextlib.contextmanager
    def _named_faults(self) -> Generator[None, None, None]:
        """Raise faults of the disk as StorageError: of which file, and how much room there is."""
        try:
            yield
        except OSError as error:
            message = f"{_data(self._target)}: cannot be written: {error.strerror or error}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                free = shutil.disk_usage(self._target.parent).free
                message += f" ({free:,} bytes free there, {self.held:,} held); make room and run again to go on"  # fmt: skip
            raise StorageError(message) from error


def _data(target: Path) -> Path:
    return target.with_name(target.name + ".partial")


def _meta(target: Path) -> Path:
    return target.with_name(target.name + ".partial.json")


def _checkpoint(target: Path) -> Checkpoint | None:
    try:
        with _meta(target).open("rb") as file:
            return parse_checkpoint(file.read(BLOCK))
    except OSError:
        return None


def _true_prefix(data: int, found: Checkpoint) -> _Held | None:
    """Return the longest prefix with the hash that was counted for it, None where there is none."""
    digest, position, held = hashlib.sha256(), 0, None
    for end, sha256 in ((found.verified_bytes, found.sha256), *found.marks):
        while block := os.pread(data, min(BLOCK, max(end - position, 0)), position):
            digest.update(block)
            position += len(block)
        if position != end or digest.hexdigest() != sha256:
            break
        held = _Held(end, digest.copy())
    return held


def _write(file: int, chunk: bytes, position: int) -> None:
    rest = memoryview(chunk)
    while rest:
        written = os.pwrite(file, rest, position)
        rest, position = rest[written:], position + written


def _write_mark(file: int, end: int, sha256: str) -> None:
    os.write(file, json.dumps([end, sha256]).encode() + b"\n")
