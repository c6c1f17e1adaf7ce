"""One native token file written in parts: in any order, by any process, each part to its place.

What the whole will hold is known before: tokens, entries, whether there is a mask. The bytes are
those that the writers of `token_bin_writer` would write one after the other; the files get their
hashes and NAME.json when all parts are there.
"""

import contextlib
import hashlib
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

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

__all__ = ["TokenBinParts"]

_BUFFERS = 1024  # that one call of the system writes; IOV_MAX of Linux
_BLOCK = 1 << 20


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
        tokens: Sequence[np.ndarray],
        ends: np.ndarray,
        *,
        loss: Sequence[np.ndarray] | None = None,
        pieces: np.ndarray | None = None,
    ) -> None:
        """Write arrays of ids back to back from a token on, and the index from an entry on.

        `ends` count from the first of these tokens; `loss` has an array of bytes for each of ids.
        """
        dtype = id_dtype(self.policy.vocab_size)
        self._put("bin", token * dtype.itemsize, tokens)
        self._put("index", entry * INDEX_DTYPE.itemsize, [(ends + token).astype(INDEX_DTYPE)])
        if self.masked:
            masks = [np.ones(len(a), np.uint8) for a in tokens] if loss is None else loss
            self._put("loss", token, masks)
        if pieces is not None:
            self._put("pieces", entry * PIECE_DTYPE.itemsize, [pieces])

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

    def _put(self, end: str, offset: int, arrays: Sequence[np.ndarray]) -> None:
        """Write arrays one after the other from a byte on."""
        path = self._path(end)
        with _told(path):
            descriptor = os.open(path, os.O_WRONLY)
            try:
                for first in range(0, len(arrays), _BUFFERS):
                    buffers = [
                        a.view(np.uint8).data for a in arrays[first : first + _BUFFERS] if len(a)
                    ]
                    offset = _write_all(descriptor, buffers, offset)
            finally:
                os.close(descriptor)


def _write_all(descriptor: int, buffers: list[memoryview], offset: int) -> int:
    """Write buffers at an offset, however little a call takes; return the offset after them."""
    while buffers:
        written = os.pwritev(descriptor, buffers, offset)
        offset += written
        while buffers and written >= len(buffers[0]):
            written -= len(buffers.pop(0))
        if written:
            buffers[0] = buffers[0][written:]
    return offset


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
