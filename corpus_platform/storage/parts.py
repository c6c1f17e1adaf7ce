"""A file that comes in parts, in any order, and that a killed process can go on with.

`<target>.partial` has the bytes. The first line of `<target>.partial.json` says of which object they
are and which parts are on the disk, each with its sha256: `{"format": "parts-2", "url", "etag",
"bytes", "parts": [{"start", "bytes", "sha256"}]}`; it lists what was flushed before. Each further
line is a mark, `{"start", "bytes", "sha256"}`: so much of a part was written, flushed or not. A
killed process loses what came after its last marks, a power cut what came after the list. Both are
believed only where the bytes hash to what they state. Where parts come from is not known here.
"""

import hashlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from corpus_platform.errors import StorageError
from corpus_platform.storage.files import flush_folder, read_if_there

__all__ = ["Origin", "Part", "PartsFile", "gaps", "has_parts"]

_FORMAT = "parts-2"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Origin:
    """One version of an object, and how long it is."""

    url: str
    etag: str
    bytes: int


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of an object that are on the disk."""

    start: int
    bytes: int
    sha256: str

    @property
    def end(self) -> int:
        """Where the next part starts."""
        return self.start + self.bytes


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line."""

    format: str
    url: str
    etag: str
    bytes: int
    parts: list[Part]

    @property
    def origin(self) -> Origin:
        return Origin(self.url, self.etag, self.bytes)


def gaps(parts: Iterable[Part], size: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return what is missing of a file, as starts and ends of at most `part_bytes`, in order."""
    found, start = [], 0
    for part in [*sorted(parts, key=lambda p: p.start), Part(size, 0, "")]:
        cuts = [*range(start, part.start, part_bytes), part.start]
        found += itertools.pairwise(cuts)
        start = part.end
    return found


def has_parts(target: Path) -> bool:
    """Tell whether a file was begun, so that what is there of it need not be fetched again."""
    stated = _stated(target)
    return stated is not None and len(stated[1]) > 0


class PartsFile:
    """The parts of one object; used by `with`, which closes it and leaves it to be gone on with.

    `write` and `mark` may be called by several threads, the rest by one.
    """

    def __init__(self, target: Path, origin: Origin, parts: list[Part]) -> None:
        self.target, self.origin = target, origin
        self._parts = {part.start: part for part in parts}
        self._marked: dict[int, Part] = {}  # what is there of parts that are not listed
        self._lock, self._closed = threading.Lock(), False
        self._whole, self._hashed = hashlib.sha256(), 0
        self._descriptor = os.open(_partial(target), os.O_RDWR | os.O_CREAT, 0o644)
        self._list: int | None = None
        try:
            self._begin_list()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, target: Path, origin: Origin) -> "PartsFile":
        """Begin a file anew, whatever is there of it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        cls.remove(target)
        return cls(target, origin, [])

    @classmethod
    def reopen(cls, target: Path, url: str) -> "PartsFile | None":
        """Go on with a file of this URL, with what of it is as stated; None if nothing is."""
        stated = _stated(target)
        if stated is None or stated[0].url != url:
            return None
        with _partial(target).open("rb", buffering=0) as file:
            true = [part for p in stated[1] if (part := _longest_true(file.fileno(), p))]
        return cls(target, stated[0], true) if true else None

    @staticmethod
    def remove(target: Path) -> None:
        """Remove what is there of an unfinished file, its list first."""
        _remove_list(target)
        _partial(target).unlink(missing_ok=True)

    @property
    def kept(self) -> int:
        """Bytes of the listed parts."""
        return sum(part.bytes for part in self._parts.values())

    @property
    def occupied(self) -> int:
        """Bytes of the disk that the file takes already."""
        return os.fstat(self._descriptor).st_blocks * 512

    def missing(self, part_bytes: int) -> list[tuple[int, int]]:
        """Return the gaps between the parts, cut to pieces."""
        return gaps(self._parts.values(), self.origin.bytes, part_bytes)

    def write(self, start: int, data: bytes) -> bool:
        """Put bytes at a position; False when the file is closed, since its user has gone on."""
        with self._lock:
            view = memoryview(data)
            while view and not self._closed:
                written = os.pwrite(self._descriptor, view, start)
                view, start = view[written:], start + written
            return not self._closed

    def mark(self, part: Part) -> None:
        """Note that a part, or so much of one, was written; nothing is flushed."""
        with self._lock:
            if not self._closed and self._list is not None:
                self._marked[part.start] = part
                os.write(self._list, _line(part))

    def keep(self, parts: Iterable[Part]) -> None:
        """Flush what was written, and then list these parts of it, and what is marked of others."""
        with self._lock:
            marked = self._marked.copy()
        # First: a list must not outlive a power cut that its bytes do not.
        os.fsync(self._descriptor)
        self._parts.update((part.start, part) for part in parts)
        self._write_list(marked, flush=True)

    def _begin_list(self) -> None:
        if self._parts:  # marks among them may not be flushed yet
            self.keep([])
        else:  # a list of nothing is of no use after a power cut
            self._write_list({}, flush=False)

    def _write_list(self, marked: dict[int, Part], *, flush: bool) -> None:
        """Replace the list; marks that were made meanwhile stand behind the new one too."""
        rows = sorted((marked | self._parts).values(), key=lambda part: part.start)
        origin = self.origin
        line = _line(_List(_FORMAT, origin.url, origin.etag, origin.bytes, rows))
        beside = _write_beside(self.target, line, flush=flush)
        with self._lock:
            before, self._list = self._list, beside
            if before is not None:
                os.close(before)
            self._marked = {s: p for s, p in self._marked.items() if s not in self._parts}
            later = [p for s, p in self._marked.items() if marked.get(s) != p]
            _write_all(beside, b"".join(map(_line, later)))
            # Its folder is not flushed: the older list that a power cut leaves is true.
            os.replace(_beside(self.target), _checkpoint(self.target))

    def hash_next(self) -> bool:
        """Hash the next part in the order of the file, if it is there; tell whether it was."""
        part = self._parts.get(self._hashed)
        if part is not None:
            self._hashed = _update(self._whole, self._descriptor, part.start, part.end)
        return part is not None

    def finish(self) -> str:
        """Return the sha256 of the file; raises StorageError where something of it is missing."""
        while self.hash_next():
            pass
        if self._hashed != self.origin.bytes:
            raise StorageError(
                f"{self.target}.partial: {self._hashed} of {self.origin.bytes} bytes are there;"
                " run again"
            )
        return self._whole.hexdigest()

    def publish(self) -> None:
        """Flush the finished file and give it its name."""
        os.ftruncate(self._descriptor, self.origin.bytes)
        os.fsync(self._descriptor)
        os.replace(_partial(self.target), self.target)
        flush_folder(self.target.parent)
        _remove_list(self.target)

    def close(self) -> None:
        """Leave it as it is."""
        with self._lock:  # a late thread must not write into a file that has its number by then
            if not self._closed:
                os.close(self._descriptor)
                if self._list is not None:
                    os.close(self._list)
            self._closed = True

    def __enter__(self) -> "PartsFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _checkpoint(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial.json")


def _beside(target: Path) -> Path:
    """Return where a list is written; one name, so that killed processes leave one file at most."""
    return target.with_name(f"{target.name}.partial.json.part")


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _write_beside(target: Path, data: bytes, *, flush: bool) -> int:
    """Write a list beside its place, flushed where that is asked; return its descriptor."""
    descriptor = os.open(_beside(target), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(descriptor, data)
        if flush:
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove_list(target: Path) -> None:
    _checkpoint(target).unlink(missing_ok=True)
    _beside(target).unlink(missing_ok=True)


def _stated(target: Path) -> tuple[Origin, list[list[Part]]] | None:
    """Return what list and marks state of a file: of each part all that is said, the least first.

    None where there is no file, and for a list that is torn, foreign or contradicts itself. Of
    marks, those up to the first that cannot be read count.
    """
    if not _partial(target).is_file():
        return None
    first, *lines = (read_if_there(_checkpoint(target)) or b"").split(b"\n")
    try:
        listed = msgspec.json.decode(first, type=_List)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    parts = sorted([*listed.parts, *_marks(lines[:-1])], key=lambda part: (part.start, part.bytes))
    by_start = [list(same) for _, same in itertools.groupby(parts, key=lambda part: part.start)]
    known = listed.format == _FORMAT and lines
    return (listed.origin, by_start) if known and _apart(by_start, listed.bytes) else None


def _marks(lines: Iterable[bytes]) -> Iterator[Part]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Part)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return


def _apart(by_start: list[list[Part]], size: int) -> bool:
    """Tell whether parts, in order, lie in a file of a size and do not overlap."""
    ends = [0, *(same[-1].end for same in by_start)]
    pairs = zip(by_start, ends, strict=False)
    return (
        all(same[0].bytes > 0 and same[0].start >= end for same, end in pairs) and ends[-1] <= size
    )


def _longest_true(descriptor: int, stated: list[Part]) -> Part | None:
    """Return the most that is as stated of one part, None where nothing is."""
    digest, end, true = hashlib.sha256(), stated[0].start, None
    for part in stated:
        end = _update(digest, descriptor, end, part.end)
        if end != part.end or digest.hexdigest() != part.sha256:
            break
        true = part
    return true


def _update(digest: "hashlib._Hash", descriptor: int, start: int, end: int) -> int:
    """Hash the bytes of a file from `start` to `end`; return where they end, which may be before."""
    while start < end and (block := os.pread(descriptor, min(_BLOCK, end - start), start)):
        digest.update(block)
        start += len(block)
    return start
