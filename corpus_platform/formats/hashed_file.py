"""What writers of token files share: files hashed as they are written, blocks that end whole, checks.

Which files there are and what stands in them, the module of a format says. Needs numpy alone.
"""

import contextlib
import hashlib
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import numpy as np

from corpus_platform.errors import StageFailed, StorageError

__all__ = [
    "FilesWriter",
    "HashedFile",
    "WrittenFile",
    "check_ids",
    "checked_ends",
    "delete_files",
    "hashed_files",
]

_BLOCK = 1 << 19  # values converted at a time: they stay in the cache for the hash


class WrittenFile(NamedTuple):
    """A file that was written; a side file holds no tokens and no documents."""

    name: str
    bytes: int
    sha256: str
    tokens: int = 0
    documents: int = 0


class HashedFile:
    """A file that is hashed while it is written, or at its end where its beginning comes last."""

    def __init__(self, path: Path, *, beginning_last: bool = False) -> None:
        self.path, self.bytes = path, 0
        self._hash = None if beginning_last else hashlib.sha256()
        try:
            self._file: BinaryIO = path.open("wb")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error}") from error

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes; return how many."""
        with self._told():
            self._file.write(data)
        if self._hash is not None:
            self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def write_beginning(self, data: bytes) -> None:
        """Put bytes over the first ones of a file that is hashed at its end."""
        assert self._hash is None
        with self._told():
            self._file.seek(0)
            self._file.write(data)

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error}") from error

    def write_array(self, values: np.ndarray, dtype: np.dtype) -> None:
        """Write values as `dtype`, which must be able to hold them."""
        if not len(values):
            return  # an empty array has no memory to show
        if values.dtype == dtype and values.flags.c_contiguous:
            self.write(values.view(np.uint8).data)
            return
        block = np.empty(min(_BLOCK, len(values)), dtype)
        for start in range(0, len(values), _BLOCK):
            part = values[start : start + _BLOCK]
            np.copyto(block[: len(part)], part, casting="unsafe")
            self.write(block[: len(part)].view(np.uint8).data)

    def write_ones(self, count: int) -> None:
        """Write so many bytes of 1."""
        ones = np.ones(min(count, _BLOCK), np.uint8)
        for start in range(0, count, _BLOCK):
            self.write(ones[: count - start].data)

    def close(self) -> None:
        """Finish the file; to do it again does nothing."""
        with self._told():
            self._file.close()

    def written(self, *, tokens: int = 0, documents: int = 0) -> WrittenFile:
        """Say what was written, once it is closed."""
        if self._hash is None:
            with self._told(), self.path.open("rb") as file:
                self._hash = hashlib.file_digest(file, "sha256")
        return WrittenFile(self.path.name, self.bytes, self._hash.hexdigest(), tokens, documents)


@contextlib.contextmanager
def hashed_files(*paths: Path) -> Generator[list[HashedFile]]:
    """Open files to write; they are closed after the block, and deleted where it fails."""
    files: list[HashedFile] = []
    try:
        for path in paths:
            files.append(HashedFile(path))
        yield files
        for file in files:
            file.close()
    except BaseException:
        delete_files(files)
        raise


def delete_files(files: Sequence[HashedFile]) -> None:
    """Close and delete files; that a full disk cannot close them has been told already."""
    for file in files:
        with contextlib.suppress(StorageError):
            file.close()
        file.path.unlink(missing_ok=True)


class FilesWriter:
    """A writer of some files, as a context manager: closed after the block, given up on an error."""

    def close(self) -> object:
        """Finish all files and say what they are."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Close and delete all files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def checked_ends(where: str, ends: np.ndarray, count: int, *, what: str) -> np.ndarray:
    """Return ends as int64; raise StageFailed unless they rise from 0 to the tokens given."""
    ends = np.asarray(ends).astype(np.int64)
    falls = (np.diff(ends, prepend=0) < 0).any()
    if falls or (int(ends[-1]) if len(ends) else 0) != count:
        raise StageFailed(f"{where}: {what} ends must rise from 0 to the {count} tokens given")
    return ends


def check_ids(
    where: str, tokens: np.ndarray, ends: np.ndarray, *, vocab_size: int, what: str, before: int
) -> None:
    """Raise StageFailed for the first id outside the vocabulary; `before` counts what went ahead."""
    if not len(tokens):
        return
    if not np.issubdtype(tokens.dtype, np.integer):
        raise StageFailed(f"{where}: token ids must be integers, found {tokens.dtype}")
    if int(tokens.max()) < vocab_size and int(tokens.min()) >= 0:
        return
    at = int(((tokens < 0) | (tokens >= vocab_size)).argmax())
    number = before + int(np.searchsorted(ends, at, side="right"))
    raise StageFailed(
        f"{where}: token id {tokens[at]} in {what} {number} is outside the vocabulary"
        f" 0..{vocab_size - 1}; was it encoded with another tokenizer?"
    )
