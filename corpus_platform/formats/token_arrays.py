"""Token files of any format as arrays: what was opened, and how a file becomes an array over a map.

Each format's own module checks its files and fills a TokenFile; which format a path has is told in
`token_file`.
"""

import dataclasses
import mmap
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError

__all__ = [
    "ID_DTYPES",
    "TokenFile",
    "file_size",
    "first_fall",
    "id_dtype_of",
    "map_array",
    "no_wrong_size",
]

ID_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ("uint8", "uint16", "uint32")}


@dataclasses.dataclass(frozen=True, eq=False)
class TokenFile:
    """A token file, opened read-only; arrays are views of maps where the format allows it.

    `tokens` are ids as stored (of HDF5 an object with slices, length and dtype). `ends` are
    exclusive, in tokens from the start, one a document; None where the format knows none. `loss` is
    one value a token, 0 where it counts for nothing. The rest is None where the file does not say.
    """

    path: Path
    format: str
    tokens: np.ndarray
    ends: np.ndarray | None = None
    loss: np.ndarray | None = None
    vocab_size: int | None = None
    eos_id: int | None = None
    tokenizer: str | None = None
    row_tokens: int | None = None  # where `ends` are those of pieces in rows of this length

    def document(self, i: int) -> np.ndarray:
        """Return the tokens of document `i`, without a copy where the format allows it."""
        count = 0 if self.ends is None else len(self.ends)
        if self.ends is None or not 0 <= i < count:
            raise IndexError(f"document {i} of {count}")
        return self.tokens[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])]


def file_size(path: Path) -> int:
    """Return the bytes of a file; StorageError where there is none."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def no_wrong_size(path: Path, real: int, expected: int, *, why: str) -> None:
    """Raise StorageError unless a file has the bytes that it should have."""
    if real != expected:
        raise StorageError(
            f"{path}: {real} bytes, expected {expected} for {why}; it was cut or grew: make it again"
        )


def first_fall(ends: np.ndarray, *, block: int = 1 << 20) -> int | None:
    """Return the first document that ends before the one before it, or before 0; None: there is none."""
    before = 0
    for start in range(0, len(ends), block):
        part = np.asarray(ends[start : start + block])
        falls = part[1:] < part[:-1]
        if part[0] < before or falls.any():
            return start if part[0] < before else start + 1 + int(falls.argmax())
        before = part[-1]
    return None


def map_array(
    path: Path, dtype: np.dtype, *, offset: int = 0, count: int | None = None
) -> np.ndarray:
    """Return a file, or `count` values of it from byte `offset`, as an array over a map.

    Raises StorageError where that is no whole number of values or more than there is.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2) - offset
            whole, rest = divmod(size, dtype.itemsize)
            if size < 0 or (rest if count is None else whole < count):
                wanted = "whole values" if count is None else f"{count} values"
                raise StorageError(
                    f"{path}: {size + offset} bytes, which are not {wanted} of {dtype.name} from"
                    f" byte {offset}"
                )
            count = whole if count is None else count
            if not count:  # an empty file cannot be mapped
                return np.empty(0, dtype)
            # A plain array over the map: slices of np.memmap cost three times as much.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return np.frombuffer(mapped, dtype, count=count, offset=offset)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def id_dtype_of(path: Path, dtype: np.dtype | str) -> np.dtype:
    """Return the little-endian type of ids that a caller named; StorageError for no such type."""
    named = np.dtype(dtype).newbyteorder("<")
    if named.kind not in "iu":
        raise StorageError(f"{path}: ids are integers, so they cannot be read as {named.name}")
    return named
