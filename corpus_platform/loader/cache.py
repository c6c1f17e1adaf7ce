"""Files of a release that lies elsewhere, in a folder of this machine.

How they come here is the caller's: `fetch(name, target)` writes the file of that name to a path. A
file gets its place in the cache when it is whole and hashed; processes of one machine may share a
cache, and one of them fetches for all.
"""

import contextlib
import fcntl
import uuid
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TypeVar

from corpus_platform.errors import StorageError
from corpus_platform.formats.token_bin import Hashed
from corpus_platform.loader.release_files import (
    MANIFEST,
    POINTER,
    Listing,
    faults,
    read_listing,
    read_pointer,
)

__all__ = ["Fetch", "RemoteRelease"]

Fetch = Callable[[str, Path], object]
Read = TypeVar("Read")


class RemoteRelease:
    """A release that is fetched file by file; `listing` is its manifest, `folder` its cache.

    `source` is the address of its folder, or of the current.json beside it. Names that are asked
    of `fetch` are those below that folder, or below the one that current.json lies in.
    """

    def __init__(self, source: str, cache: Path, fetch: Fetch) -> None:
        self.source, self._fetch, self._prefix = source.rstrip("/"), fetch, ""
        cache.mkdir(parents=True, exist_ok=True)
        above, _, name = self.source.rpartition("/")
        content = None
        if name == POINTER:
            name, content = self._bring(POINTER, cache / POINTER, read_pointer)
            self.source, self._prefix = f"{above}/{name}", f"{name}/"
        self.folder = cache / name
        self.folder.mkdir(exist_ok=True)
        with self._alone():
            for left in self.folder.glob("*.part"):  # by a process that was killed
                left.unlink()
            self.listing = self._manifest(content)

    def bring(self, files: Mapping[str, Hashed], *, hashed: bool) -> None:
        """Have files in the cache: what is there is kept where its size and, if asked, hash is right.

        What is missing or damaged is fetched, once. Raises StorageError that names each file that
        came damaged.
        """
        with self._alone():
            wrong = faults(self.folder, files, hashed=hashed)
            came = [self._came(name, files[name]) for name in wrong]
        if any(came):
            told = "; ".join(filter(None, came))
            raise StorageError(f"{told}; what lies there is damaged, or was cut on the way")

    def _came(self, name: str, expected: Hashed) -> str | None:
        """Fetch a file; return what is wrong with what came."""

        def check(part: Path) -> None:
            for fault in faults(part.parent, {part.name: expected}, hashed=True).values():
                raise StorageError(f"{self.source}/{name} came as {fault}")

        try:
            self._bring(f"{self._prefix}{name}", self.folder / name, check)
        except StorageError as fault:
            return str(fault)
        return None

    def _manifest(self, content: str | None) -> Listing:
        """Return the manifest, fetched unless a sound one is there; `content` is the pointer's."""
        path = self.folder / MANIFEST

        def check(part: Path) -> Listing:
            listing = read_listing(part)
            if content not in (None, listing.content):
                raise StorageError(
                    f"{self.source}/{MANIFEST}: content {listing.content}, {POINTER} names {content}"
                )
            return listing

        with contextlib.suppress(StorageError):
            return check(path)
        return self._bring(f"{self._prefix}{MANIFEST}", path, check)

    def _bring(self, name: str, target: Path, check: Callable[[Path], Read]) -> Read:
        """Fetch a file and put it in its place when `check` does not raise; return what that says."""
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        try:
            self._fetch(name, part)
            said = check(part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return said

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Have other processes wait that use the same cache."""
        with (self.folder / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
