"""A file that comes in parts, in any order, and that a killed process can go on with.

`<target>.partial` has the bytes, `<target>.partial.json` says of which object they are and which
parts are on the disk, each with its sha256: `{"format": "parts-1", "url", "etag", "bytes", "parts":
[{"start", "bytes", "sha256"}]}`. A part is listed only after its bytes were flushed, and believed
only when they hash to what is listed. Where parts come from is not known here.
"""

import hashlib
import itertools
import json
import os
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from corpus_platform.errors import StorageError
from corpus_platform.storage.files import flush_folder, read_if_there

__all__ = ["Origin", "Part", "PartsFile", "gaps", "has_parts"]

_FORMAT = "parts-1"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Origin:
    """One version of an object, and how long it is."""

    url: str
    etag: str
    bytes: int


@dataclass(frozen=True)
class Part:
    """Bytes of an object that are on the disk."""

    start: int
    bytes: int
    sha256: str

    @property
    def end(self) -> int:
        """Where the next part starts."""
        return self.start + self.bytes


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
    return _partial(target).is_file() and _listed(target) is not None


class PartsFile:
    """The parts of one object; used by `with`, which closes it and leaves it to be gone on with.

    `write` may be called by several threads, the rest by one.
    """

    def __init__(self, target: Path, origin: Origin, parts: list[Part]) -> None:
        self.target, self.origin = target, origin
        self._parts = {part.start: part for part in parts}
        self._lock, self._closed = threading.Lock(), False
        self._whole, self._hashed = hashlib.sha256(), 0
        self._descriptor = os.open(_partial(target), os.O_RDWR | os.O_CREAT, 0o644)

    @classmethod
    def create(cls, target: Path, origin: Origin) -> "PartsFile":
        """Begin a file anew, whatever is there of it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        cls.remove(target)
        return cls(target, origin, [])

    @classmethod
    def reopen(cls, target: Path, url: str) -> "PartsFile | None":
        """Go on with a file of this URL, with those listed parts that are as listed; None if none is."""
        listed = _listed(target) if _partial(target).is_file() else None
        if listed is None or listed[0].url != url:
            return None
        with _partial(target).open("rb", buffering=0) as file:
            true = [part for part in listed[1] if _hash_of(file.fileno(), part) == part.sha256]
        return cls(target, listed[0], true) if true else None

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

    def keep(self, parts: Iterable[Part]) -> None:
        """Flush what was written, and then list these parts of it."""
        os.fsync(
            self._descriptor
        )  # first: a list must not outlive a power cut that its bytes do not
        self._parts.update((part.start, part) for part in parts)
        rows = [asdict(part) for _, part in sorted(self._parts.items())]
        whole = {"format": _FORMAT, **asdict(self.origin), "parts": rows}
        _write_list(_checkpoint(self.target), json.dumps(whole, indent=0).encode())

    def hash_next(self) -> bool:
        """Hash the next part in the order of the file, if it is there; tell whether it was."""
        part = self._parts.get(self._hashed)
        if part is not None:
            self._hashed = _update(self._whole, self._descriptor, part.start, part.end)
        return part is not None

    def publish(self) -> str:
        """Flush the finished file, give it its name and return its sha256."""
        while self.hash_next():
            pass
        size = self.origin.bytes
        if self._hashed != size:
            raise StorageError(
                f"{self.target}.partial: {self._hashed} of {size} bytes are there; run again"
            )
        os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)
        os.replace(_partial(self.target), self.target)
        flush_folder(self.target.parent)
        _remove_list(self.target)
        return self._whole.hexdigest()

    def close(self) -> None:
        """Leave it as it is."""
        with self._lock:  # a late thread must not write into a file that has its number by then
            if not self._closed:
                os.close(self._descriptor)
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


def _write_list(path: Path, data: bytes) -> None:
    """Replace a list; its folder is not flushed, since the older list that a power cut leaves is true.

    The name beside it is always the same, so that killed processes leave one such file at most.
    """
    beside = path.with_name(f"{path.name}.part")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _remove_list(target: Path) -> None:
    path = _checkpoint(target)
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.part").unlink(missing_ok=True)


def _listed(target: Path) -> tuple[Origin, list[Part]] | None:
    """Return what a checkpoint lists, None for one that is torn, foreign or contradicts itself."""
    try:
        raw = json.loads(read_if_there(_checkpoint(target)) or b"{}")
        if raw["format"] != _FORMAT:
            return None
        origin = Origin(str(raw["url"]), str(raw["etag"]), int(raw["bytes"]))
        parts = [Part(int(p["start"]), int(p["bytes"]), str(p["sha256"])) for p in raw["parts"]]
    except (ValueError, KeyError, TypeError):
        return None
    ends = [0, *(part.end for part in parts)]
    apart = all(p.bytes > 0 and p.start >= end for p, end in zip(parts, ends, strict=False))
    return (origin, parts) if apart and ends[-1] <= origin.bytes else None


def _hash_of(descriptor: int, part: Part) -> str:
    digest = hashlib.sha256()
    _update(digest, descriptor, part.start, part.end)
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", descriptor: int, start: int, end: int) -> int:
    """Hash the bytes of a file from `start` to `end`; return where they end, which may be before."""
    while start < end and (block := os.pread(descriptor, min(_BLOCK, end - start), start)):
        digest.update(block)
        start += len(block)
    return start
