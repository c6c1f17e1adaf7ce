"""What the writers of all foreign token files share: checks, counts, hashes, and cleaning up.

A format's own module says which files there are and what stands in them. Names, places and atomic
publishing belong to whoever calls it: a writer writes the path that it is given.
"""

import contextlib
import hashlib
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, NamedTuple, Self

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError

__all__ = ["ExportWriter", "HashedFile", "WrittenFile", "hashed_files"]

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
        _delete(files)
        raise


def _delete(files: Sequence[HashedFile]) -> None:
    for file in files:
        with contextlib.suppress(StorageError):  # a full disk: the first error is told
            file.close()
        file.path.unlink(missing_ok=True)


class ExportWriter:
    """Write documents, with their control tokens in place, as files of one format.

    Memory is bounded by what one call hands over. As a context manager an error leaves no file, and
    without an error the files are whole after the block, and `written` says what they are.
    """

    format: ClassVar[str]
    max_tokens: ClassVar[int | None] = None  # a file, where the format has a limit
    max_document_tokens: ClassVar[int | None] = None
    max_vocab_size: ClassVar[int] = 1 << 31

    def __init__(self, target: Path, *, vocab_size: int, loss: bool = False) -> None:
        if not 1 <= vocab_size <= self.max_vocab_size:
            raise UsageError(
                f"{target}: {self.format} holds ids of a vocabulary of 1 to {self.max_vocab_size},"
                f" not of {vocab_size}; export to a format of wider ids"
            )
        self.target, self.vocab_size, self.has_loss = target, vocab_size, loss
        self.tokens = self.documents = 0
        self._files: list[HashedFile] = []
        self._written: tuple[WrittenFile, ...] | None = None

    def append(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None = None) -> None:
        """Write documents back to back; `ends` are exclusive and relative to this call.

        Raises StageFailed, with nothing written, for an id outside the vocabulary, ends that do not
        rise to the tokens given, a mask of another length or more than the format can hold.
        """
        ends = self._checked(tokens, ends, loss)
        self._put(tokens, ends, loss)
        self.tokens += len(tokens)
        self.documents += len(ends)

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish all files and say what they are, those with tokens first."""
        if self._written is None:
            try:
                self._finish()
                for file in self._files:
                    file.close()
                self._written = self._listed()
            except BaseException:
                self.abandon()
                raise
        return self._written

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """What `close` said."""
        if self._written is None:
            raise UsageError(f"{self.target}: is still being written")
        return self._written

    def abandon(self) -> None:
        """Close and delete all files."""
        _delete(self._files)

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

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        """Write what was checked; `tokens` and `documents` are still those of before."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Write what can be written at the end only."""

    def _listed(self) -> tuple[WrittenFile, ...]:
        first, *others = self._files
        return (
            first.written(tokens=self.tokens, documents=self.documents),
            *(file.written() for file in others),
        )

    def _open(self, path: Path, *, beginning_last: bool = False) -> HashedFile:
        try:
            self._files.append(HashedFile(path, beginning_last=beginning_last))
        except StorageError:
            self.abandon()
            raise
        return self._files[-1]

    def _checked(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
        """Return the ends as int64 after all checks."""
        if self._written is not None:
            raise UsageError(f"{self.target}: is closed; nothing can be appended")
        ends = np.asarray(ends).astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        if (lengths < 0).any() or (int(ends[-1]) if len(ends) else 0) != len(tokens):
            raise StageFailed(
                f"{self.target}: document ends must rise from 0 to the {len(tokens)} tokens given"
            )
        self._check_room(lengths, len(tokens))
        self._check_ids(tokens, ends)
        self._check_loss(loss, len(tokens))
        return ends

    def _check_room(self, lengths: np.ndarray, count: int) -> None:
        limit = self.max_document_tokens
        if limit is not None and len(lengths) and int(lengths.max()) > limit:
            raise StageFailed(
                f"{self.target}: document {self.documents + int(lengths.argmax())} has"
                f" {lengths.max()} tokens; {self.format} can hold {limit} a document: cut it or"
                " export to another format"
            )
        if self.max_tokens is not None and self.tokens + count > self.max_tokens:
            raise StageFailed(
                f"{self.target}: {self.tokens + count} tokens; a file of {self.format} can hold"
                f" {self.max_tokens}: begin another file before"
            )

    def _check_ids(self, tokens: np.ndarray, ends: np.ndarray) -> None:
        if not len(tokens):
            return
        if not np.issubdtype(tokens.dtype, np.integer):
            raise StageFailed(f"{self.target}: token ids must be integers, found {tokens.dtype}")
        if int(tokens.max()) < self.vocab_size and int(tokens.min()) >= 0:
            return
        at = int(((tokens < 0) | (tokens >= self.vocab_size)).argmax())
        document = self.documents + int(np.searchsorted(ends, at, side="right"))
        raise StageFailed(
            f"{self.target}: token id {tokens[at]} in document {document} is outside the vocabulary"
            f" 0..{self.vocab_size - 1}; was it encoded with another tokenizer?"
        )

    def _check_loss(self, loss: np.ndarray | None, count: int) -> None:
        if (loss is not None) != self.has_loss:
            here = "no mask is given" if self.has_loss else "a mask is given"
            place = "was begun with one" if self.has_loss else "has no place for one"
            raise StageFailed(f"{self.target}: {here}, and this file of {self.format} {place}")
        if loss is None:
            return
        if len(loss) != count:
            raise StageFailed(f"{self.target}: a mask of {len(loss)} for {count} tokens")
        if len(loss) and loss.dtype != np.bool_ and (loss.max() > 1 or loss.min() < 0):
            raise StageFailed(f"{self.target}: a mask holds 0 and 1 only, found {loss.max()}")
