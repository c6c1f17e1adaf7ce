"""Slices of arrays in memory, written to a file one after the other by calls of the system.

Each call takes a thousand slices as addresses and lengths: Python looks at none of them, nothing is
copied on the way, and other threads go on meanwhile. Needs numpy and the C library.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Slices", "write_array", "write_slices"]

_PER_CALL = 1024  # IOV_MAX of Linux and macOS


@dataclass(frozen=True)
class Slices:
    """Slices in an order: address and bytes of each, and the arrays that they lie in."""

    of: tuple[np.ndarray, ...]
    addresses: np.ndarray
    sizes: np.ndarray

    @classmethod
    def whole(cls, values: np.ndarray) -> "Slices":
        """Return an array as one slice."""
        return cls.cut(values, np.zeros(1, np.int64), np.array([len(values)]))

    @classmethod
    def cut(cls, values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> "Slices":
        """Return slices of an array, by where they start and how many values they have.

        Raises IndexError where one reaches out of it.
        """
        return cls.cut_from([values], 0, starts, lengths)

    @classmethod
    def cut_from(
        cls,
        arrays: Sequence[np.ndarray],
        which: np.ndarray | int,
        starts: np.ndarray,
        lengths: np.ndarray,
    ) -> "Slices":
        """Return slices of several arrays of one type: `which` says in which of them each lies."""
        arrays = tuple(np.ascontiguousarray(values) for values in arrays)
        room = np.array([len(values) for values in arrays])[which]
        out = (starts < 0) | (lengths < 0) | (starts + lengths > room)
        if out.any():
            room = np.broadcast_to(room, out.shape)[out][0]
            raise IndexError(f"a slice reaches out of the {room} values")
        size = arrays[0].itemsize
        begins = np.array([values.ctypes.data for values in arrays], np.uint64)[which]
        return cls(arrays, begins + (starts * size).astype(np.uint64), lengths * size)

    @classmethod
    def joined(cls, parts: Sequence["Slices"]) -> "Slices":
        """Return the slices of all parts."""
        none = np.zeros(0, np.int64)
        return cls(
            tuple(values for part in parts for values in part.of),
            np.concatenate([none.astype(np.uint64), *(part.addresses for part in parts)]),
            np.concatenate([none, *(part.sizes for part in parts)]),
        )

    def __getitem__(self, chosen: np.ndarray | slice) -> "Slices":
        """Return some of the slices, in the order in which they are named."""
        return Slices(self.of, self.addresses[chosen], self.sizes[chosen])


def _pwritev() -> "ctypes._NamedFuncPointer":
    found = ctypes.CDLL(None, use_errno=True).pwritev
    found.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
    found.restype = ctypes.c_ssize_t
    return found


_PWRITEV = _pwritev()


def write_array(path: Path, values: np.ndarray) -> None:
    """Write an array to a new file; raise OSError where that fails.

    `ndarray.tofile` loses up to 4096 bytes on a full disk and says nothing.
    """
    with path.open("wb") as file:
        write_slices(file.fileno(), Slices.whole(values), 0)


def write_slices(descriptor: int, slices: Slices, offset: int) -> None:
    """Write slices one after the other from a byte of a file on; raise OSError where that fails."""
    vector = np.column_stack((slices.addresses, slices.sizes.astype(np.uint64)))
    ends = np.cumsum(slices.sizes)
    total, done = int(ends[-1]) if len(ends) else 0, 0
    while done < total:
        first = int(np.searchsorted(ends, done, side="right"))
        part = vector[first : first + _PER_CALL].copy()
        written_of_first = done - (int(ends[first]) - int(slices.sizes[first]))
        part[0] += np.array([written_of_first, -written_of_first]).astype(np.uint64)
        written = _PWRITEV(descriptor, part.ctypes.data, len(part), offset + done)
        if written < 0 and (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))
        if not written:  # some file systems say so where there is no room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += max(written, 0)
