"""Token ids <-> HDF5 files with resizable datasets, written chunk by chunk.

Names, places and atomic publishing belong to whoever calls it. h5py is needed to write and to open.
Version 1 of the file:

tokens      one-dimensional, unsigned little-endian, of 2 bytes where vocab_size <= 65,536, else of
            4; shape (N,), maxshape (None,), in chunks that are a multiple of the training window.
doc_ends    likewise of 8 bytes, one a document: where it ends, in tokens, exclusive.
loss        only where asked for: one byte a token, 0 where it counts for nothing; chunks as tokens.
attributes  of the file: format "corpus-token-hdf5", format_version 1, vocab_size, eos_id (-1: none),
            tokenizer_sha256, token_count, complete (1: the writer has ended), and the sha256 of what
            the datasets hold: sha256 (tokens), doc_ends_sha256, loss_sha256. Texts are ASCII of fixed
            length. token_count and complete stand at `tokens` too. Of rows also row_tokens, their
            length: doc_ends are then the ends of pieces of documents and of the padding of rows.

tokens and loss may be packed with gzip (with the shuffle filter). What lies in `tokens` behind
token_count is none. While it is written it can be read in SWMR mode: all datasets and attributes
are made before, documents are flushed before the tokens they end in, token_count goes up with each
chunk. The same data give the same bytes, however appends are cut (with gzip: of one zlib).
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal  # h5py is optional; its objects have no type here

import numpy as np

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.hashed_file import WrittenFile
from corpus_platform.formats.hdf5_tokens import (
    Column,
    HandleColumn,
    MappedColumn,
    load_h5py,
    reading,
    why,
)
from corpus_platform.formats.token_arrays import TokenFile, map_array
from corpus_platform.formats.token_bin import id_dtype

__all__ = [
    "CHUNK_TOKENS",
    "MAX_CHUNK_BYTES",
    "Followed",
    "Hdf5Writer",
    "chunk_for",
    "follow_hdf5",
    "open_hdf5",
    "validate",
]

CHUNK_TOKENS = (
    65_536  # a read of 2,049 tokens unpacks or fetches 128 KiB; see benchmarks/hdf5_chunks.py
)
_FORMAT, _VERSION = "corpus-token-hdf5", 1
_ENDS_DTYPE, _LOSS_DTYPE = np.dtype("<u8"), np.dtype("u1")
_ENDS_CHUNK = 1024  # documents: the last chunk of them is written again with every chunk of tokens
_PAGE = 4096
MAX_CHUNK_BYTES = (1 << 32) - 1  # of HDF5
_LENGTHS = ("token_count", "complete")  # attributes that stand at `tokens` too
_BLOCK = 1 << 22  # tokens that are hashed together


def chunk_for(window: int, target: int = CHUNK_TOKENS) -> int:
    """Return the largest multiple of a window up to `target`, at least the window."""
    if window < 1 or target < 1:
        raise UsageError(f"a window of {window} and chunks of {target} tokens: both begin at 1")
    return max(1, target // window) * window


class Hdf5Writer(ExportWriter):
    """Write one HDF5 file, with control tokens in place; an existing one of that name is deleted.

    Memory is bounded by a chunk and by what one call hands over. `window` is the length that
    training reads: chunks that are no multiple of it are refused.
    """

    format = "hdf5"

    def __init__(
        self,
        target: Path,
        *,
        vocab_size: int,
        eos_id: int | None,
        tokenizer_sha256: str,
        chunk_tokens: int = CHUNK_TOKENS,
        window: int | None = None,
        compression: Literal["gzip"] | None = None,
        loss: bool = False,
        row_tokens: int | None = None,
    ) -> None:
        super().__init__(target, vocab_size=vocab_size, loss=loss)
        self._h5py = load_h5py()
        dtype = id_dtype(vocab_size)
        _check_options(target, vocab_size, eos_id, chunk_tokens * dtype.itemsize, compression)
        if chunk_tokens < 1 or chunk_tokens % (window or 1):
            raise UsageError(
                f"{target}: chunks of {chunk_tokens} tokens are no multiple of the window of"
                f" {window}; a read would touch one chunk more: {chunk_for(window or 1)} is one"
            )
        self._chunk, self._compression = chunk_tokens, compression
        self._buffers = {"tokens": np.empty(chunk_tokens, dtype)}
        if loss:
            self._buffers["loss"] = np.empty(chunk_tokens, _LOSS_DTYPE)
        self._hashes = {name: hashlib.sha256() for name in ("tokens", "doc_ends", *self._buffers)}
        self._filled = self._flushed = 0
        self._ends: list[np.ndarray] = []  # of documents that are not in the file yet
        self._file: Any = None
        self._datasets: dict[str, Any] = {}
        self._attributes: list[tuple[str, Any]] = []
        with self._writing():
            target.unlink(missing_ok=True)  # a reader that has it open goes on reading it
            self._create(vocab_size, eos_id, tokenizer_sha256, row_tokens)

    @property
    def tokens_sha256(self) -> str:
        """The sha256 of the bytes of all tokens in the file."""
        return self._hashes["tokens"].hexdigest()

    def abandon(self) -> None:
        """Close and delete the file."""
        self._drop()
        self.target.unlink(missing_ok=True)

    def _create(
        self, vocab_size: int, eos_id: int | None, tokenizer: str, row_tokens: int | None
    ) -> None:
        """Make everything that will ever be in the file: in SWMR mode nothing can be added."""
        self._file = self._new_file()
        packed = {"compression": "gzip", "shuffle": True} if self._compression else {}
        for name, buffer in self._buffers.items():
            self._dataset(name, buffer.dtype, self._chunk, **packed)
        self._dataset("doc_ends", _ENDS_DTYPE, _ENDS_CHUNK)
        settled = {
            "format": _text(_FORMAT),
            "format_version": np.int64(_VERSION),
            "vocab_size": np.int64(vocab_size),
            "eos_id": np.int64(-1 if eos_id is None else eos_id),
            "tokenizer_sha256": _text(tokenizer),
        }
        if row_tokens is not None:
            settled["row_tokens"] = np.int64(row_tokens)
        hashes = {_hash_name(name): _text("0" * 64) for name in self._hashes}
        for name, value in {**settled, **hashes}.items():
            self._file.attrs.create(name, value)
        holders = [self._file, self._file["tokens"]]
        for holder in holders:
            for name in _LENGTHS:
                holder.attrs.create(name, np.int64(0))
        self._file.swmr_mode = True
        open_attribute = self._h5py.h5a.open
        self._attributes = [
            (n, open_attribute(h.id, n.encode())) for h in holders for n in _LENGTHS
        ]
        self._attributes += [(n, open_attribute(self._file.id, n.encode())) for n in hashes]

    def _new_file(self) -> Any:
        """Return a file that every HDF5 since 1.10 reads, and that does not tell when it was made.

        By default the root group tells that (HDF5 1.14), and "latest" of HDF5 2.0 makes packed
        datasets that 1.14 does not open (bad version number for layout message).
        """
        lists, files = self._h5py.h5p, self._h5py.h5f
        made, opened = lists.create(lists.FILE_CREATE), lists.create(lists.FILE_ACCESS)
        made.set_obj_track_times(False)
        opened.set_libver_bounds(files.LIBVER_V110, files.LIBVER_V110)
        opened.set_fclose_degree(files.CLOSE_STRONG)
        if not self._compression:
            opened.set_alignment(_PAGE, _PAGE)
        name = os.fsencode(self.target)
        return self._h5py.File(files.create(name, files.ACC_EXCL, fcpl=made, fapl=opened))

    def _dataset(self, name: str, dtype: np.dtype, chunk: int, **packed: object) -> None:
        made = self._file.create_dataset(
            name, shape=(0,), maxshape=(None,), chunks=(chunk,), dtype=dtype, **packed
        )
        self._datasets[name] = made.id

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        if self._file is None:
            raise StorageError(f"{self.target}: was given up after an error; write it again")
        if len(ends):
            self._ends.append((ends + self.tokens).astype(_ENDS_DTYPE))
        given = {"tokens": tokens} if loss is None else {"tokens": tokens, "loss": loss}
        at = 0
        while at < len(tokens):
            if self._filled == self._chunk:
                # Only when a token follows: by then all documents that end here are known, and the
                # file does not depend on how appends were cut.
                self._write_chunk()
            count = min(self._chunk - self._filled, len(tokens) - at)
            for name, values in given.items():
                self._buffers[name][self._filled : self._filled + count] = values[at : at + count]
            self._filled += count
            at += count

    def _write_chunk(self) -> None:
        """Write what is buffered, documents first: a reader never sees tokens without their ends."""
        count = self._flushed + self._filled
        with self._writing():
            self._extend("doc_ends", self._ended(count))
            for name in reversed(self._buffers):  # tokens last
                self._extend(name, self._buffers[name][: self._filled])
            self._set("token_count", np.int64(count))
            self._file.flush()
        self._flushed, self._filled = count, 0

    def _ended(self, count: int) -> np.ndarray:
        """Return the ends of documents up to a token that are not in the file yet."""
        ends = np.concatenate(self._ends) if self._ends else np.empty(0, _ENDS_DTYPE)
        known = int(ends.searchsorted(count, side="right"))
        self._ends = [ends[known:]] if known < len(ends) else []
        return ends[:known]

    def _extend(self, name: str, values: np.ndarray) -> None:
        """Write values behind those that are there, and flush them."""
        if not len(values):
            return
        # The layer below h5py's datasets: theirs takes four times as long for few values.
        dataset, spaces = self._datasets[name], self._h5py.h5s
        start = dataset.shape[0]
        dataset.set_extent((start + len(values),))
        place = dataset.get_space()
        place.select_hyperslab((start,), (len(values),))
        dataset.write(spaces.create_simple((len(values),)), place, values)
        dataset.flush()
        self._hashes[name].update(values.view(np.uint8).data)

    def _set(self, name: str, value: object) -> None:
        for known, attribute in self._attributes:
            if known == name:
                attribute.write(np.asarray(value))

    def _finish(self) -> None:
        if self._filled or self._ends:
            self._write_chunk()
        with self._writing():
            for name, digest in self._hashes.items():
                self._set(_hash_name(name), _text(digest.hexdigest()))
            self._file.flush()
            self._set("complete", np.int64(1))
            self._file.flush()  # a full disk is told here, while it can be mended
            self._datasets, self._attributes = {}, []
            self._file.close()
        self._file = None

    def _listed(self) -> tuple[WrittenFile, ...]:
        with reading(self.target), self.target.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        return (WrittenFile(self.target.name, size, digest, self.tokens, self.documents),)

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        try:
            yield
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            self._drop(broken=True)
            raise StorageError(f"{self.target}: cannot be written: {why(error)}") from error

    def _drop(self, *, broken: bool = False) -> None:
        """Close the file as it is, without `complete`."""
        file, self._file, self._datasets, self._attributes = self._file, None, {}, []
        if file is None:
            return
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if broken:
                _divert(file)
            file.close()


def _divert(file: Any) -> None:
    """Let what HDF5 still has to write of a file go to memory, so that it can close it.

    A file that could not be written cannot be closed, and the process dies of it when it ends
    (segmentation fault, HDF5 2.0 on a full disk).
    """
    handle = file.id.get_vfd_handle()
    with (
        tempfile.TemporaryFile()
        if not hasattr(os, "memfd_create")
        else os.fdopen(os.memfd_create("hdf5"), "wb") as instead
    ):
        os.dup2(instead.fileno(), handle, inheritable=False)


class Followed:
    """A file in writing, as far as it had come at the last `refresh`: `tokens` and `ends`."""

    def __init__(self, path: Path, tokens: HandleColumn) -> None:
        self.path, self.tokens = path, tokens
        self.ends = np.empty(0, _ENDS_DTYPE)
        self.complete = False
        self.refresh()

    def refresh(self) -> None:
        """See what has been written since."""
        self.tokens.refresh()
        with reading(self.path):
            self.complete = bool(self.tokens.dataset("tokens").attrs["complete"])
            documents = self.tokens.dataset("doc_ends")
            documents.refresh()
            ends = documents[:]
        self.ends = ends[: int(ends.searchsorted(len(self.tokens), side="right"))]

    def close(self) -> None:
        """Let go of the file."""
        self.tokens.close()


def follow_hdf5(path: Path) -> Followed:
    """Open a file that another process may still be writing (SWMR)."""
    with reading(path), load_h5py().File(path, "r", swmr=True) as file:
        _check_kind(path, file)
        tokens = file["tokens"]
        return Followed(
            path, HandleColumn(path, "tokens", tokens.dtype, 0, tokens.chunks[0], swmr=True)
        )


def open_hdf5(path: Path) -> TokenFile:
    """Open a finished file; raises StorageError for one that is cut, of another kind or unfinished.

    `tokens` and `loss` are objects with slices, length and type that may be pickled and forked;
    slices of a file that is not packed are views where they can be.
    """
    with reading(path), load_h5py().File(path, "r") as file:
        _check_kind(path, file)
        count = _token_count(path, file)
        loss = _column(path, file, "loss", count) if "loss" in file else None
        eos = int(file.attrs["eos_id"])
        return TokenFile(
            path,
            Hdf5Writer.format,
            _column(path, file, "tokens", count),
            ends=_document_ends(path, file, count),
            loss=loss,
            vocab_size=int(file.attrs["vocab_size"]),
            eos_id=None if eos < 0 else eos,
            tokenizer=_attribute(file, "tokenizer_sha256"),
            row_tokens=_row_tokens(path, file, count),
        )


def validate(path: Path) -> str:
    """Hash all that is in a file; return the sha256 of its tokens, StorageError where one differs."""
    opened = open_hdf5(path)
    columns = {"tokens": opened.tokens, "doc_ends": opened.ends, "loss": opened.loss}
    found = {name: _digest(values) for name, values in columns.items() if values is not None}
    with reading(path), load_h5py().File(path, "r") as file:
        stated = {name: _attribute(file, _hash_name(name)) for name in found}
    for name, digest in found.items():
        if digest != stated[name]:
            raise StorageError(
                f"{path}: sha256 of {name} is {digest}, expected {stated[name]}; the file is"
                " damaged: make it again"
            )
    return found["tokens"]


def _check_options(
    target: Path, vocab_size: int, eos_id: int | None, chunk_bytes: int, compression: str | None
) -> None:
    if eos_id is not None and not 0 <= eos_id < vocab_size:
        raise UsageError(f"{target}: eos_id {eos_id} is outside the vocabulary 0..{vocab_size - 1}")
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise UsageError(
            f"{target}: chunks of {chunk_bytes} bytes; HDF5 holds {MAX_CHUNK_BYTES} a chunk"
        )
    if compression not in (None, "gzip"):
        raise UsageError(f"{target}: compression {compression!r}; gzip is the one that there is")


def _text(value: str) -> np.bytes_:
    return np.bytes_(value.encode("ascii"))


def _hash_name(dataset: str) -> str:
    return "sha256" if dataset == "tokens" else f"{dataset}_sha256"


def _attribute(file: Any, name: str) -> str:
    value = file.attrs[name]
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _check_kind(path: Path, file: Any) -> None:
    if "format" not in file.attrs or _attribute(file, "format") != _FORMAT:
        raise StorageError(
            f"{path}: is HDF5, but no token file: it has no attribute format={_FORMAT}"
        )
    version = int(file.attrs["format_version"])
    if version != _VERSION:
        raise StorageError(
            f"{path}: is {_FORMAT} version {version}, expected version {_VERSION}; read it with"
            " the release that wrote it"
        )
    vocab_size = int(file.attrs["vocab_size"])
    wanted = {"tokens": id_dtype(vocab_size), "doc_ends": _ENDS_DTYPE}
    if "loss" in file:
        wanted["loss"] = _LOSS_DTYPE
    for name, dtype in wanted.items():
        if name not in file:
            raise StorageError(f"{path}: has no dataset {name!r}; make it again")
        if file[name].dtype != dtype or file[name].ndim != 1:
            raise StorageError(
                f"{path}: dataset {name!r} is {file[name].ndim}-dimensional {file[name].dtype},"
                f" expected one dimension of {dtype} for a vocabulary of {vocab_size}"
            )


def _token_count(path: Path, file: Any) -> int:
    """Return how many tokens there are, after checking that the writer has ended."""
    tokens = file["tokens"]
    if int(file.attrs["complete"]) != 1:
        raise StorageError(f"{path}: is unfinished: its writer did not end; make it again")
    count, beside = int(file.attrs["token_count"]), int(tokens.attrs["token_count"])
    if count != beside:
        raise StorageError(
            f"{path}: token_count is {count}, at the dataset {beside}; make it again"
        )
    for name in {"tokens", "loss"} & set(file):
        if not 0 <= count <= len(file[name]):
            raise StorageError(
                f"{path}: token_count is {count}, but {name!r} holds {len(file[name])}; make it again"
            )
    return count


def _row_tokens(path: Path, file: Any, count: int) -> int | None:
    """Return how long rows are; None where documents lie back to back."""
    if "row_tokens" not in file.attrs:
        return None
    length = int(file.attrs["row_tokens"])
    if length < 1 or count % length:
        raise StorageError(f"{path}: {count} tokens are no rows of {length}; make it again")
    return length


def _document_ends(path: Path, file: Any, count: int) -> np.ndarray:
    ends = file["doc_ends"][:]
    last = int(ends[-1]) if len(ends) else 0
    if last != count or (ends[1:] < ends[:-1]).any():
        raise StorageError(
            f"{path}: document ends must rise to the {count} tokens, the last is {last}; make it again"
        )
    return ends


def _column(path: Path, file: Any, name: str, count: int) -> Any:
    """Return a dataset's numbers: an array where it lies in one piece, else a Column."""
    dataset = file[name]
    if dataset.chunks is None:  # of h5repack; it has no offset where nothing is in it
        return map_array(path, dataset.dtype, offset=dataset.id.get_offset() or 0, count=count)
    chunk = dataset.chunks[0]
    if dataset.id.get_create_plist().get_nfilters():
        return HandleColumn(path, name, dataset.dtype, count, chunk)
    found: list[tuple[int, int]] = []
    dataset.id.chunk_iter(lambda about: found.append((about.chunk_offset[0], about.byte_offset)))
    needed = sorted(found)[: -(-count // chunk)]  # what lies behind them is never shown
    places = np.array([place for _, place in needed], np.int64)
    back_to_back = [start for start, _ in needed] == [*range(0, count, chunk)]
    end = int(places.max()) + chunk * dataset.dtype.itemsize if len(places) else 0
    if not back_to_back or end > path.stat().st_size:
        raise StorageError(f"{path}: {name!r} lacks chunks of its {count} numbers; make it again")
    return MappedColumn(path, dataset.dtype, count, chunk, places)


def _digest(values: np.ndarray | Column) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(values), _BLOCK):
        digest.update(np.ascontiguousarray(values[start : start + _BLOCK]).view(np.uint8).data)
    return digest.hexdigest()
