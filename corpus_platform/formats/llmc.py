"""Documents <-> llm.c's token files.

Byte by byte, all integers little-endian (karpathy/llm.c f1e2ace6, dev/data/data_common.py and
llmc/dataloader.h):

    0   int32     20240520 (ids of 2 bytes, made for GPT-2) or 20240801 (of 4, made for Llama 3)
    4   int32     version: 1 with the first, 7 with the second
    8   int32     the tokens, below 2^31
   12             zeros to byte 1,024
 1024             token ids, uint16 or uint32, nothing behind them

llm.c puts the end token before each document and keeps no index. Its C loader takes a glob of files
such as train_*.bin, knows 20240520 alone, and needs a file of exactly this size with more than one
batch of tokens; files of the 4-byte kind are for its Python side.
"""

from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.token_arrays import TokenFile, file_size, map_array, no_wrong_size

__all__ = ["LlmcWriter", "is_llmc", "llmc_dtype", "open_llmc"]

_FIELD, _HEADER_BYTES = np.dtype("<i4"), 1024
_KINDS = {np.dtype("<u2"): (20240520, 1), np.dtype("<u4"): (20240801, 7)}
_UINT16_VOCABULARY = 65_536
_MAX_TOKENS = (1 << 31) - 1  # the count is an int32


def llmc_dtype(vocab_size: int) -> np.dtype:
    """Return the type of ids for a vocabulary."""
    return np.dtype("<u2" if vocab_size <= _UINT16_VOCABULARY else "<u4")


class LlmcWriter(ExportWriter):
    """Write one file; the count in its header is put in at the end, and the file hashed then."""

    format = "llmc"
    max_tokens = _MAX_TOKENS
    max_vocab_size = 1 << 32

    def __init__(self, target: Path, *, vocab_size: int) -> None:
        super().__init__(target, vocab_size=vocab_size)
        self._dtype = llmc_dtype(vocab_size)
        self._bin = self._open(target, beginning_last=True)
        self._bin.write(bytes(_HEADER_BYTES))

    @property
    def room(self) -> int:
        """The tokens that still fit into this file."""
        return _MAX_TOKENS - self.tokens

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._bin.write_array(tokens, self._dtype)

    def _finish(self) -> None:
        self._bin.write_beginning(np.array([*_KINDS[self._dtype], self.tokens], _FIELD).tobytes())


def is_llmc(path: Path) -> bool:
    """Return whether a file begins with a magic number and version of llm.c's token files."""
    return _beginning(path)[:2] in _KINDS.values()


def open_llmc(path: Path) -> TokenFile:
    """Open a file; StorageError where its header is unknown or its size not what that says."""
    size, beginning = file_size(path), _beginning(path)
    dtype = next((t for t, kind in _KINDS.items() if beginning[:2] == kind), None)
    if dtype is None or size < _HEADER_BYTES or beginning[2] < 0:
        kinds = " or ".join(map(str, _KINDS.values()))
        raise StorageError(
            f"{path}: {size} bytes that begin with {beginning}, expected {kinds} and a count in a"
            f" header of {_HEADER_BYTES} bytes"
        )
    expected = _HEADER_BYTES + beginning[2] * dtype.itemsize
    no_wrong_size(path, size, expected, why=f"header and {beginning[2]} ids of {dtype.name}")
    return TokenFile(path, "llmc", map_array(path, dtype, offset=_HEADER_BYTES))


def _beginning(path: Path) -> tuple[int, ...]:
    """Return the first three fields, fewer of a shorter file."""
    try:
        with path.open("rb") as file:
            data = file.read(3 * _FIELD.itemsize)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    return tuple(np.frombuffer(data[: len(data) // 4 * 4], _FIELD).tolist())
