"""What the writers of all foreign token files share: checks, counts, hashes, and cleaning up.

A format's own module says which files there are and what stands in them. Names, places and atomic
publishing belong to whoever calls it: a writer writes the path that it is given.
"""

from pathlib import Path
from typing import ClassVar

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.hashed_file import (
    FilesWriter,
    HashedFile,
    WrittenFile,
    check_ids,
    checked_ends,
    delete_files,
)

__all__ = ["ExportWriter", "WrittenFile"]


class ExportWriter(FilesWriter):
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
        delete_files(self._files)

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
        where = str(self.target)
        ends = checked_ends(where, ends, len(tokens), what="document")
        self._check_room(np.diff(ends, prepend=0), len(tokens))
        check_ids(
            where,
            tokens,
            ends,
            vocab_size=self.vocab_size,
            what="document",
            before=self.documents,
        )
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
