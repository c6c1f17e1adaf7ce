"""Readers of exported files in a few lines each, written from the formats' descriptions alone.

struct, numpy, gzip and h5py only: nothing of the package reads here. Each returns documents, as
lists of ids.
"""

import gzip
import struct
from pathlib import Path

import numpy as np

__all__ = ["by_end_token", "datatrove", "hdf5", "llmc", "megatron", "nanogpt", "native", "olmo"]

Lists = list[list[int]]


def _split(ids: np.ndarray, ends: list[int]) -> Lists:
    return [ids[a:b].tolist() for a, b in zip([0, *ends], ends, strict=False)]


def by_end_token(ids: np.ndarray, end: int) -> Lists:
    """Cut a stream behind each end token."""
    return _split(ids, (np.flatnonzero(ids == end) + 1).tolist())


def native(prefix: Path) -> Lists:
    """Read NAME.bin and NAME.index."""
    return _split(np.fromfile(f"{prefix}.bin", "<u2"), np.fromfile(f"{prefix}.index", "<u8").tolist())  # fmt: skip


def megatron(prefix: Path) -> Lists:
    """Read PREFIX.idx with struct, and the ids at its pointers."""
    idx, data = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    magic, version, code, count, documents = struct.unpack_from("<9sQBQQ", idx)
    assert (magic, version) == (b"MMIDIDX\x00\x00", 1)
    kind = {8: "<u2", 4: "<i4"}[code]
    lengths = struct.unpack_from(f"<{count}i", idx, 34)
    pointers = struct.unpack_from(f"<{count}q", idx, 34 + 4 * count)
    assert struct.unpack_from(f"<{documents}q", idx, 34 + 12 * count) == tuple(range(count + 1))
    assert len(idx) == 34 + 12 * count + 8 * documents
    return [
        np.frombuffer(data, kind, n, at).tolist() for n, at in zip(lengths, pointers, strict=True)
    ]


def datatrove(path: Path) -> Lists:
    """Read NAME.ds and NAME.ds.index, in the width that NAME.ds.metadata says."""
    width = Path(f"{path}.metadata").read_text().split("\n")[0].split("|")[1]
    ends = np.fromfile(f"{path}.index", "<u8").tolist()
    return _split(np.fromfile(path, f"<u{width}"), ends)


def nanogpt(path: Path, end: int) -> Lists:
    """Read bare uint16."""
    return by_end_token(np.fromfile(path, "<u2"), end)


def llmc(path: Path, end: int) -> Lists:
    """Read the header of 256 int32, and what is behind it."""
    data = path.read_bytes()
    magic, version, count = struct.unpack_from("<3i", data)
    assert (magic, version) == (20240520, 1)
    assert len(data) == 1024 + 2 * count
    return by_end_token(np.frombuffer(data, "<u2", count, 1024), end)


def olmo(path: Path, dtype: str = "<u2") -> Lists:
    """Read bare ids at the places that NAME.csv.gz says."""
    with gzip.open(path.with_suffix(".csv.gz"), "rt", newline="") as lines:
        places = [line.split(",")[:2] for line in lines]
    ids = np.fromfile(path, dtype)
    return [ids[int(start) : int(end)].tolist() for start, end in places]


def hdf5(path: Path) -> Lists:
    """Read the datasets `tokens` and `doc_ends`."""
    import h5py

    with h5py.File(path, "r") as file:
        return _split(file["tokens"][:], file["doc_ends"][:].tolist())
