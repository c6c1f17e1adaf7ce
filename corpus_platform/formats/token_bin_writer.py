"""Documents or rows of token ids -> the native token files described in `token_bin`.

Control tokens are put in here and nowhere else, so that a document has each of them exactly once.
Names, places and atomic publishing belong to whoever calls it.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.hashed_file import (
    FilesWriter,
    HashedFile,
    check_ids,
    checked_ends,
    delete_files,
)
from corpus_platform.formats.token_bin import INDEX_DTYPE, PIECE_DTYPE, Hashed, Header, id_dtype

__all__ = ["Policy", "RowBinWriter", "TokenBinWriter", "with_controls"]


class Policy(NamedTuple):
    """What all files of one tokenizer and one way of writing share; None: no such token."""

    vocab_size: int
    tokenizer_sha256: str
    eos_id: int | None
    bos_id: int | None = None
    pad_id: int | None = None

    @classmethod
    def of(cls, header: Header) -> "Policy":
        """Return what a token file was written with."""
        return cls(*(getattr(header, name) for name in cls._fields))

    @property
    def controls(self) -> int:
        """The control tokens of a document."""
        return (self.bos_id is not None) + (self.eos_id is not None)

    def check(self, name: str) -> None:
        """Raise UsageError when a control token is not in the vocabulary or padding is no token of its own."""
        for kind in ("eos_id", "bos_id", "pad_id"):
            value = getattr(self, kind)
            if value is not None and not 0 <= value < self.vocab_size:
                raise UsageError(
                    f"{name}: {kind} {value} is outside the vocabulary 0..{self.vocab_size - 1}"
                )
        if self.pad_id is not None and self.pad_id in (self.eos_id, self.bos_id):
            raise UsageError(
                f"{name}: pad_id {self.pad_id} is the end or begin token too; padding needs its own"
            )


class _Writer(FilesWriter):
    """What both layouts write: ids that are in the vocabulary, ends, and a mask once it is needed."""

    def __init__(
        self, folder: Path, name: str, policy: Policy, *, row_tokens: int | None = None
    ) -> None:
        policy.check(name)
        self.policy, self.name, self._folder = policy, name, folder
        self._row_tokens = row_tokens
        self._dtype = id_dtype(policy.vocab_size)
        self._tokens = self._documents = self._padding = 0
        self._files: dict[str, HashedFile] = {}
        for end in ("bin", "index"):
            self._open(end)

    def _open(self, end: str) -> HashedFile:
        try:
            self._files[end] = HashedFile(self._folder / f"{self.name}.{end}")
        except StorageError:
            self.abandon()
            raise
        return self._files[end]

    def abandon(self) -> None:
        """Close and delete all files."""
        delete_files([*self._files.values()])

    def _write(self, flat: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._write_loss(loss, len(flat))
        self._files["bin"].write_array(flat, self._dtype)
        self._files["index"].write_array(ends + self._tokens, INDEX_DTYPE)
        self._tokens += len(flat)

    def _write_loss(self, loss: np.ndarray | None, count: int) -> None:
        file = self._files.get("loss")
        if file is None:
            if loss is None or loss.all():
                return
            file = self._open("loss")
            file.write_ones(self._tokens)
        if loss is None:
            file.write_ones(count)
        else:
            file.write_array(loss.astype(np.uint8), np.dtype(np.uint8))

    def close(self) -> Header:
        """Finish all files, write NAME.json and return what it says."""
        for file in self._files.values():
            file.close()
        written = {end: file.written() for end, file in self._files.items()}
        hashed = {end: Hashed(file.bytes, file.sha256) for end, file in written.items()}
        header = Header(
            vocab_size=self.policy.vocab_size,
            tokenizer_sha256=self.policy.tokenizer_sha256,
            eos_id=self.policy.eos_id,
            bos_id=self.policy.bos_id,
            tokens=self._tokens,
            documents=self._documents,
            bin=hashed["bin"],
            index=hashed["index"],
            loss=hashed.get("loss"),
            row_tokens=self._row_tokens,
            pad_id=self.policy.pad_id if self._row_tokens else None,
            padding=self._padding,
            pieces=hashed.get("pieces"),
        )
        path = self._folder / f"{self.name}.json"
        try:
            path.write_bytes(header.to_json())
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error}") from error
        return header

    def _check(
        self, flat: np.ndarray, ends: np.ndarray, loss: np.ndarray | None, what: str
    ) -> np.ndarray:
        """Return the ends as int64 after what holds in both layouts is checked."""
        ends = checked_ends(self.name, ends, len(flat), what=what)
        if loss is not None and len(loss) != len(flat):
            raise StageFailed(f"{self.name}: a mask of {len(loss)} for {len(flat)} tokens")
        check_ids(
            self.name,
            flat,
            ends,
            vocab_size=self.policy.vocab_size,
            what=what,
            before=self._entries,
        )
        return ends

    @property
    def _entries(self) -> int:
        return self._files["index"].bytes // INDEX_DTYPE.itemsize


class TokenBinWriter(_Writer):
    """Write one token file, document after document.

    Memory is bounded by what one call hands over. As a context manager an error leaves no file, and
    without an error NAME.json is there after the block.
    """

    def append(self, ids: np.ndarray) -> None:
        """Write one document, given without its control tokens."""
        self.append_many(ids, np.array([len(ids)], dtype=np.int64))

    def append_many(
        self,
        flat: np.ndarray,
        ends: np.ndarray,
        *,
        loss: np.ndarray | None = None,
        complete: bool = False,
    ) -> None:
        """Write documents lying back to back in `flat`; `ends` are exclusive, relative to it.

        `loss` says of each token whether it counts, None that all do; `complete` that each document
        carries its control tokens already, as read from a token file. Raises StageFailed, with
        nothing written, for an id outside the vocabulary, a control token inside a document or a
        missing one.
        """
        ends = self._check(flat, ends, loss, "document")
        _check_controls(
            self.policy, self.name, flat, ends, complete=complete, before=self._documents
        )
        if not complete:
            flat, ends, loss = with_controls(self.policy, flat, ends, loss)
        self._write(flat, ends, loss)
        self._documents += len(ends)


class RowBinWriter(_Writer):
    """Write one token file of rows of `row_tokens` ids; a context manager like TokenBinWriter."""

    def __init__(self, folder: Path, name: str, policy: Policy, *, row_tokens: int) -> None:
        if row_tokens < 1 or policy.pad_id is None:
            raise UsageError(
                f"{name}: rows need a length of 1 or more and a pad_id, not {row_tokens} and"
                f" {policy.pad_id}"
            )
        super().__init__(folder, name, policy, row_tokens=row_tokens)
        self._length = row_tokens
        self._open("pieces")

    def append_rows(
        self,
        flat: np.ndarray,
        ends: np.ndarray,
        pieces: np.ndarray,
        *,
        loss: np.ndarray | None = None,
    ) -> None:
        """Write whole rows: their ids, the ends of their pieces, and of what each is a piece.

        `pieces` is of PIECE_DTYPE; padding (document -1) may be the last piece of a row only, and
        its ids are the pad id, which stands nowhere else. Raises StageFailed with nothing written.
        """
        ends = self._check(flat, ends, loss, "piece")
        padded = self._check_rows(flat, ends, pieces)
        if padded.any():
            loss = np.ones(len(flat), np.bool_) if loss is None else loss.astype(np.bool_)
            loss &= ~padded
        self._write(flat, ends, loss)
        self._files["pieces"].write_array(pieces, PIECE_DTYPE)
        begun = (pieces["document"] >= 0) & (pieces["offset"] == 0)
        self._documents += int(np.count_nonzero(begun))
        self._padding += int(np.count_nonzero(padded))

    def _check_rows(self, flat: np.ndarray, ends: np.ndarray, pieces: np.ndarray) -> np.ndarray:
        """Return which tokens are padding."""
        borders = np.arange(self._length, len(flat) + 1, self._length)
        if len(flat) % self._length or not np.isin(borders, ends).all():
            raise StageFailed(f"{self.name}: a piece reaches over a row of {self._length}")
        if len(pieces) != len(ends):
            raise StageFailed(f"{self.name}: {len(pieces)} pieces for {len(ends)} ends")
        is_padding = pieces["document"] < 0
        if (ends[is_padding] % self._length).any():
            raise StageFailed(f"{self.name}: padding before the end of a row")
        padded = np.repeat(is_padding, np.diff(ends, prepend=0))
        wrong = (flat == self.policy.pad_id) != padded
        if wrong.any():
            at = int(wrong.argmax())
            number = self._entries + int(np.searchsorted(ends, at, side="right"))
            what = "is padding, where a document is going on"
            if padded[at]:
                what = "is no padding, where a row is filled up"
            raise StageFailed(
                f"{self.name}: token {flat[at]} of piece {number} {what}; the pad id is"
                f" {self.policy.pad_id}"
            )
        return padded


def with_controls(
    policy: Policy, flat: np.ndarray, ends: np.ndarray, loss: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return documents with the control tokens of the policy, their ends, and their mask.

    The end token counts for the loss as the token before it does; a begin token does.
    """
    if not policy.controls or not len(ends):
        return flat, ends, loss
    shifted = ends + policy.controls * np.arange(1, len(ends) + 1)
    is_text = np.ones(len(flat) + policy.controls * len(ends), np.bool_)
    out = np.empty(len(is_text), flat.dtype if len(flat) else np.uint32)
    if policy.bos_id is not None:
        starts = np.concatenate(([0], shifted[:-1]))
        is_text[starts], out[starts] = False, policy.bos_id
    if policy.eos_id is not None:
        is_text[shifted - 1], out[shifted - 1] = False, policy.eos_id
    out[is_text] = flat
    if loss is None:
        return out, shifted, None
    counts = np.ones(len(out), np.bool_)
    counts[is_text] = loss
    if policy.eos_id is not None:
        lengths = np.diff(ends, prepend=0)
        last = shifted - 2
        counts[shifted - 1] = np.where(lengths > 0, counts[np.maximum(last, 0)], True)
    return out, shifted, counts


def _check_controls(
    policy: Policy,
    name: str,
    flat: np.ndarray,
    ends: np.ndarray,
    *,
    complete: bool,
    before: int,
) -> None:
    """Raise StageFailed where a control token is missing or stands inside a document."""
    lengths = np.diff(ends, prepend=0)
    if complete and (lengths < policy.controls).any():
        at = before + int((lengths < policy.controls).argmax())
        raise StageFailed(f"{name}: document {at} lacks its {_named(policy)}")
    for number in {policy.bos_id, policy.eos_id} - {None}:
        expected = np.zeros(len(flat), np.bool_)
        if complete and number == policy.bos_id:
            expected[ends - lengths] = True
        if complete and number == policy.eos_id:
            expected[ends - 1] = True
        wrong = (flat == number) != expected
        if wrong.any():
            at = int(wrong.argmax())
            said = "lacks its" if expected[at] else "holds inside it the"
            document = before + int(np.searchsorted(ends, at, side="right"))
            kind = "end token" if number == policy.eos_id else "begin token"
            raise StageFailed(f"{name}: document {document} {said} {kind} {number}")


def _named(policy: Policy) -> str:
    ids = {"begin token": policy.bos_id, "end token": policy.eos_id}
    return " or ".join(f"{name} {value}" for name, value in ids.items() if value is not None)
