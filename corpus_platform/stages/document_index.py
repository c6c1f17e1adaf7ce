"""Finds documents by id or URL: an index for each cleaned shard.

An index is keys in ascending order, then what each stands for: little-endian uint64 and nothing
else, in a file named by the content that it was made of. It is made when it is first asked for,
lies under the catalog of the storage, and may be deleted at any time; where nothing can be written
it is made in memory. A key is a hash, so whoever finds something compares the value itself.
"""

import contextlib
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from corpus_platform.stages.cleaned_documents import DOCUMENTS, TOMBSTONE_FILE
from corpus_platform.stages.project import Project
from corpus_platform.stages.tables import read_parts
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import publish_bytes, safe_name

__all__ = [
    "Index",
    "Kind",
    "documents_index",
    "index_of",
    "kept_file",
    "shard_folder",
]

Kind = Literal["id", "url"]
_SEEDS: dict[Kind, int] = {"id": 0, "url": 1}
_VERSION = 1  # of what keys are made of


class Index:
    """Keys in ascending order, and what each stands for."""

    def __init__(self, table: np.ndarray) -> None:
        self._keys, self._values = table

    def find(self, key: int) -> list[int]:
        """Return what a key stands for, in ascending order."""
        first, after = (
            int(np.searchsorted(self._keys, np.uint64(key), side=side))
            for side in ("left", "right")
        )
        return self._values[first:after].tolist()

    def rows(self, kind: Kind, value: str) -> list[int]:
        """Return the rows that may have an id or a URL."""
        return self.find(_hash(kind, value))


def _hash(kind: Kind, value: str) -> int:
    # A value from a command line may have bytes that are no UTF-8, which no document has.
    return xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"), seed=_SEEDS[kind])


def shard_folder(project: Project, kind: str, shard: str) -> Path:
    """Return the folder that keeps what is known of a kind of one shard."""
    return _folder(project).joinpath(kind, *map(safe_name, shard.split("/", 1)))


def _folder(project: Project) -> Path:
    return project.settings.storage_path / "catalog" / "explain"


def documents_index(project: Project, shard: str, cleaned: Artifact) -> Index:
    """Return the index of ids and URLs of a cleaned shard; dropped documents have their ids alone."""
    folder = shard_folder(project, "documents", shard)
    return Index(kept_file(folder, cleaned.content, lambda: _sorted(*_document_keys(cleaned))))


def index_of(kind: Kind, values: Sequence[str], rows: Sequence[int]) -> np.ndarray:
    """Return the table of an index of ids or URLs and the row of each."""
    return _sorted(_hashes(kind, values), np.array(rows, np.uint64))


def kept_file(
    folder: Path, content: str, make: Callable[[], np.ndarray], *, rows: int = 2
) -> np.ndarray:
    """Return a table of so many rows that is kept in a folder under the hash of what it is made of.

    Another one in the folder is of an earlier generation, and goes.
    """
    path = folder / f"{content[:32]}-{_VERSION}"
    with contextlib.suppress(OSError, ValueError):  # not there, or cut
        return _mapped(path).reshape(rows, -1)
    made = make().astype("<u8")
    with contextlib.suppress(OSError):  # a store that cannot be written
        publish_bytes(path, made.tobytes())
        for old in folder.iterdir():
            if old != path and not old.name.startswith("."):
                old.unlink(missing_ok=True)
    return made


def _mapped(path: Path) -> np.ndarray:
    """Return a file's numbers over a map of it; np.load takes ten times as long for a small one."""
    with path.open("rb") as file:
        if not file.seek(0, 2):  # an empty file cannot be mapped
            return np.empty(0, "<u8")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), "<u8")


def _sorted(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.lexsort((values, keys))
    return np.stack([keys[order], values[order]])


def _document_keys(cleaned: Artifact) -> tuple[np.ndarray, np.ndarray]:
    parts = list(_key_parts(cleaned))
    none = np.empty(0, np.uint64)
    return (
        np.concatenate([none, *(keys for keys, _ in parts)]),
        np.concatenate([none, *(rows for _, rows in parts)]),
    )


def _key_parts(cleaned: Artifact) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for part in read_parts(cleaned.path(DOCUMENTS), ["id", "url", "row"]):
        yield from (_hashed(part, kind) for kind in _SEEDS)
    for part in read_parts(cleaned.path(TOMBSTONE_FILE), ["id", "row"]):
        yield _hashed(part, "id")


def _hashed(part: pa.Table, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    named = part.filter(part[kind].is_valid())
    return _hashes(kind, named[kind].to_pylist()), named["row"].to_numpy().astype(np.uint64)


def _hashes(kind: Kind, values: Sequence[str]) -> np.ndarray:
    # A loop over documents: 0.8 s a million, once a generation. The hash of polars is another one
    # in every version of it.
    return np.fromiter((_hash(kind, value) for value in values), np.uint64, len(values))
