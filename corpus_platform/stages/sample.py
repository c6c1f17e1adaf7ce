"""A small real corpus out of the documentation of this machine, to try everything offline.

`make_sample` lays two crawls in a folder, in the containers that a user's own shards may have. The
second crawl meets some documents of the first again, as they were or as a later version has them.
Where the texts come from is the business of `documentation`.
"""

import gzip
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from corpus_platform.errors import UsageError
from corpus_platform.stages.documentation import Kind, installed_documentation
from corpus_platform.storage.files import publish_bytes, text_sha256

__all__ = ["KindCount", "Record", "SampleReport", "ShardCount", "later_version", "make_sample"]

Progress = Callable[[str, int, int | None], None]

FIRST, SECOND = "2026-40", "2026-44"
SHARDS = (
    f"crawl={FIRST}/part-00000.jsonl.zst",
    f"crawl={FIRST}/part-00001.jsonl.gz",
    f"crawl={FIRST}/part-00002.parquet",
    f"crawl={FIRST}/part-00003.jsonl.zst",
    f"crawl={FIRST}/part-00004.jsonl.gz",
    f"crawl={FIRST}/part-00005.parquet",
    f"crawl={SECOND}/part-00000.jsonl.zst",
    f"crawl={SECOND}/part-00001.parquet",
)
FIRST_SHARDS = 6
MIN_CHARS = 50  # a heading is no document
MET_AGAIN = 3  # of 100 documents of the first crawl, unchanged; as many again as a later version

_ZSTD: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 6,
    zstd.CompressionParameter.checksum_flag: 1,
}
_VERSION = re.compile(r"\b(\d{1,3})\.(\d{1,3})\b")
_YEAR = re.compile(r"\b20[0-2]\d\b")


class Record(NamedTuple):
    """A document as it stands in a shard."""

    id: str
    url: str
    text: str


@dataclass(frozen=True)
class KindCount:
    """What was taken of one kind, in documents and bytes of UTF-8 text."""

    kind: str
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class ShardCount:
    """One file of the sample, with the size that it has on disk."""

    file: str
    documents: int
    file_bytes: int


@dataclass(frozen=True)
class SampleReport:
    """What a sample holds; the counts by kind know nothing of the documents met again."""

    folder: Path
    target_bytes: int
    kinds: tuple[KindCount, ...]
    shards: tuple[ShardCount, ...]
    met_again: int
    met_again_changed: int
    left_out_short: int
    left_out_unreadable: int

    @property
    def documents(self) -> int:
        """Documents in all shards."""
        return sum(shard.documents for shard in self.shards)

    @property
    def text_bytes(self) -> int:
        """Bytes of text, each document counted once."""
        return sum(kind.text_bytes for kind in self.kinds)

    @property
    def short_of_target(self) -> int:
        """Bytes of text that this machine could not give, 0 where it had enough.

        A stop at the first document that would pass the target is no shortage.
        """
        missing = self.target_bytes - self.text_bytes
        return missing if missing > 0.05 * self.target_bytes else 0


def make_sample(
    folder: Path, *, target_bytes: int = 30_000_000, progress: Progress | None = None
) -> SampleReport:
    """Write two crawls of about `target_bytes` of text to a folder; say what they hold.

    The bytes written depend on the documentation installed and on `target_bytes` only: a second
    call leaves the files as they are. `progress` hears (what, done, total).
    """
    if target_bytes < 1:
        raise UsageError(f"target_bytes is {target_bytes}; at least 1 is wanted")
    tell = progress or (lambda _what, _done, _total: None)
    taken = _gather(installed_documentation(), target_bytes, tell)
    records = [record for kind in taken for record in kind.records]
    again = [_met_again(r) for r in records if _in_first_crawl(r) and _draw(r) < MET_AGAIN]
    changed = [
        _met_again(r)._replace(text=later_version(r.text))
        for r in records
        if _in_first_crawl(r) and MET_AGAIN <= _draw(r) < 2 * MET_AGAIN
    ]
    shards: list[list[Record]] = [[] for _ in SHARDS]
    for record in records:
        shards[_place(record) % len(SHARDS)].append(record)
    for record in again + changed:
        shards[FIRST_SHARDS + _place(record) % (len(SHARDS) - FIRST_SHARDS)].append(record)
    return SampleReport(
        folder=folder,
        target_bytes=target_bytes,
        kinds=tuple(kind.count for kind in taken),
        shards=tuple(_write(folder, shards, tell)),
        met_again=len(again),
        met_again_changed=len(changed),
        left_out_short=sum(kind.short for kind in taken),
        left_out_unreadable=sum(kind.unreadable for kind in taken),
    )


def later_version(text: str) -> str:
    """Return a text as its next version: the first version number and year count up.

    A text without either gets a line with the date of its last change.
    """
    text, versions = _VERSION.subn(lambda m: f"{m[1]}.{int(m[2]) + 1}", text, count=1)
    text, years = _YEAR.subn(lambda m: f"{int(m[0]) + 1}", text, count=1)
    return text if versions or years else f"{text.rstrip()}\n\nLast updated: 26 October 2026\n"


@dataclass
class _Taken:
    """What was taken of one kind, and how many of its documents could not be."""

    kind: str
    records: list[Record] = field(default_factory=list)
    text_bytes: int = 0
    short: int = 0
    unreadable: int = 0

    @property
    def count(self) -> KindCount:
        return KindCount(self.kind, len(self.records), self.text_bytes)


def _gather(kinds: list[Kind], target_bytes: int, tell: Progress) -> list[_Taken]:
    """Take of every kind up to its share; the last, of which there is most, fills what is left."""
    taken: list[_Taken] = []
    seen: set[str] = set()
    used = 0
    for kind in kinds:
        last = kind is kinds[-1]
        allowed = target_bytes - used if last else int(kind.share * target_bytes)
        taken.append(_take(kind, allowed, seen))
        used += taken[-1].text_bytes
        tell(f"read {kind.name}", used, target_bytes)
    return taken


def _take(kind: Kind, allowed: int, seen: set[str]) -> _Taken:
    taken = _Taken(kind.name)
    for url, text in kind.pages():
        if text is None:
            taken.unreadable += 1
        elif len(text.strip()) < MIN_CHARS:
            taken.short += 1
        elif url not in seen:  # a function defined once for each system
            size = len(text.encode("utf-8"))
            if taken.text_bytes + size > allowed:
                break
            seen.add(url)
            taken.text_bytes += size
            taken.records.append(Record(text_sha256(url)[:32], url, text))
    return taken


def _place(record: Record) -> int:
    return int(record.id[:8], 16)


def _draw(record: Record) -> int:
    return int(record.id[8:16], 16) % 100


def _in_first_crawl(record: Record) -> bool:
    return _place(record) % len(SHARDS) < FIRST_SHARDS


def _met_again(record: Record) -> Record:
    return record._replace(id=text_sha256(f"{record.url} in {SECOND}")[:32])


def _write(folder: Path, shards: list[list[Record]], tell: Progress) -> Iterator[ShardCount]:
    for number, (name, records) in enumerate(zip(SHARDS, shards, strict=True), start=1):
        data = _encoded(name, sorted(records))
        path = folder / name
        # The same bytes keep their time, so that nothing made from them has to be looked at again.
        if not path.is_file() or path.read_bytes() != data:
            publish_bytes(path, data)
        tell("write shards", number, len(SHARDS))
        yield ShardCount(name, len(records), len(data))


def _encoded(name: str, records: list[Record]) -> bytes:
    if name.endswith(".parquet"):
        return _parquet(records)
    encode = msgspec.json.Encoder().encode
    lines = b"".join(encode(record._asdict()) + b"\n" for record in records)
    if name.endswith(".gz"):
        return gzip.compress(lines, 6, mtime=0)
    return zstd.compress(lines, options=_ZSTD)


def _parquet(records: list[Record]) -> bytes:
    columns = zip(*records, strict=True) if records else ((), (), ())
    arrays = [pa.array(column, pa.string()) for column in columns]
    sink = io.BytesIO()
    pq.write_table(
        pa.table(arrays, names=Record._fields), sink, compression="zstd", row_group_size=1000
    )
    return sink.getvalue()
