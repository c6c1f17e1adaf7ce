"""Token ids <-> the native token files NAME.bin, NAME.index and NAME.json.

A training run imports this module: it needs the standard library and numpy alone. Names, places
and atomic publishing belong to whoever calls it. Version 1, byte by byte:

NAME.bin    token ids, nothing else: no header, no padding, document after document. Each id is
            an unsigned little-endian integer of 2 bytes where vocab_size <= 65,536, else of 4.
            With eos "after_each_document" the last id of every document, and no other, is eos_id.
            Of 2 bytes it is nanoGPT's .bin as it lies.
NAME.index  one unsigned little-endian 8-byte integer per document: where it ends, in tokens from
            the start of NAME.bin, exclusive. No leading 0, no count; document i is
            [index[i - 1], index[i]), the first starts at 0. An empty document repeats an end.
NAME.json   UTF-8 JSON, keys sorted, indented by 2, final newline:
            bin {bytes, sha256}, bos "none", byte_order "little", documents, dtype "uint16" or
            "uint32", eos "after_each_document" or "none", eos_id (null where eos is "none"),
            format "corpus-token-bin", index {bytes, sha256}, tokenizer_sha256 (of the bytes of
            tokenizer.json), tokens, version 1, vocab_size.

Both data files may be empty. What a reader may believe stands in NAME.json alone.
"""

import dataclasses
import hashlib
import json
import mmap
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError

__all__ = ["Header", "TokenBin", "TokenBinWriter", "open_token_bin", "token_dtype"]

_FORMAT, _VERSION = "corpus-token-bin", 1
_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_INDEX_DTYPE = np.dtype("<u8")
_UINT16_VOCABULARY = 65_536  # ids 0..65535; one more and the largest would wrap to 0


def token_dtype(vocab_size: int) -> str:
    """Name the narrowest width that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= _UINT16_VOCABULARY else "uint32"


@dataclasses.dataclass(frozen=True)
class Header:
    """What NAME.json says; `eos_id` is None where documents carry no end token."""

    vocab_size: int
    tokenizer_sha256: str
    eos_id: int | None
    tokens: int
    documents: int
    bin_sha256: str
    index_sha256: str

    @property
    def dtype(self) -> np.dtype:
        """The type of one id in NAME.bin."""
        return _DTYPES[token_dtype(self.vocab_size)]

    @property
    def bin_bytes(self) -> int:
        """The size of NAME.bin."""
        return self.tokens * self.dtype.itemsize

    @property
    def index_bytes(self) -> int:
        """The size of NAME.index."""
        return self.documents * _INDEX_DTYPE.itemsize

    def to_json(self) -> bytes:
        """Return the bytes of NAME.json."""
        return (json.dumps(self._fields(), indent=2, sort_keys=True) + "\n").encode()

    def _fields(self) -> dict[str, object]:
        return {
            "bin": {"bytes": self.bin_bytes, "sha256": self.bin_sha256},
            "bos": "none",
            "byte_order": "little",
            "documents": self.documents,
            "dtype": token_dtype(self.vocab_size),
            "eos": "none" if self.eos_id is None else "after_each_document",
            "eos_id": self.eos_id,
            "format": _FORMAT,
            "index": {"bytes": self.index_bytes, "sha256": self.index_sha256},
            "tokenizer_sha256": self.tokenizer_sha256,
            "tokens": self.tokens,
            "version": _VERSION,
            "vocab_size": self.vocab_size,
        }

    @classmethod
    def read(cls, path: Path) -> "Header":
        """Read NAME.json; refuse another format, another version or fields that disagree."""
        try:
            fields = json.loads(path.read_bytes())
            kind = fields["format"], fields["version"]
            if kind != (_FORMAT, _VERSION):
                raise StorageError(
                    f"{path}: is {kind[0]!r} version {kind[1]!r}, expected {_FORMAT!r}"
                    f" version {_VERSION}; read it with the release that wrote it"
                )
            header = cls(
                vocab_size=fields["vocab_size"],
                tokenizer_sha256=fields["tokenizer_sha256"],
                eos_id=fields["eos_id"],
                tokens=fields["tokens"],
                documents=fields["documents"],
                bin_sha256=fields["bin"]["sha256"],
                index_sha256=fields["index"]["sha256"],
            )
            stated = header._fields()
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path}: not a token file header: {error!r}") from error
        for key, value in stated.items():
            if fields.get(key) != value:
                raise StorageError(
                    f"{path}: {key} is {fields.get(key)!r}, but its other fields make it {value!r}"
                )
        return header


class TokenBinWriter:
    """Write one token file, document after document.

    Every document gets its end token here, exactly once; `eos_id=None` writes none. Memory is
    bounded by what one call hands over. As a context manager an error leaves no NAME.json, and
    without an error NAME.json is there after the block.
    """

    def __init__(
        self, folder: Path, name: str, *, vocab_size: int, tokenizer_sha256: str, eos_id: int | None
    ) -> None:
        if eos_id is not None and not 0 <= eos_id < vocab_size:
            raise UsageError(
                f"{name}: eos_id {eos_id} is outside the vocabulary 0..{vocab_size - 1}"
            )
        self._name, self._header_path = name, folder / f"{name}.json"
        self._vocab_size, self._tokenizer, self._eos = vocab_size, tokenizer_sha256, eos_id
        self._dtype = _DTYPES[token_dtype(vocab_size)]
        self._tokens = self._documents = 0
        self._bin = _HashedFile(folder / f"{name}.bin")
        self._index = _HashedFile(folder / f"{name}.index")

    def append(self, ids: np.ndarray) -> None:
        """Write one document, given without its end token."""
        self.append_many(ids, np.array([len(ids)], dtype=np.int64))

    def append_many(self, flat: np.ndarray, ends: np.ndarray, *, terminated: bool = False) -> None:
        """Write documents lying back to back in `flat`; `ends` are exclusive, relative to it.

        `terminated` says that each carries its end token already, as read from a token file.
        Raises StageFailed, with nothing written, for an id outside the vocabulary, an end token
        inside a document or a missing one.
        """
        ends = self._check(flat, ends, terminated=terminated)
        flat = np.ascontiguousarray(flat, dtype=self._dtype)
        if self._eos is not None and not terminated:
            flat = np.insert(flat, ends, self._eos)
            ends = ends + np.arange(1, len(ends) + 1)
        self._bin.write(flat)
        self._index.write((ends + self._tokens).astype(_INDEX_DTYPE))
        self._tokens += len(flat)
        self._documents += len(ends)

    def close(self) -> Header:
        """Finish both files, write NAME.json and return what it says."""
        self.abandon()
        header = Header(
            vocab_size=self._vocab_size,
            tokenizer_sha256=self._tokenizer,
            eos_id=self._eos,
            tokens=self._tokens,
            documents=self._documents,
            bin_sha256=self._bin.sha256,
            index_sha256=self._index.sha256,
        )
        try:
            self._header_path.write_bytes(header.to_json())
        except OSError as error:
            raise StorageError(f"{self._header_path}: cannot be written: {error}") from error
        return header

    def abandon(self) -> None:
        """Close both files without a NAME.json."""
        self._bin.close()
        self._index.close()

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

    def _check(self, flat: np.ndarray, ends: np.ndarray, *, terminated: bool) -> np.ndarray:
        """Return the ends as int64 after all checks."""
        ends = np.asarray(ends).astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        if (lengths < 0).any() or int(lengths.sum()) != len(flat):
            raise StageFailed(
                f"{self._name}: document ends must rise from 0 to the {len(flat)} tokens given"
            )
        if len(flat) and not np.issubdtype(flat.dtype, np.integer):
            raise StageFailed(f"{self._name}: token ids must be integers, found {flat.dtype}")
        outside = (flat < 0) | (flat >= self._vocab_size)
        if outside.any():
            at = int(outside.argmax())
            raise StageFailed(
                f"{self._name}: token id {flat[at]} in document {self._document_at(at, ends)} is"
                f" outside the vocabulary 0..{self._vocab_size - 1};"
                " was it encoded with another tokenizer?"
            )
        if self._eos is not None:
            self._check_end_tokens(flat, ends, lengths, terminated=terminated)
        return ends

    def _check_end_tokens(
        self, flat: np.ndarray, ends: np.ndarray, lengths: np.ndarray, *, terminated: bool
    ) -> None:
        expected = np.zeros(len(flat), dtype=bool)
        if terminated:
            if (lengths == 0).any():
                bad = self._documents + int((lengths == 0).argmax())
                raise StageFailed(f"{self._name}: document {bad} lacks its end token {self._eos}")
            expected[ends - 1] = True
        wrong = (flat == self._eos) != expected
        if wrong.any():
            at = int(wrong.argmax())
            what = "lacks its" if expected[at] else "holds inside it the"
            raise StageFailed(
                f"{self._name}: document {self._document_at(at, ends)} {what} end token {self._eos}"
            )

    def _document_at(self, position: int, ends: np.ndarray) -> int:
        return self._documents + int(np.searchsorted(ends, position, side="right"))


class _HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self._path, self._hash = path, hashlib.sha256()
        try:
            self._file: BinaryIO = path.open("wb")
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error}") from error

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, values: np.ndarray) -> None:
        if not len(values):
            return  # an empty array has no memory to show
        try:
            self._file.write(values.data)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error}") from error
        self._hash.update(values.data)

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written: {error}") from error


class TokenBin:
    """A token file, memory-mapped read-only: `tokens` and `ends` are arrays over the files."""

    def __init__(self, header: Header, tokens: np.ndarray, ends: np.ndarray) -> None:
        self.header, self.tokens, self.ends = header, tokens, ends

    def __len__(self) -> int:
        return len(self.ends)

    def document(self, i: int) -> np.ndarray:
        """Return the tokens of document `i`, its end token included, without a copy."""
        if not 0 <= i < len(self.ends):
            raise IndexError(f"document {i} of {len(self.ends)}")
        start = int(self.ends[i - 1]) if i else 0
        return self.tokens[start : int(self.ends[i])]


def open_token_bin(folder: Path, name: str, *, expect_tokenizer: str | None = None) -> TokenBin:
    """Open a token file; sizes are checked against its header before anything is read.

    Raises StorageError for missing, cut or grown files, UsageError where `expect_tokenizer` (the
    sha256 of a tokenizer.json) is not the one it was written with.
    """
    header = Header.read(folder / f"{name}.json")
    if expect_tokenizer is not None and header.tokenizer_sha256 != expect_tokenizer:
        raise UsageError(
            f"{folder / name}.json: written with tokenizer {header.tokenizer_sha256}, expected"
            f" {expect_tokenizer}; one run reads files of one tokenizer"
        )
    bin_path, index_path = folder / f"{name}.bin", folder / f"{name}.index"
    tokens = _map(bin_path, header.dtype, header.bin_bytes)
    ends = _map(index_path, _INDEX_DTYPE, header.index_bytes)
    last = int(ends[-1]) if len(ends) else 0
    if last != header.tokens:
        raise StorageError(
            f"{index_path}: last document ends at token {last}, expected {header.tokens}"
        )
    return TokenBin(header, tokens, ends)


def _map(path: Path, dtype: np.dtype, expected: int) -> np.ndarray:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size != expected:
                raise StorageError(
                    f"{path}: {size} bytes, expected {expected}; delete it and make it again"
                )
            if not size:  # an empty file cannot be mapped
                return np.empty(0, dtype)
            # A plain array over the map: slices of np.memmap cost three times as much.
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
