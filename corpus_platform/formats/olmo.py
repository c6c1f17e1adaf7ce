"""Documents <-> the numpy files of OLMo-core and dolma, NAME.npy and those beside it.

Byte by byte, all integers little-endian (allenai/OLMo-core fa6c5014, src/olmo_core/data/
{utils,numpy_dataset}.py; allenai/dolma 669f5348, python/dolma/tokenizer/{memmap_writer,tokenizer,
data_types}.py):

NAME.npy         no .npy file but the bare ids, document after document, as np.memmap takes them:
                 uint8 where the vocabulary has at most 256 ids, uint16 to 65,536, uint32 above;
                 both tools choose so from the size of the vocabulary.
NAME.csv.gz      gzip (no time, no name), one line a document: start,end, in tokens, the end
                 exclusive; dolma goes on with id,src,loc: the id, the file it came from and its line
                 there, from 1, and ends its lines with "\\r\\n"; OLMo-core writes two columns and
                 "\\n". OLMo-core reads line by line, so line ends in ids are written as \\n and \\r.
NAME.label_mask  optional, one byte a token, 1 where its loss counts, else 0 (a bool memmap).
                 OLMo-core takes such paths apart from those of tokens, and a mask that was called
                 .npy would be caught by the glob of these.

An empty document has no line: dolma writes none, and OLMo-core refuses one that starts where the
tokens end.
"""

import array
import csv
import gzip
import io
import tokenize
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.token_arrays import (
    ID_DTYPES,
    TokenFile,
    file_size,
    id_dtype_of,
    map_array,
    no_wrong_size,
)

__all__ = ["OlmoWriter", "is_true_npy", "olmo_dtype", "open_olmo", "open_true_npy"]

_NPY_MAGIC = b"\x93NUMPY"
# What numpy raises of damaged headers: it parses them as Python.
_NPY_ERRORS = (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError)
_NPY_ERRORS += (tokenize.TokenError, MemoryError)
_LOSS = np.dtype("u1")
_GZIP = 31  # for zlib: a gzip header, which then has no time and no name, around a 32 KB window
_NO_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


def olmo_dtype(vocab_size: int) -> np.dtype:
    """Return the type of ids that OLMo-core and dolma take for a vocabulary."""
    name = "uint8" if vocab_size <= 1 << 8 else "uint16" if vocab_size <= 1 << 16 else "uint32"
    return ID_DTYPES[name]


class OlmoWriter(ExportWriter):
    """Write NAME.npy and the files beside it; `empty_documents` counts those without a line."""

    format = "olmo"
    max_vocab_size = 1 << 32

    def __init__(self, target: Path, *, vocab_size: int, loss: bool = False) -> None:
        super().__init__(target, vocab_size=vocab_size, loss=loss)
        if target.suffix != ".npy":
            raise UsageError(f"{target}: OLMo-core finds documents beside names that end in .npy")
        self._dtype, self.empty_documents = olmo_dtype(vocab_size), 0
        self._sources: _Sources | None = None
        self._has_sources: bool | None = None
        self._npy = self._open(target)
        self._csv = self._open(target.with_suffix(".csv.gz"))
        self._gzip = zlib.compressobj(wbits=_GZIP)
        self._loss = self._open(target.with_suffix(".label_mask")) if loss else None

    def append(
        self,
        tokens: np.ndarray,
        ends: np.ndarray,
        loss: np.ndarray | None = None,
        *,
        ids: Sequence[str] | None = None,
        shards: Sequence[str] | None = None,
        rows: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """Write documents as ExportWriter does, and where each came from; rows count from 0.

        A file has all three columns of all documents or none of any.
        """
        self._sources = self._checked_sources(len(ends), ids, shards, rows)
        super().append(tokens, ends, loss)

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._npy.write_array(tokens, self._dtype)
        if self._loss is not None and loss is not None:
            self._loss.write_array(loss, _LOSS)
        starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        kept = np.flatnonzero(ends > starts)
        self.empty_documents += len(ends) - len(kept)
        spans = ((starts[kept] + self.tokens).tolist(), (ends[kept] + self.tokens).tolist())
        lines = _lines(spans, self._sources, kept.tolist())
        self._csv.write(self._gzip.compress(lines.encode()))

    def _finish(self) -> None:
        self._csv.write(self._gzip.flush())

    def _checked_sources(
        self,
        count: int,
        ids: Sequence[str] | None,
        shards: Sequence[str] | None,
        rows: Sequence[int] | np.ndarray | None,
    ) -> "_Sources | None":
        given = [column for column in (ids, shards, rows) if column is not None]
        if not count and not given:
            return None
        if any(len(column) != count for column in given) or len(given) not in (0, 3):
            raise StageFailed(
                f"{self.target}: columns of {[len(column) for column in given]} for {count}"
                " documents; give ids, shards and rows of all or none of them"
            )
        if self._has_sources not in (None, bool(given)):
            raise StageFailed(
                f"{self.target}: some documents come with ids, shards and rows and some without"
            )
        self._has_sources = bool(given)
        if ids is None or shards is None or rows is None:
            return None
        return _Sources(ids, shards, rows)


class _Sources(NamedTuple):
    ids: Sequence[str]
    shards: Sequence[str]
    rows: Sequence[int] | np.ndarray


def _lines(spans: tuple[list[int], list[int]], sources: _Sources | None, kept: list[int]) -> str:
    pairs = zip(*spans, strict=True)
    if sources is None:
        return "".join(f"{start},{end}\n" for start, end in pairs)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        (
            *pair,
            sources.ids[i].translate(_NO_LINE_ENDS),
            sources.shards[i].translate(_NO_LINE_ENDS),
            int(sources.rows[i]) + 1,
        )
        for pair, i in zip(pairs, kept, strict=True)
    )
    return text.getvalue()


def open_olmo(path: Path, *, dtype: np.dtype | str | None = None) -> TokenFile:
    """Open NAME.npy; `ends` is None where no NAME.csv.gz is beside it.

    The type of ids is nowhere written: it is given, or follows from where the last document ends.
    Raises StorageError for files that do not agree in size, or lines that leave tokens out.
    """
    size, csv_path = file_size(path), path.with_suffix(".csv.gz")
    ends = _read_ends(csv_path) if csv_path.exists() else None
    if dtype is None and ends is None:
        raise StorageError(
            f"{path}: nothing says how wide its ids are, and {csv_path.name} is not there to tell;"
            f" say so ({', '.join(ID_DTYPES)})"
        )
    last = int(ends[-1]) if ends is not None and len(ends) else 0
    found = _fitting(path, size, last) if dtype is None else id_dtype_of(path, dtype)
    if ends is not None:
        why = f"{last} ids of {found.name}, where the last document ends"
        no_wrong_size(path, size, last * found.itemsize, why=why)
    tokens, mask_path = map_array(path, found), path.with_suffix(".label_mask")
    loss = map_array(mask_path, _LOSS) if mask_path.exists() else None
    if loss is not None:
        no_wrong_size(mask_path, len(loss), len(tokens), why=f"one a token of {path.name}")
    return TokenFile(path, "olmo", tokens, ends, loss)


def _fitting(path: Path, size: int, last: int) -> np.dtype:
    """Return the type of ids with which the last document ends at the end of the file."""
    if not size and not last:
        return ID_DTYPES["uint16"]
    for dtype in ID_DTYPES.values():
        if last * dtype.itemsize == size:
            return dtype
    sizes = ", ".join(str(last * dtype.itemsize) for dtype in ID_DTYPES.values())
    raise StorageError(
        f"{path}: {size} bytes, expected one of {sizes} for {last} ids of 1, 2 or 4 bytes, where"
        " the last document ends; it was cut or grew: make it again"
    )


def _read_ends(path: Path) -> np.ndarray:
    """Return the second column; StorageError where documents do not lie back to back."""
    ends, before = array.array("q"), 0
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            for line in csv.reader(file):
                start, end = int(line[0]), int(line[1])
                if start != before or end < start:
                    raise StorageError(
                        f"{path}: document {len(ends)} is [{start}, {end}), expected to start at"
                        f" {before}, where the one before it ends"
                    )
                ends.append(end)
                before = end
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    except (ValueError, IndexError, OverflowError, csv.Error) as error:
        raise StorageError(f"{path}: line {len(ends) + 1} is no document: {error}") from error
    return np.frombuffer(ends, np.int64) if ends else np.empty(0, np.int64)


def is_true_npy(path: Path) -> bool:
    """Return whether a file is what numpy.save writes, which OLMo-core would take for ids."""
    try:
        with path.open("rb") as file:
            return file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def open_true_npy(path: Path) -> TokenFile:
    """Open a one-dimensional array of integers as numpy.save writes it."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except _NPY_ERRORS as error:
        raise StorageError(f"{path}: is a .npy file that cannot be read: {error}") from error
    tokens = np.asarray(loaded)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise StorageError(
            f"{path}: is a .npy file of {tokens.dtype} {tokens.shape}, expected a row of integers"
        )
    return TokenFile(path, "npy", tokens)
