"""One native token file written in parts: in any order, by any thread or process, each to its place.

What the whole will hold is known before: tokens, entries, whether there is a mask. The bytes are
those that the writers of `token_bin_writer` would write one after the other. Their hashes are taken
while the file grows, and NAME.json is written when all parts are there.
"""

import contextlib
import hashlib
import mmap
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError
from corpus_platform.formats.slices import Slices, write_slices
from corpus_platform.formats.token_bin import (
    INDEX_DTYPE,
    PIECE_DTYPE,
    Hashed,
    Header,
    id_dtype,
)
from corpus_platform.formats.token_bin_writer import Policy

__all__ = ["PartsSeal", "TokenBinParts"]

_BLOCK = 1 << 26


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
        for path, size in self.sizes().items():
            with _told(path), path.open("wb") as file:
                file.truncate(size)

    def write(
        self,
        token: int,
        entry: int,
        tokens: Slices,
        ends: np.ndarray,
        *,
        loss: Slices | None = None,
        pieces: np.ndarray | None = None,
    ) -> None:
        """Write slices of ids back to back from a token on, and the index from an entry on.

        `ends` count from the first of these tokens; `loss` has a byte for each id, None where all
        count.
        """
        self._put("bin", token * id_dtype(self.policy.vocab_size).itemsize, tokens)
        ends = (ends + token).astype(INDEX_DTYPE)
        self._put("index", entry * INDEX_DTYPE.itemsize, Slices.whole(ends))
        if self.masked:
            count = int(tokens.sizes.sum()) // id_dtype(self.policy.vocab_size).itemsize
            self._put("loss", token, loss or Slices.whole(np.ones(count, np.uint8)))
        if pieces is not None:
            self._put("pieces", entry * PIECE_DTYPE.itemsize, Slices.whole(pieces))

    def path(self, end: str) -> Path:
        """Return the file with an ending: bin, index, loss, pieces or json."""
        return self.folder / f"{self.name}.{end}"

    def sizes(self, tokens: int | None = None, entries: int | None = None) -> dict[Path, int]:
        """Return the bytes of each file, whole or of its first tokens and entries."""
        tokens = self.tokens if tokens is None else tokens
        entries = self.entries if entries is None else entries
        itemsize = id_dtype(self.policy.vocab_size).itemsize
        sizes = {"bin": tokens * itemsize, "index": entries * INDEX_DTYPE.itemsize}
        if self.masked:
            sizes["loss"] = tokens
        if self.row_tokens:
            sizes["pieces"] = entries * PIECE_DTYPE.itemsize
        return {self.path(end): size for end, size in sizes.items()}

    def _put(self, end: str, offset: int, slices: Slices) -> None:
        """Write slices one after the other from a byte on."""
        path = self.path(end)
        with _told(path):
            descriptor = os.open(path, os.O_WRONLY)
            try:
                write_slices(descriptor, slices, offset)
            finally:
                os.close(descriptor)


class PartsSeal:
    """The hashes of a token file, taken from its beginning to wherever its parts are all there."""

    def __init__(self, file: TokenBinParts) -> None:
        self._file = file
        self._hashes = {path: hashlib.sha256() for path in file.sizes()}
        self._reached = dict.fromkeys(self._hashes, 0)

    def reach(self, tokens: int, entries: int) -> None:
        """Take in what the first tokens and entries are, which are written."""
        for path, size in self._file.sizes(tokens, entries).items():
            with _told(path), path.open("rb") as file:
                if (found := file.seek(0, os.SEEK_END)) < size:
                    raise StorageError(f"{path}: it ends at byte {found}, not {size}")
                while (reached := self._reached[path]) < size:
                    self._reached[path] = min(reached + _BLOCK, size)
                    self._take(path, file.fileno(), reached)

    def _take(self, path: Path, descriptor: int, first: int) -> None:
        """Hash what lies between a byte and the one that is reached now, where it lies.

        In long pieces: with other threads at work each return to Python is a wait.
        """
        page = first // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        size = self._reached[path] - page
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=page) as mapped:
            self._hashes[path].update(memoryview(mapped)[first - page :])

    def write_header(self, *, documents: int, padding: int) -> Header:
        """Take in the rest, write NAME.json and return what it says."""
        file = self._file
        self.reach(file.tokens, file.entries)
        found = self._hashes.items()
        hashed = {p.suffix[1:]: Hashed(self._reached[p], h.hexdigest()) for p, h in found}
        header = Header(
            vocab_size=file.policy.vocab_size,
            tokenizer_sha256=file.policy.tokenizer_sha256,
            eos_id=file.policy.eos_id,
            bos_id=file.policy.bos_id,
            tokens=file.tokens,
            documents=documents,
            bin=hashed["bin"],
            index=hashed["index"],
            loss=hashed.get("loss"),
            row_tokens=file.row_tokens,
            pad_id=file.policy.pad_id if file.row_tokens else None,
            padding=padding,
            pieces=hashed.get("pieces"),
        )
        with _told(file.path("json")):
            file.path("json").write_bytes(header.to_json())
        return header


@contextlib.contextmanager
def _told(path: Path) -> Generator[None]:
    """Turn errors of the system into those that name the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot be written or read: {error}") from error
