"""Where an export goes: files appear there whole, and are known again; here, a folder.

A file is written into a scratch folder, and gets its name when all is right with it. What is there
is noted line by line in `.export-state.jsonl`, so that a killed export goes on where it ended; once
export.json is there, that says it all.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol  # Any: values of JSON, checked where they are read

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.storage import lease
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.files import (
    file_sha256,
    flush_file,
    flush_folder,
    read_if_there,
)
from corpus_platform.storage.hashes import HashMemo

__all__ = [
    "EXPORT_NAME",
    "SCRATCH",
    "STATE",
    "ExportedFile",
    "Folder",
    "State",
    "Target",
    "export_hashes",
    "export_leases",
    "held",
]

EXPORT_NAME = "export.json"
SCRATCH, STATE = ".export-parts", ".export-state.jsonl"
_LEASES = Path("leases", "exports")
_HASHES = Path("catalog", "exports")


@dataclasses.dataclass(frozen=True)
class ExportedFile:
    """One file of an export; `tokens` and `documents` are those of the file that has the tokens.

    In files of rows these are places, padding counted in, and what the format has for documents.
    `shard` is the source shard that it was made of, where it is one; `content_sha256` the hash of
    its tokens alone, where the format has one.
    """

    path: str
    bytes: int
    sha256: str
    split: str | None = None
    tokens: int = 0
    documents: int = 0
    shard: str | None = None
    content_sha256: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields that say something."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    @classmethod
    def of(cls, path: Path, name: str, **more: Any) -> "ExportedFile":
        """Return a file of this machine, hashed, under the name that it has in the export."""
        return cls(name, path.stat().st_size, file_sha256(path), **more)


class Target(Protocol):
    """Where files are published; `scratch` is where they are written before."""

    where: str
    scratch: Path
    state_path: Path

    def read(self, name: str) -> bytes | None:
        """Return a small file, None where there is none."""
        ...

    def fault(self, file: ExportedFile) -> str | None:
        """Say in words what is wrong with a file that should be there; None: nothing."""
        ...

    def check_free(self, known: Mapping[str, ExportedFile]) -> None:
        """Raise UsageError where something else is there than an export of which this is known."""
        ...

    def publish(
        self, file: ExportedFile, known: Mapping[str, ExportedFile], sent: Callable[[int], None]
    ) -> None:
        """Give a file in the scratch folder its name; `sent` hears of bytes that go elsewhere."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Make a small file, or replace it, whole."""
        ...

    def remove(self, name: str) -> None:
        """Remove a small file; none is none."""
        ...

    def close(self, *, finished: bool) -> None:
        """Remove what is left in the scratch folder; after the end also what was noted."""
        ...


class Folder:
    """A folder of this machine; a file that looks as it did by `hashes` is not hashed again."""

    def __init__(self, folder: Path, hashes: HashMemo) -> None:
        self.folder, self.where, self._hashes = folder, str(folder), hashes
        self.scratch, self.state_path = folder / SCRATCH, folder / STATE

    def read(self, name: str) -> bytes | None:
        """Return a small file, None where there is none."""
        try:
            return read_if_there(self.folder / name)
        except NotADirectoryError as error:
            raise UsageError(f"{self.folder}: is no folder; name another with --to") from error

    def fault(self, file: ExportedFile) -> str | None:
        """Say in words what is wrong with a file that should be there; None: nothing."""
        path = self.folder / file.path
        try:
            seen = stamp(path)
            if seen is not None and seen.bytes != file.bytes:
                return f"{seen.bytes} bytes, expected {file.bytes}"
            found = self._hashes.sha256(path)
        except OSError as error:
            return f"cannot be read: {error}"
        if found is None:
            return "is missing" if seen is None else "cannot be read"
        return None if found == file.sha256 else f"sha256 {found}, expected {file.sha256}"

    def check_free(self, known: Mapping[str, ExportedFile]) -> None:
        """Raise UsageError where something else is there than an export."""
        if known or self.state_path.exists() or not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder}: is no folder; name another with --to")
        others = sorted(path.name for path in self.folder.iterdir() if path.name != SCRATCH)
        if others and EXPORT_NAME not in others:
            named = ", ".join(others[:3])
            raise UsageError(
                f"{self.folder}: holds {named}, and no {EXPORT_NAME} says that it is an export;"
                " name another folder with --to"
            )

    def publish(
        self, file: ExportedFile, known: Mapping[str, ExportedFile], sent: Callable[[int], None]
    ) -> None:
        """Give a file in the scratch folder its name."""
        del known, sent
        source, path = self.scratch / file.path, self.folder / file.path
        try:
            seen = stamp(source)
            flush_file(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, path)
            flush_folder(path.parent)
            if seen is not None:
                self._hashes.note(path, seen, file.sha256)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error}; run again") from error

    def put(self, name: str, data: bytes) -> None:
        """Make a small file, or replace it, whole."""
        try:
            _replace(self.scratch, self.folder / name, data)
        except OSError as error:
            path = self.folder / name
            raise StorageError(f"{path}: cannot be written: {error}; run again") from error

    def remove(self, name: str) -> None:
        """Remove a small file; none is none."""
        (self.folder / name).unlink(missing_ok=True)

    def close(self, *, finished: bool) -> None:
        """Remove what is left in the scratch folder; after the end also what was noted."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if finished:
            self.state_path.unlink(missing_ok=True)


def _replace(scratch: Path, path: Path, data: bytes) -> None:
    """Make a small file whole; what a killed call leaves of it lies in the scratch folder."""
    staged = scratch / f".{path.name}"
    with staged.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(staged, path)
    flush_folder(path.parent)


@contextlib.contextmanager
def held(storage: Path, where: str, waiting: Callable[[str], None] | None) -> Generator[None]:
    """Hold the right to write at a place while the block runs; `waiting` hears who else does."""
    with lease.hold(storage / _LEASES / f"{_name(where)}.lease", waiting=waiting):
        yield


def export_hashes(storage: Path, where: str) -> HashMemo:
    """Return what is known of the files at a place: their hashes by size and time."""
    return HashMemo(storage / _HASHES / f"{_name(where)}.jsonl")


def _name(where: str) -> str:
    """Return the name that a place has in the storage folder."""
    place = where if "://" in where else os.path.realpath(where)
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:16]  # any bytes are a path


def export_leases(storage: Path) -> list[Path]:
    """Return the leases of all places that were ever exported to."""
    return sorted((storage / _LEASES).glob("*.lease"))


class State:
    """What is noted of an export in progress: what it is, and which of its files are there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.identity: dict[str, object] | None = None
        self.files: dict[str, ExportedFile] = {}
        lines = list(self._lines())
        if lines and isinstance(lines[0], dict) and isinstance(lines[0].get("export"), dict):
            self.identity = lines[0]["export"]
            for line in lines[1:]:
                with contextlib.suppress(TypeError):
                    file = ExportedFile(**line)
                    self.files[file.path] = file

    def _lines(self) -> Iterator[Any]:
        for line in (read_if_there(self._path) or b"").split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError):  # torn: the file is made again
                yield json.loads(line)

    def begin(
        self, scratch: Path, identity: Mapping[str, object], files: Sequence[ExportedFile]
    ) -> None:
        """Note what is exported, and what is there of it."""
        lines = [{"export": identity}, *(file.to_json() for file in files)]
        data = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
        _replace(scratch, self._path, data)

    def note(self, files: Sequence[ExportedFile]) -> None:
        """Note files that are there."""
        with self._path.open("ab") as out:
            out.write(b"".join(b"\n" + json.dumps(f.to_json()).encode() for f in files) + b"\n")
            out.flush()
            os.fsync(out.fileno())
