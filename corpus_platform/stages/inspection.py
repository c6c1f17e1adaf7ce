"""A look at one shard before anything is built on it: what it is, and what its texts are like.

Reads files, makes nothing. Texts are judged by a bounded number of records from the beginning;
suspicions (mojibake, HTML) are shares of documents, not verdicts.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import CleanSettings, Fields, Settings
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.compression import decompress, sniff
from corpus_platform.formats.jsonl import parse_object, split_lines
from corpus_platform.formats.parquet_headers import row_groups
from corpus_platform.formats.shard import ShardRecords, read_shard
from corpus_platform.text.langid import identify

__all__ = ["Column", "File", "Inspection", "inspect_shard", "open_members"]

BEGINNINGS, BEGINNING_CHARACTERS = 3, 500  # [S1, 2.3]: three documents, 500 characters of each
LANGUAGE_DOCUMENTS, LANGUAGE_BYTES = 500, 2000
COLUMN_RECORDS, COLUMN_BYTES = 1000, 64 << 20  # whichever is reached first; a bomb has no lines
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Three tags that pages are made of: one may be an example in a text about HTML.
_TAG = re.compile(
    r"</?(?:a|b|br|div|em|h[1-6]|i|img|li|p|script|span|strong|style|table|td|tr|ul)\b[^<>]{0,500}>"
    r"|&(?:amp|gt|lt|nbsp|quot|#\d{1,6});",
    re.IGNORECASE,
)
_FEWEST_TAGS = 3


@dataclass(frozen=True)
class File:
    """One member: stored bytes, what they are, and what is inside."""

    name: str
    bytes: int
    stored_as: str
    holds: str


@dataclass(frozen=True)
class Column:
    """A field of the records: the types it was seen with, and in how many of `records` records."""

    name: str
    types: tuple[str, ...]
    seen: int
    records: int


@dataclass
class Inspection:
    """What was seen. `failure` says why the records could not be read further."""

    files: list[File]
    columns: list[Column]
    rows: int | None = None  # of the whole shard, None where it was not read to its end
    records: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    characters: list[int] = field(default_factory=list)
    utf8_bytes: int = 0
    decompressed_bytes: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    mojibake: int = 0
    html: int = 0
    beginnings: list[tuple[str, str]] = field(default_factory=list)
    failure: str | None = None

    @property
    def documents(self) -> int:
        """The readable records among those looked at."""
        return len(self.characters)

    def quantiles(self) -> dict[str, int]:
        """Return how long texts are, in characters, at some shares of the documents."""
        if not self.characters:
            return {}
        values = np.quantile(self.characters, QUANTILES, method="nearest")
        return {f"{share:.0%}": int(v) for share, v in zip(QUANTILES, values, strict=True)}


def open_members(
    settings: Settings | None, members: Sequence[Path], fields: Fields, *, shard: str
) -> ShardRecords:
    """Return the records of some files, within the limits of the settings or the default ones."""
    clean = settings.clean if settings else CleanSettings()
    return read_shard(
        members,
        fields,
        shard=shard,
        max_record_bytes=clean.max_record_bytes,
        limits=settings.read if settings else None,
    )


def inspect_shard(
    members: Sequence[Path], records: ShardRecords, *, limit: int | None
) -> Inspection:
    """Return what the files of a shard hold; at most `limit` records are judged, None for all.

    A shard that cannot be read further is shown up to there, with the reason. Raises OSError.
    """
    found = Inspection([_file(path) for path in members], [])
    found.columns = _columns(members[0], found.files[0])
    sample: list[str] = []
    try:
        ended = _look(found, itertools.chain.from_iterable(records), limit, sample)
    except DamagedShard as damage:
        found.failure, ended = damage.reason, False
    _judge_languages(found, sample)
    found.decompressed_bytes = records.decompressed_bytes
    if ended:
        found.rows = records.records_read
    elif found.failure is None:
        found.rows = _rows_of_footers(members, found.files)
    return found


def _look(
    found: Inspection,
    records: Iterable[Document | Rejected],
    limit: int | None,
    sample: list[str],
) -> bool:
    """Count records into an inspection, and texts into a sample; return whether they were all."""
    for record in records:
        if limit is not None and found.records == limit:
            return False
        found.records += 1
        if isinstance(record, Rejected):
            found.rejected[record.reason] += 1
            continue
        _count(found, record)
        if len(sample) < LANGUAGE_DOCUMENTS:
            sample.append(record.text[:LANGUAGE_BYTES])
    return True


def _count(found: Inspection, document: Document) -> None:
    text = document.text
    found.characters.append(len(text))
    found.utf8_bytes += len(text.encode())
    found.mojibake += _looks_garbled(text)
    found.html += len(list(itertools.islice(_TAG.finditer(text), _FEWEST_TAGS))) == _FEWEST_TAGS
    if len(found.beginnings) < BEGINNINGS:
        found.beginnings.append((document.id, text[:BEGINNING_CHARACTERS]))


def _looks_garbled(text: str) -> bool:
    """Tell whether a text has been decoded wrongly somewhere on its way, as far as can be told."""
    from ftfy.badness import is_bad  # takes a moment to load, and nothing else needs it

    return "\ufffd" in text or bool(is_bad(text[:20_000]))


def _judge_languages(found: Inspection, sample: Sequence[str]) -> None:
    labels = identify(sample, max_bytes=LANGUAGE_BYTES)
    found.languages.update(label if score >= 0.5 else "und" for label, score in labels)


def _file(path: Path) -> File:
    with path.open("rb") as file:
        head = file.read(64)
        kind = sniff(head)
        file.seek(0)
        inside = head if kind in ("parquet", "plain", "warc") else _first_bytes(file, path)
    holds = sniff(inside) if inside else "nothing"
    words = {"plain": "lines", "warc": "WARC records", "parquet": "Parquet"}
    return File(path.name, path.stat().st_size, kind, words.get(holds, holds))


def _first_bytes(file: BinaryIO, path: Path) -> bytes:
    try:
        return next(decompress(file, shard=path.name), b"")
    except DamagedShard:  # which reading the records says better
        return b""


def _columns(path: Path, about: File) -> list[Column]:
    if about.stored_as == "parquet":
        return _columns_of_parquet(path)
    if about.holds != "lines":
        return []
    return _columns_of(itertools.islice(_objects(path), COLUMN_RECORDS))


def _columns_of_parquet(path: Path) -> list[Column]:
    try:
        with path.open("rb") as file:
            row_groups(file)  # raises for footers of which pyarrow would die
            with pq.ParquetFile(file) as parquet:
                rows = parquet.metadata.num_rows
                return [Column(f.name, (str(f.type),), rows, rows) for f in parquet.schema_arrow]
    except (pa.ArrowException, OSError, ValueError):  # which reading the records says better
        return []


def _objects(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the objects among the lines of a file, until something is wrong with it."""
    try:
        with path.open("rb") as file:
            for line in split_lines(_beginning(file, path), max_bytes=COLUMN_BYTES):
                value = parse_object(line.content.removeprefix(b"\xef\xbb\xbf"))
                if isinstance(value, dict):
                    yield value
    except DamagedShard:
        return


def _beginning(file: BinaryIO, path: Path) -> Iterator[bytes]:
    left = COLUMN_BYTES
    for chunk in decompress(file, shard=path.name):
        yield chunk
        if (left := left - len(chunk)) <= 0:
            return


def _columns_of(objects: Iterable[Mapping[str, object]]) -> list[Column]:
    seen: Counter[str] = Counter()
    types: dict[str, set[str]] = {}
    count = 0
    for value in objects:
        count += 1
        seen.update(value.keys())
        for name, one in value.items():
            types.setdefault(name, set()).add(_json_type(one))
    return [Column(name, tuple(sorted(types[name])), seen[name], count) for name in seen]


def _json_type(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value) if value is None else "boolean"
    names = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "number")


def _rows_of_footers(members: Sequence[Path], files: Sequence[File]) -> int | None:
    if any(about.stored_as != "parquet" for about in files):
        return None
    try:
        return sum(map(_rows_of_footer, members))
    except (OSError, ValueError):  # which reading on says better
        return None


def _rows_of_footer(path: Path) -> int:
    with path.open("rb") as file:
        return sum(group.rows for group in row_groups(file))
