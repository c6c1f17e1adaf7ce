"""The numbers of one dataset of an HDF5 file, by slices, in whichever process asks.

h5py's objects can be neither pickled nor used after a fork. What is finished and not compressed is
therefore read past HDF5, by the places of its chunks in a map of the file; the rest through a handle
that each process opens for itself. What is in the file, and whether it is whole, `hdf5` says.
"""

import contextlib
import mmap
import operator
import os
import re
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any  # h5py is optional; its objects have no type here

import numpy as np

from corpus_platform.errors import MissingExtra, StorageError

__all__ = ["Column", "HandleColumn", "MappedColumn", "load_h5py", "reading", "why"]

# Bytes of chunks that HDF5 keeps unpacked, as HDF5 2.0 does by default (1.x: 1 MiB). Of a chunk that
# does not fit each read unpacks all.
_LEAST_CACHE = 8 << 20
_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # of h5py, for damaged files


def load_h5py() -> ModuleType:
    """Return h5py; raises MissingExtra where it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("HDF5: pip install 'corpus-platform[hdf5]'") from error
    return h5py


def why(error: BaseException) -> str:
    """Return what an error of h5py says, on one line; a fault of the disk in the disk's words."""
    told = re.search(r"error message = '([^']*)'", str(error))
    return told[1] if told else " ".join(str(error).split())[:300]


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """Turn what h5py raises into StorageErrors that name the file."""
    try:
        yield
    except _ERRORS as error:
        if "already open" in str(error):
            raise StorageError(
                f"{path}: is still being written, or its writer was killed; wait, or delete it and"
                " make it again"
            ) from error
        raise StorageError(f"{path}: cannot be read as HDF5: {why(error)}") from error


class Column:
    """Numbers by slices, `length` of them: what lies behind that in the file is never shown."""

    def __init__(self, path: Path, dtype: np.dtype, length: int) -> None:
        self.path, self.dtype, self._length = path, dtype, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, wanted: slice | int) -> Any:
        """Return an array, for a number one value of it."""
        if not isinstance(wanted, slice):
            at = operator.index(wanted)
            if not -self._length <= at < self._length:
                raise IndexError(f"token {at} of {self._length}")
            return self._read(at % self._length, at % self._length + 1)[0]
        start, stop, step = wanted.indices(self._length)
        if step == 1:
            return self._read(start, max(start, stop))
        places = range(start, stop, step)
        if not places:
            return np.empty(0, self.dtype)
        least = min(places[0], places[-1])
        return self._read(least, max(places[0], places[-1]) + 1)[:: abs(step)][
            :: 1 if step > 0 else -1
        ]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all of it in memory."""
        return np.asarray(self._read(0, self._length), dtype=dtype)

    def _read(self, start: int, stop: int) -> np.ndarray:
        raise NotImplementedError


class MappedColumn(Column):
    """Read by the places of the chunks; a slice is a view where its chunks lie in one piece.

    `places` are the offsets of the chunks in the file, in order. It may be pickled: each process
    maps the file when it first reads, and refuses when that is no longer the same.
    """

    def __init__(
        self, path: Path, dtype: np.dtype, length: int, chunk: int, places: np.ndarray
    ) -> None:
        super().__init__(path, dtype, length)
        self._chunk, self._places = chunk, places
        self._stamp = _stamp(path)
        # Where each run of chunks ends that lie back to back: a slice inside of one is a view.
        breaks = np.flatnonzero(np.diff(places) != chunk * dtype.itemsize) + 1
        self._run_ends = np.append(breaks, len(places)) * chunk
        self._run_starts = np.insert(breaks, 0, 0) * chunk
        self._run_places = places[np.insert(breaks, 0, 0)] if len(places) else places
        self._bytes: np.ndarray | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_bytes": None}

    def _read(self, start: int, stop: int) -> np.ndarray:
        if stop <= start:
            return np.empty(0, self.dtype)
        run = int(self._run_ends.searchsorted(start, side="right"))
        pieces = []
        while start < stop:
            end = min(stop, int(self._run_ends[run]))
            pieces.append(self._piece(run, start, end))
            start, run = end, run + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _piece(self, run: int, start: int, end: int) -> np.ndarray:
        size = self.dtype.itemsize
        at = int(self._run_places[run]) + (start - int(self._run_starts[run])) * size
        return self._mapped()[at : at + (end - start) * size].view(self.dtype)

    def _mapped(self) -> np.ndarray:
        if self._bytes is None:
            if _stamp(self.path) != self._stamp:
                raise StorageError(f"{self.path}: was replaced since it was opened; open it again")
            with reading(self.path), self.path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._bytes = np.frombuffer(mapped, np.uint8)
        return self._bytes


class HandleColumn(Column):
    """Read through HDF5, by a handle of this process alone; it may be pickled and forked.

    With `swmr` the file may be in writing: `refresh` shows what has come since. Else a file that
    is no longer the one first opened is refused.
    """

    def __init__(
        self, path: Path, name: str, dtype: np.dtype, length: int, chunk: int, *, swmr: bool = False
    ) -> None:
        super().__init__(path, dtype, length)
        self._name, self._swmr = name, swmr
        # Of a file in writing nothing is kept: what was read of a chunk may have grown since.
        self._cache = 0 if swmr else max(_LEAST_CACHE, 2 * chunk * dtype.itemsize)
        self._stamp = _stamp(path)
        self._file: Any = None
        self._datasets: dict[str, Any] = {}
        self._process = 0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_file": None, "_datasets": {}, "_process": 0}

    def dataset(self, name: str) -> Any:
        """Return a dataset of the file by a handle of this process; h5py's errors are the caller's."""
        if self._process != os.getpid():
            self.close()  # it is of the process that forked this one: HDF5 would go on to share it
            if not self._swmr and _stamp(self.path) != self._stamp:
                raise StorageError(f"{self.path}: was replaced since it was opened; open it again")
            self._file = load_h5py().File(self.path, "r", swmr=self._swmr, rdcc_nbytes=self._cache)
            self._process = os.getpid()
        if name not in self._datasets:
            self._datasets[name] = self._file[name]
        return self._datasets[name]

    def close(self) -> None:
        """Let go of the file; the next read opens it again."""
        file, self._file, self._datasets, self._process = self._file, None, {}, 0
        if file is not None:
            with reading(self.path):
                file.close()

    def refresh(self) -> None:
        """See what has been written since."""
        with reading(self.path):
            dataset = self.dataset(self._name)
            dataset.refresh()
            self._length = int(dataset.attrs["token_count"])

    def _read(self, start: int, stop: int) -> np.ndarray:
        with reading(self.path):
            return self.dataset(self._name)[start:stop]


def _stamp(path: Path) -> tuple[int, int]:
    with reading(path):
        about = path.stat()
    return about.st_size, about.st_mtime_ns
