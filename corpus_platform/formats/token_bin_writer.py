"""Documents or rows of token ids -> the native token files described in `token_bin`.

Control tokens are put in here and nowhere else, so that a document has each of them exactly once.
Names, places and atomic publishing belong to whoever calls it.
"""

import dataclasses
import hashlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.token_bin import INDEX_DTYPE, PIECE_DTYPE, Hashed, Header, id_dtype

__all__ = ["Policy", "RowBinWriter", "TokenBinWriter", "with_controls"]

_BLOCK = 1 << 20  # bytes of a mask that is begun late, at a time


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


class _Writer:
    """What both layouts write: ids that are in the vocabulary, ends, and a mask once it is needed."""

    def __init__(self, folder: Path, name: str, policy: Policy) -> None:
        policy.check(name)
        self.policy, self.name, self._folder = policy, name, folder
        self._dtype = id_dtype(policy.vocab_size)
        self._tokens = self._documents = 0
        self._bin = _HashedFile(folder / f"{name}.bin")
        self._index = _HashedFile(folder / f"{name}.index")
        self._loss: _HashedFile | None = None

    def abandon(self) -> None:
        """Close the files without a NAME.json."""
        for file in (self._bin, self._index, self._loss):
            if file is not None:
                file.close()

    def _write(self, flat: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._write_loss(loss, len(flat))
        self._bin.write(np.ascontiguousarray(flat, dtype=self._dtype))
        self._index.write((ends + self._tokens).astype(INDEX_DTYPE))
        self._tokens += len(flat)

    def _write_loss(self, loss: np.ndarray | None, count: int) -> None:
        if self._loss is None:
            if loss is None or loss.all():
                return
            self._loss = _HashedFile(self._folder / f"{self.name}.loss")
            self._write_ones(self._tokens)
        if loss is None:
            self._write_ones(count)
        else:
            self._loss.write(loss.astype(np.uint8))

    def _write_ones(self, count: int) -> None:
        assert self._loss is not None
        ones = np.ones(min(count, _BLOCK), np.uint8)
        for start in range(0, count, _BLOCK):
            self._loss.write(ones[: count - start])

    def _header(self) -> Header:
        return Header(
            vocab_size=self.policy.vocab_size,
            tokenizer_sha256=self.policy.tokenizer_sha256,
            eos_id=self.policy.eos_id,
            bos_id=self.policy.bos_id,
            tokens=self._tokens,
            documents=self._documents,
            bin=self._bin.hashed,
            index=self._index.hashed,
            loss=None if self._loss is None else self._loss.hashed,
        )

    def close(self) -> Header:
        """Finish all files, write NAME.json and return what it says."""
        raise NotImplementedError

    def _publish(self, header: Header) -> Header:
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
        ends = np.asarray(ends).astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        if (lengths < 0).any() or int(lengths.sum()) != len(flat):
            raise StageFailed(
                f"{self.name}: {what} ends must rise from 0 to the {len(flat)} tokens given"
            )
        if loss is not None and len(loss) != len(flat):
            raise StageFailed(f"{self.name}: a mask of {len(loss)} for {len(flat)} tokens")
        if len(flat) and (int(flat.max()) >= self.policy.vocab_size or int(flat.min()) < 0):
            at = int(((flat < 0) | (flat >= self.policy.vocab_size)).argmax())
            raise StageFailed(
                f"{self.name}: token id {flat[at]} in {what} {self._number(at, ends)} is"
                f" outside the vocabulary 0..{self.policy.vocab_size - 1};"
                " was it encoded with another tokenizer?"
            )
        return ends

    def _number(self, position: int, ends: np.ndarray) -> int:
        return self._index.written // INDEX_DTYPE.itemsize + int(
            np.searchsorted(ends, position, side="right")
        )

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


class TokenBinWriter(_Writer):
    """Write one token file, document after document.

    Memory is bounded by what one call hands over. As a context manager an error leaves no
    NAME.json, and without an error NAME.json is there after the block.
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

    def close(self) -> Header:
        """Finish all files, write NAME.json and return what it says."""
        self.abandon()
        return self._publish(self._header())


class RowBinWriter(_Writer):
    """Write one token file of rows of `row_tokens` ids; a context manager like TokenBinWriter."""

    def __init__(self, folder: Path, name: str, policy: Policy, *, row_tokens: int) -> None:
        if row_tokens < 1 or policy.pad_id is None:
            raise UsageError(
                f"{name}: rows need a length of 1 or more and a pad_id, not {row_tokens} and"
                f" {policy.pad_id}"
            )
        super().__init__(folder, name, policy)
        self._row_tokens, self._padding = row_tokens, 0
        self._pieces = _HashedFile(folder / f"{name}.pieces")

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
        self._pieces.write(np.ascontiguousarray(pieces, PIECE_DTYPE))
        begun = (pieces["document"] >= 0) & (pieces["offset"] == 0)
        self._documents += int(np.count_nonzero(begun))
        self._padding += int(np.count_nonzero(padded))

    def _check_rows(self, flat: np.ndarray, ends: np.ndarray, pieces: np.ndarray) -> np.ndarray:
        """Return which tokens are padding."""
        borders = np.arange(self._row_tokens, len(flat) + 1, self._row_tokens)
        if len(flat) % self._row_tokens or not np.isin(borders, ends).all():
            raise StageFailed(f"{self.name}: a piece reaches over a row of {self._row_tokens}")
        if len(pieces) != len(ends):
            raise StageFailed(f"{self.name}: {len(pieces)} pieces for {len(ends)} ends")
        is_padding = pieces["document"] < 0
        if (ends[is_padding] % self._row_tokens).any():
            raise StageFailed(f"{self.name}: padding before the end of a row")
        padded = np.repeat(is_padding, np.diff(ends, prepend=0))
        wrong = (flat == self.policy.pad_id) != padded
        if wrong.any():
            at = int(wrong.argmax())
            what = "is padding" if not padded[at] else "is no padding"
            raise StageFailed(
                f"{self.name}: token {flat[at]} of piece {self._number(at, ends)} {what}, where a"
                f" {'document' if not padded[at] else 'row'} is"
                f" {'going on' if not padded[at] else 'filled up'}; the pad id is"
                f" {self.policy.pad_id}"
            )
        return padded

    def abandon(self) -> None:
        """Close the files without a NAME.json."""
        super().abandon()
        self._pieces.close()

    def close(self) -> Header:
        """Finish all files, write NAME.json and return what it says."""
        self.abandon()
        header = dataclasses.replace(
            self._header(),
            row_tokens=self._row_tokens,
            pad_id=self.policy.pad_id,
            padding=self._padding,
            pieces=self._pieces.hashed,
        )
        return self._publish(header)


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


class _HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self._path, self._hash, self.written = path, hashlib.sha256(), 0
        try:
            self._file: BinaryIO = path.open("wb")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error}") from error

    @property
    def hashed(self) -> Hashed:
        return Hashed(self.written, self._hash.hexdigest())

    def write(self, values: np.ndarray) -> None:
        if not len(values):
            return  # an empty array has no memory to show
        data = values.view(np.uint8).data
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error}") from error
        self._hash.update(data)
        self.written += len(data)

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error}") from error
