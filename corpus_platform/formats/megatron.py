"""Documents <-> Megatron-LM's indexed dataset, PREFIX.bin and PREFIX.idx.

Version 1, byte by byte, all integers little-endian (NVIDIA/Megatron-LM d98e8a64,
megatron/core/datasets/indexed_dataset.py):

PREFIX.bin   token ids, nothing else, sequence after sequence, each of the type that the code names.
PREFIX.idx
    0   9 bytes   b"MMIDIDX\\0\\0"
    9   uint64    version, 1
   17   uint8     code of the type of an id: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16;
                  6 float64 and 7 float32 hold no ids. There is no uint32.
   18   uint64    S, the sequences
   26   uint64    D, the documents + 1
   34   int32     [S] tokens of each sequence
   then int64     [S] byte in PREFIX.bin at which each begins
   then int64     [D] document d is the sequences [d-th, d+1-th); the first is 0, the last is S
   then int8      [S] modes, in multimodal datasets only, which are not read here

Megatron takes uint16 below 65,500 ids and int32 from there on, and so does the writer; it makes one
sequence a document, an empty one of 0 tokens. Megatron's own reader cannot map an empty PREFIX.bin.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.hashed_file import WrittenFile, hashed_files
from corpus_platform.formats.token_arrays import TokenFile, file_size, map_array, no_wrong_size

__all__ = ["MegatronWriter", "index_blocks", "megatron_dtype", "merge_megatron", "open_megatron"]

_MAGIC, _VERSION = b"MMIDIDX\0\0", 1
_HEADER = np.dtype(
    [
        ("magic", "V9"),
        ("version", "<u8"),
        ("code", "u1"),
        ("sequences", "<u8"),
        ("document_indices", "<u8"),
    ]
)
_LENGTH, _POINTER = np.dtype("<i4"), np.dtype("<i8")
_DTYPES = {
    code: np.dtype(name)
    for code, name in {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}.items()
}
_UINT16_BELOW = 65_500  # DType.optimal_dtype
_BLOCK = 1 << 20


def megatron_dtype(vocab_size: int) -> np.dtype:
    """Return the type of ids that Megatron takes for a vocabulary."""
    return _DTYPES[8 if vocab_size < _UINT16_BELOW else 4]


class MegatronWriter(ExportWriter):
    """Write PREFIX.bin as documents come, and PREFIX.idx at the end: 4 bytes a document are kept."""

    format = "megatron"
    max_document_tokens = (1 << 31) - 1  # lengths are int32

    def __init__(self, prefix: Path, *, vocab_size: int) -> None:
        super().__init__(prefix, vocab_size=vocab_size)
        self._dtype, self._lengths = megatron_dtype(vocab_size), bytearray()
        self._bin = self._open(Path(f"{prefix}.bin"))
        self._idx = self._open(Path(f"{prefix}.idx"))

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._bin.write_array(tokens, self._dtype)
        self._lengths += np.diff(ends, prepend=0).astype(_LENGTH).tobytes()

    def _finish(self) -> None:
        lengths = np.frombuffer(self._lengths, _LENGTH)
        for block in index_blocks(lengths, self._dtype):
            self._idx.write(block)


def index_blocks(
    lengths: np.ndarray, dtype: np.dtype, *, document_indices: np.ndarray | None = None
) -> Iterator[bytes]:
    """Yield the bytes of PREFIX.idx; without `document_indices` each sequence is a document."""
    count = len(lengths) + 1 if document_indices is None else len(document_indices)
    code = next(code for code, known in _DTYPES.items() if known == dtype)
    yield np.array([(_MAGIC, _VERSION, code, len(lengths), count)], _HEADER).tobytes()
    for start in range(0, len(lengths), _BLOCK):
        yield lengths[start : start + _BLOCK].astype(_LENGTH).tobytes()
    before = 0
    for start in range(0, len(lengths), _BLOCK):
        # In 64 bits: two sequences of 1.5e9 ids are behind the reach of int32.
        ends = np.cumsum(lengths[start : start + _BLOCK], dtype=np.int64) * dtype.itemsize + before
        yield np.concatenate(([before], ends[:-1])).astype(_POINTER).tobytes()
        before = int(ends[-1])
    for start in range(0, count, _BLOCK):
        if document_indices is None:
            yield np.arange(start, min(start + _BLOCK, count), dtype=_POINTER).tobytes()
        else:
            yield document_indices[start : start + _BLOCK].astype(_POINTER).tobytes()


class _Index(NamedTuple):
    """What PREFIX.idx says."""

    dtype: np.dtype
    lengths: np.ndarray
    document_indices: np.ndarray
    ends: np.ndarray  # of documents, in tokens


def open_megatron(prefix: Path) -> TokenFile:
    """Open PREFIX (or PREFIX.idx, PREFIX.bin) after all that can be checked without the tokens.

    Raises StorageError for what is missing, cut, grown or contradicts itself.
    """
    prefix = _prefix(prefix)
    index = _read_index(Path(f"{prefix}.idx"))
    tokens = _map_tokens(prefix, index)
    return TokenFile(prefix, "megatron", tokens, index.ends)


def merge_megatron(prefixes: Sequence[Path], target: Path) -> tuple[WrittenFile, ...]:
    """Write the documents of all datasets, in this order, as one.

    The bytes are those of one export of the same documents. Raises UsageError for datasets of
    different types of ids, or where the target is one of them.
    """
    prefixes = [_prefix(prefix) for prefix in prefixes]
    indices = [_read_index(Path(f"{prefix}.idx")) for prefix in prefixes]
    kinds = sorted({index.dtype.name for index in indices})
    if len(kinds) != 1 or target.resolve() in {prefix.resolve() for prefix in prefixes}:
        raise UsageError(
            f"{target}: cannot be merged of {len(prefixes)} datasets with ids of {kinds}: at least"
            " one, all of one type, and none of them the target"
        )
    tokens = [_map_tokens(prefix, index) for prefix, index in zip(prefixes, indices, strict=True)]
    with hashed_files(Path(f"{target}.bin"), Path(f"{target}.idx")) as (data, idx):
        for part in tokens:
            data.write_array(part, indices[0].dtype)
        for block in _merged_index(indices):
            idx.write(block)
    documents = sum(len(index.ends) for index in indices)
    return data.written(tokens=sum(map(len, tokens)), documents=documents), idx.written()


def _merged_index(indices: Sequence[_Index]) -> Iterator[bytes]:
    lengths = np.concatenate([index.lengths for index in indices])
    starts = np.cumsum([0, *(len(index.lengths) for index in indices)])
    borders = [i.document_indices[1:] + start for i, start in zip(indices, starts, strict=False)]
    merged = np.concatenate(([0], *borders))
    return index_blocks(lengths, indices[0].dtype, document_indices=merged)


def _prefix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in (".bin", ".idx") else path


def _map_tokens(prefix: Path, index: _Index) -> np.ndarray:
    path = Path(f"{prefix}.bin")
    count = int(index.lengths.sum(dtype=np.int64))
    expected = count * index.dtype.itemsize
    why = f"the {count} ids of {index.dtype.name} in {prefix.name}.idx"
    no_wrong_size(path, file_size(path), expected, why=why)
    return map_array(path, index.dtype)


def _read_index(path: Path) -> _Index:
    size = file_size(path)
    if size < _HEADER.itemsize:
        raise StorageError(f"{path}: {size} bytes, expected {_HEADER.itemsize} of header at least")
    dtype, sequences, count = _read_header(path)
    expected = _HEADER.itemsize + 12 * sequences + 8 * count
    if sequences and size == expected + sequences:
        raise StorageError(f"{path}: has modes of sequences: a multimodal dataset, not one of text")
    no_wrong_size(path, size, expected, why=f"{sequences} sequences and {count - 1} documents")
    at = _HEADER.itemsize
    lengths = map_array(path, _LENGTH, offset=at, count=sequences)
    pointers = map_array(path, _POINTER, offset=at + 4 * sequences, count=sequences)
    indices = map_array(path, _POINTER, offset=at + 12 * sequences, count=count)
    ends = _document_ends(path, lengths, pointers, indices, dtype.itemsize)
    return _Index(dtype, lengths, indices, ends)


def _read_header(path: Path) -> tuple[np.dtype, int, int]:
    """Return the type of ids, the sequences, and the document indices."""
    header = map_array(path, _HEADER, count=1)[0]
    if header["magic"].tobytes() != _MAGIC or header["version"] != _VERSION:
        raise StorageError(
            f"{path}: begins with {header['magic'].tobytes()!r}, version {header['version']}, expected"
            f" {_MAGIC!r}, version {_VERSION}: no Megatron index"
        )
    code = int(header["code"])
    if code not in _DTYPES:
        known = ", ".join(map(str, _DTYPES))
        raise StorageError(f"{path}: its type of ids has code {code}, expected one of {known}")
    count = int(header["document_indices"])
    if not count:
        raise StorageError(f"{path}: has no document indices, expected documents + 1")
    return _DTYPES[code], int(header["sequences"]), count


def _document_ends(
    path: Path, lengths: np.ndarray, pointers: np.ndarray, indices: np.ndarray, itemsize: int
) -> np.ndarray:
    """Return where documents end, in tokens, once everything agrees."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    for start in range(0, len(lengths), _BLOCK):
        part = lengths[start : start + _BLOCK]
        if part.min() < 0:
            at = start + int((part < 0).argmax())
            raise StorageError(f"{path}: sequence {at} has {lengths[at]} tokens; make it again")
        np.cumsum(part, out=ends[start + 1 : start + 1 + len(part)], dtype=np.int64)
        ends[start + 1 : start + 1 + len(part)] += ends[start]
        wrong = pointers[start : start + _BLOCK] != ends[start : start + len(part)] * itemsize
        if wrong.any():
            at = start + int(wrong.argmax())
            raise StorageError(
                f"{path}: sequence {at} begins at byte {pointers[at]}, expected"
                f" {int(ends[at]) * itemsize}; make it again"
            )
    if indices[0] != 0 or indices[-1] != len(lengths) or (indices[1:] < indices[:-1]).any():
        raise StorageError(
            f"{path}: document indices must rise from 0 to the {len(lengths)} sequences; they begin"
            f" with {indices[0]} and end with {indices[-1]}"
        )
    return ends[indices[1:]]
