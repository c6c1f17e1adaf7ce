"""One native token file written in parts: in any order, by any process, each part to its place.

What the whole will hold is known before: tokens, entries, whether there is a mask. The bytes are
those that the writers of `token_bin_writer` would write one after the other; the files get their
hashes and NAME.json when all parts are there.
"""

import contextlib
import hashlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import StorageError
from corpus_platform.formats.token_bin import (
    INDEX_DTYPE,
    PIECE_DTYPE,
    Hashed,
    Header,
    id_dtype,
)
from corpus_platform.formats.token_bin_writer import Policy

__all__ = ["Slices", "TokenBinParts", "write_slices"]

_BUFFERS = 1024  # that one call of the system writes; IOV_MAX of Linux
_BLOCK = 1 << 20


class Slices(NamedTuple):
    """Slices of an array, in an order."""

    of: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class TokenBinParts:
    """A token file to be written in parts; it can be sent to other processes."""

    folder: Path
    name: str
    policy: Policy
    tokens: int
    entries: int
    masked: bool
    row_tokens: int | None = None

    def create(self) -> None:
        """Make the files in their full size, empty so far."""
        for path, size in self._sizes().items():
            with _told(path), path.open("wb") as file:
                file.truncate(size)

    def write(
        self,
        token: int,
        entry: int,
        tokens: Slices,
        ends: np.ndarray,
        *,
        loss: np.ndarray | None = None,
        pieces: np.ndarray | None = None,
    ) -> None:
        """Write slices of ids back to back from a token on, and the index from an entry on.

        `ends` count from the first of these tokens; `loss` has a byte for each id of the array that
        is sliced, None where all count.
        """
        self._put("bin", token, tokens)
        self._put("index", entry, _whole((ends + token).astype(INDEX_DTYPE)))
        if self.masked:
            count = int(tokens.lengths.sum())
            masks = _whole(np.ones(count, np.uint8)) if loss is None else tokens._replace(of=loss)
            self._put("loss", token, masks)
        if pieces is not None:
            self._put("pieces", entry, _whole(pieces))

    def seal(self, *, documents: int, padding: int) -> Header:
        """Hash the files, write NAME.json and return what it says."""
        hashed = {path.suffix[1:]: _hashed(path) for path in self._sizes()}
        header = Header(
            vocab_size=self.policy.vocab_size,
            tokenizer_sha256=self.policy.tokenizer_sha256,
            eos_id=self.policy.eos_id,
            bos_id=self.policy.bos_id,
            tokens=self.tokens,
            documents=documents,
            bin=hashed["bin"],
            index=hashed["index"],
            loss=hashed.get("loss"),
            row_tokens=self.row_tokens,
            pad_id=self.policy.pad_id if self.row_tokens else None,
            padding=padding,
            pieces=hashed.get("pieces"),
        )
        path = self._path("json")
        with _told(path):
            path.write_bytes(header.to_json())
        return header

    def _path(self, end: str) -> Path:
        return self.folder / f"{self.name}.{end}"

    def _sizes(self) -> dict[Path, int]:
        itemsize = id_dtype(self.policy.vocab_size).itemsize
        sizes = {"bin": self.tokens * itemsize, "index": self.entries * INDEX_DTYPE.itemsize}
        if self.masked:
            sizes["loss"] = self.tokens
        if self.row_tokens:
            sizes["pieces"] = self.entries * PIECE_DTYPE.itemsize
        return {self._path(end): size for end, size in sizes.items()}

    def _put(self, end: str, place: int, slices: Slices) -> None:
        """Write slices one after the other from a value on."""
        path = self._path(end)
        with _told(path):
            descriptor = os.open(path, os.O_WRONLY)
            try:
                write_slices(descriptor, slices, place * slices.of.itemsize)
            finally:
                os.close(descriptor)


def _whole(values: np.ndarray) -> Slices:
    return Slices(values, np.zeros(1, np.int64), np.array([len(values)]))


def write_slices(descriptor: int, slices: Slices, offset: int) -> None:
    """Write slices of an array one after the other from a byte of a file on, without a copy."""
    if not len(slices.of):
        return  # an empty array has no memory to show
    size = slices.of.itemsize
    view = np.ascontiguousarray(slices.of).view(np.uint8).data
    begins = (slices.starts * size).tolist()
    ends = ((slices.starts + slices.lengths) * size).tolist()
    for first in range(0, len(begins), _BUFFERS):
        part = slice(first, first + _BUFFERS)
        buffers = [view[a:b] for a, b in zip(begins[part], ends[part], strict=True)]
        count = sum(ends[part]) - sum(begins[part])
        written = os.pwritev(descriptor, buffers, offset)
        if written < count:
            _write_rest(descriptor, b"".join(buffers)[written:], offset + written)
        offset += count


def _write_rest(descriptor: int, rest: bytes, offset: int) -> None:
    """Write what one call of the system did not take."""
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _hashed(path: Path) -> Hashed:
    digest, size = hashlib.sha256(), 0
    with _told(path), path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return Hashed(size, digest.hexdigest())


@contextlib.contextmanager
def _told(path: Path) -> Generator[None]:
    """Turn errors of the system into those that name the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot be written or read: {error}") from error
