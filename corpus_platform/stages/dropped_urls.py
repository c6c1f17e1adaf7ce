"""Finds records that a rule dropped by their URL, which no table keeps: the stored shards are read.

Each is read once: hashes of the URLs of its dropped records are kept as an index like the others.
What one question may read is bounded.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.document import Document
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.shard import read_shard
from corpus_platform.stages.cleaned_documents import TOMBSTONE_FILE
from corpus_platform.stages.document_index import Index, index_of, kept_file, shard_folder
from corpus_platform.stages.members import member_names
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact

__all__ = ["DroppedUrls", "ReadShard", "find_dropped"]

MAX_BYTES = 1 << 28  # of stored shards that one question reads: some seconds


class ReadShard(NamedTuple):
    """A shard as it is stored, and as it was cleaned."""

    name: str
    raw: Artifact
    cleaned: Artifact


class DroppedUrls(NamedTuple):
    """Where dropped records of a URL stand, and how many shards would have had to be read still."""

    places: list[tuple[str, int]]
    unread: int


def find_dropped(
    project: Project, url: str, shards: Sequence[ReadShard], progress: Callable[[int, int], None]
) -> DroppedUrls:
    """Return the dropped records that have a URL."""
    places, unread, left = list[tuple[str, int]](), 0, MAX_BYTES
    for done, shard in enumerate(shards, start=1):
        index, size = _Urls(project, shard), sum(shard.raw.sizes().values())
        if size > left and not index.is_kept:
            unread += 1
        elif shard.cleaned.path(TOMBSTONE_FILE).is_file():
            left -= 0 if index.is_kept else size
            places += [(shard.name, row) for row in index.rows(url)]
        progress(done, len(shards))
    return DroppedUrls(places, unread)


class _Urls:
    """The index of one shard."""

    def __init__(self, project: Project, shard: ReadShard) -> None:
        self._project, self._shard = project, shard
        self._folder = shard_folder(project, "urls", shard.name)

    @property
    def is_kept(self) -> bool:
        """Whether the shard was read before."""
        return any(self._folder.glob(f"{self._shard.cleaned.content[:32]}*"))

    def rows(self, url: str) -> list[int]:
        """Return the rows that have a URL; what a hash has found is read again and compared."""
        index = Index(kept_file(self._folder, self._shard.cleaned.content, self._made))
        found = set(index.rows("url", url))
        if not found:
            return []
        return [d.row for d in self._documents() if d.row in found and d.url == url]

    def _made(self) -> np.ndarray:
        path = self._shard.cleaned.path(TOMBSTONE_FILE)
        dropped = set(pl.read_parquet(path, columns=["row"])["row"])
        if not dropped:
            return index_of("url", [], [])
        named = [(d.url, d.row) for d in self._documents() if d.row in dropped and d.url]
        return index_of("url", [url for url, _ in named], [row for _, row in named])

    def _documents(self) -> Iterator[Document]:
        entry, settings = self._project.shard(self._shard.name), self._project.settings
        records = read_shard(
            [self._shard.raw.path(name) for name in member_names(entry)],
            entry.fields,
            shard=entry.key,
            max_record_bytes=settings.clean.max_record_bytes,
            limits=settings.read,
        )
        try:
            for batch in records:
                yield from (record for record in batch if isinstance(record, Document))
        except DamagedShard:  # what a shard is blocked for is said from its own record
            return
