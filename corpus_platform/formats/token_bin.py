"""The native token files NAME.bin, NAME.index, NAME.json and, where needed, NAME.loss and NAME.pieces.

A training run imports this module: it needs the standard library and numpy alone. It opens the
files; `token_bin_writer` writes them, `token_rows` looks at rows. Version 2, byte by byte:

NAME.bin    token ids, nothing else: no header. Each id is an unsigned little-endian integer of 2
            bytes where vocab_size <= 65,536, else of 4. Of 2 bytes it is nanoGPT's .bin as it lies.
            Layout "documents": document after document, without padding. Layout "rows": rows of
            exactly row_tokens ids, each filled up with padding at its end.
NAME.index  one unsigned little-endian 8-byte integer per entry: where it ends, in tokens from the
            start of NAME.bin, exclusive. No leading 0, no count; entry i is
            [index[i - 1], index[i]), the first starts at 0. In the layout "documents" an entry is a
            document, and an empty one repeats an end. In the layout "rows" an entry is a piece of
            a document, or the padding of a row; none reaches over the end of a row.
NAME.pieces layout "rows" only: two signed little-endian 8-byte integers per entry of the index:
            the number of the document that it is a piece of, and the offset in that document, in
            tokens, where it begins: above 0 it continues one. Padding has -1 and 0. A document is
            known by its number in a whole split; numbers need not begin at 0 or be dense.
NAME.loss   one byte per token: 1 where the loss of predicting this token counts, else 0. Only
            there where at least one token counts for nothing; padding never counts.
NAME.json   UTF-8 JSON, keys sorted, indented by 2, final newline:
            bin {bytes, sha256}, bos "none" or "before_each_document", bos_id, byte_order "little",
            documents (that begin in this file), dtype "uint16" or "uint32", eos "none" or
            "after_each_document", eos_id, format "corpus-token-bin", index {bytes, sha256}, layout,
            loss (null or {bytes, sha256}), pad_id, padding (tokens of NAME.bin that are none),
            pieces (null or {bytes, sha256}), row_tokens (null or the length of a row),
            tokenizer_sha256 (of the bytes of tokenizer.json), tokens (of NAME.bin, padding counted
            in), version 2, vocab_size. Ids that the policy does not use are null.

With eos "after_each_document" the last id of every document, and no other, is eos_id; likewise the
first with bos. All data files may be empty. What a reader may believe stands in NAME.json alone.
"""

import dataclasses
import json
import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import StorageError, UsageError

__all__ = [
    "INDEX_DTYPE",
    "PIECE_DTYPE",
    "Hashed",
    "Header",
    "TokenBin",
    "files_of",
    "id_dtype",
    "open_token_bin",
    "pieces_of",
    "token_dtype",
]

_FORMAT, _VERSION = "corpus-token-bin", 2
_DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
INDEX_DTYPE = np.dtype("<u8")
PIECE_DTYPE = np.dtype([("document", "<i8"), ("offset", "<i8")])
_UINT16_VOCABULARY = 65_536  # ids 0..65535; one more and the largest would wrap to 0


def token_dtype(vocab_size: int) -> str:
    """Name the narrowest width that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= _UINT16_VOCABULARY else "uint32"


def id_dtype(vocab_size: int) -> np.dtype:
    """Return the type of one id in NAME.bin."""
    return _DTYPES[token_dtype(vocab_size)]


def pieces_of(document: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the entries of NAME.pieces."""
    pieces: np.ndarray = np.empty(len(document), PIECE_DTYPE)
    pieces["document"], pieces["offset"] = document, offset
    return pieces


class Hashed(NamedTuple):
    """Bytes and sha256 of a file."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Header:
    """What NAME.json says; ids that the policy does not use are None."""

    vocab_size: int
    tokenizer_sha256: str
    eos_id: int | None
    tokens: int
    documents: int
    bin: Hashed
    index: Hashed
    bos_id: int | None = None
    loss: Hashed | None = None
    row_tokens: int | None = None  # None in the layout "documents"
    pad_id: int | None = None
    padding: int = 0
    pieces: Hashed | None = None

    @property
    def dtype(self) -> np.dtype:
        """The type of one id in NAME.bin."""
        return id_dtype(self.vocab_size)

    @property
    def entries(self) -> int:
        """The entries of NAME.index."""
        return self.index.bytes // INDEX_DTYPE.itemsize

    @property
    def rows(self) -> int:
        """The rows of NAME.bin; 0 in the layout "documents"."""
        return self.tokens // self.row_tokens if self.row_tokens else 0

    def to_json(self) -> bytes:
        """Return the bytes of NAME.json."""
        return (json.dumps(self._fields(), indent=2, sort_keys=True) + "\n").encode()

    def _fields(self) -> dict[str, object]:
        return {
            "bin": _file(self.bin),
            "bos": "none" if self.bos_id is None else "before_each_document",
            "bos_id": self.bos_id,
            "byte_order": "little",
            "documents": self.documents,
            "dtype": token_dtype(self.vocab_size),
            "eos": "none" if self.eos_id is None else "after_each_document",
            "eos_id": self.eos_id,
            "format": _FORMAT,
            "index": _file(self.index),
            "layout": "rows" if self.row_tokens else "documents",
            "loss": _file(self.loss),
            "pad_id": self.pad_id,
            "padding": self.padding,
            "pieces": _file(self.pieces),
            "row_tokens": self.row_tokens,
            "tokenizer_sha256": self.tokenizer_sha256,
            "tokens": self.tokens,
            "version": _VERSION,
            "vocab_size": self.vocab_size,
        }

    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Return the stated and the right size of each file that is there."""
        entries = self.entries if self.row_tokens else self.documents
        found = {
            "bin": (self.bin, self.tokens * self.dtype.itemsize),
            "index": (self.index, entries * INDEX_DTYPE.itemsize),
            "loss": (self.loss, self.tokens),
            "pieces": (self.pieces, entries * PIECE_DTYPE.itemsize),
        }
        return {name: (file.bytes, size) for name, (file, size) in found.items() if file}

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
            header = cls._of(fields)
            stated = header._fields()
            sizes = header._sizes()
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(f"{path}: not a token file header: {error!r}") from error
        for key, value in stated.items():
            if fields.get(key) != value:
                raise StorageError(
                    f"{path}: {key} is {fields.get(key)!r}, but its other fields make it {value!r}"
                )
        for name, (size, expected) in sizes.items():
            if size != expected:
                raise StorageError(
                    f"{path}: {name} has {size} bytes, but its other fields make it {expected}"
                )
        return header

    @classmethod
    def _of(cls, fields: dict) -> "Header":
        known = {field.name for field in dataclasses.fields(cls)}
        values = {key: value for key, value in fields.items() if key in known}
        for name in ("bin", "index", "loss", "pieces"):
            if (file := values[name]) is not None:
                values[name] = Hashed(file["bytes"], file["sha256"])
        header = cls(**values)
        header._check()
        return header

    def _check(self) -> None:
        """Raise ValueError for values of a wrong type, or out of bounds."""
        counts = self.vocab_size, self.tokens, self.documents, self.padding
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"counts {counts}")
        if self.padding > self.tokens:
            raise ValueError(f"{self.padding} tokens of {self.tokens} are padding")
        for name in ("eos_id", "bos_id", "pad_id"):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and 0 <= number < self.vocab_size):
                raise ValueError(f"{name} {number!r}, the vocabulary has {self.vocab_size} ids")
        for file in (self.bin, self.index, self.loss, self.pieces):
            if file is not None and not (type(file.bytes) is int and isinstance(file.sha256, str)):
                raise ValueError(f"file {file}")
        if not isinstance(self.tokenizer_sha256, str):
            raise ValueError(f"tokenizer_sha256 {self.tokenizer_sha256!r}")
        self._check_rows()

    def _check_rows(self) -> None:
        length = self.row_tokens
        if length is None:
            return
        if type(length) is not int or length < 1 or self.pieces is None:
            raise ValueError(f"row_tokens {length!r}, pieces {self.pieces}")
        if self.tokens % length:
            raise ValueError(f"{self.tokens} tokens are no rows of {length}")


def _file(file: Hashed | None) -> dict[str, object] | None:
    return None if file is None else file._asdict()


def files_of(name: str, header: Header) -> dict[str, Hashed]:
    """Return the data files of a token bin by file name."""
    found = {
        f"{name}.bin": header.bin,
        f"{name}.index": header.index,
        f"{name}.loss": header.loss,
        f"{name}.pieces": header.pieces,
    }
    return {file: hashed for file, hashed in found.items() if hashed is not None}


class TokenBin:
    """A token file, memory-mapped read-only.

    `tokens` and `ends` are arrays over the files; `loss` is None where every token counts, `pieces`
    (of PIECE_DTYPE) in the layout "documents".
    """

    def __init__(
        self,
        header: Header,
        tokens: np.ndarray,
        ends: np.ndarray,
        *,
        loss: np.ndarray | None = None,
        pieces: np.ndarray | None = None,
    ) -> None:
        self.header, self.tokens, self.ends = header, tokens, ends
        self.loss, self.pieces = loss, pieces

    def __len__(self) -> int:
        return len(self.ends)

    def document(self, i: int) -> np.ndarray:
        """Return the tokens of document `i`, its control tokens included.

        In the layout "documents" without a copy; in rows `i` is a number of NAME.pieces, and what
        lies in this file of it comes in the order of the document.
        """
        if self.pieces is not None:
            return self._collected(i)
        if not 0 <= i < len(self.ends):
            raise IndexError(f"document {i} of {len(self.ends)}")
        start = int(self.ends[i - 1]) if i else 0
        return self.tokens[start : int(self.ends[i])]

    def forget(self) -> None:
        """Give back the memory of what has been read: pages of a map count until then."""
        self._advise(mmap.MADV_DONTNEED)

    def prefetch(self) -> None:
        """Have the files read from front to back, before they are looked at in another order."""
        self._advise(mmap.MADV_WILLNEED)

    def _advise(self, how: int) -> None:
        for values in (self.tokens, self.ends, self.loss, self.pieces):
            if isinstance(values, np.ndarray) and isinstance(values.base, memoryview):
                mapped = values.base.obj
                if isinstance(mapped, mmap.mmap):
                    mapped.madvise(how)

    def _collected(self, number: int) -> np.ndarray:
        assert self.pieces is not None
        found = np.flatnonzero(self.pieces["document"] == number)
        if number < 0 or not len(found):
            raise IndexError(f"document {number} has no piece in this file")
        entries = found[np.argsort(self.pieces["offset"][found], kind="stable")].tolist()
        starts = [int(self.ends[e - 1]) if e else 0 for e in entries]
        return np.concatenate(
            [self.tokens[a : int(self.ends[e])] for a, e in zip(starts, entries, strict=True)]
        )


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
    tokens = _map(folder / f"{name}.bin", header.dtype, header.bin)
    ends = _map(folder / f"{name}.index", INDEX_DTYPE, header.index)
    last = int(ends[-1]) if len(ends) else 0
    if last != header.tokens:
        raise StorageError(
            f"{folder / name}.index: the last entry ends at token {last}, expected {header.tokens}"
        )
    loss = pieces = None
    if header.loss is not None:
        loss = _map(folder / f"{name}.loss", np.dtype("u1"), header.loss)
    if header.pieces is not None:
        pieces = _map(folder / f"{name}.pieces", PIECE_DTYPE, header.pieces)
    return TokenBin(header, tokens, ends, loss=loss, pieces=pieces)


def _map(path: Path, dtype: np.dtype, expected: Hashed) -> np.ndarray:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size != expected.bytes:
                raise StorageError(
                    f"{path}: {size} bytes, expected {expected.bytes}; delete it and make it again"
                )
            if not size:  # an empty file cannot be mapped
                return np.empty(0, dtype)
            # A plain array over the map: slices of np.memmap cost three times as much.
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
