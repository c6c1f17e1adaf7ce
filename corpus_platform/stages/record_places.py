"""Where a record stands in the files of its source: which member of the shard, and which line.

Cleaned tables know the row alone. The stored members are read once, and what is kept of that is
small: the rows at which a member begins or lines are skipped.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from corpus_platform.errors import DamagedShard
from corpus_platform.formats.compression import sniff
from corpus_platform.formats.shard import read_shard
from corpus_platform.stages.document_index import kept_file, shard_folder
from corpus_platform.stages.members import legible, member_names
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.transfer import shown

__all__ = ["RecordPlace", "find_record"]

MAX_BYTES = 1 << 26  # of stored members that are read to find a line; about a second
_SNIFFED_BYTES = 8


class RecordPlace(NamedTuple):
    """A record in its source file: `row` counts the records of that file, from 0.

    `line` is the physical line of the decompressed file, from 1; in Parquet and WET `row` + 1.
    """

    member: str
    source: str
    row: int
    line: int


def find_record(project: Project, shard: str, raw: Artifact, row: int) -> RecordPlace | None:
    """Return where a row of a stored shard stands; None where finding that would read too much."""
    entry = project.shard(shard)
    names = member_names(entry)
    members = [raw.path(name) for name in names]
    folder = shard_folder(project, "places", shard)
    if _bytes_to_read(members) > MAX_BYTES:
        return None
    table = kept_file(folder, raw.content, lambda: _table(project, shard, members), rows=4)
    at = int(np.searchsorted(table[0], np.uint64(row), side="right")) - 1
    if at < 0:
        return None
    first, member, own, shift = table[:, at].tolist()
    own_row = row - first + own
    origin = entry.members[member]
    source = shown(origin.location) if origin.path is None else legible(origin.location)
    return RecordPlace(names[member], source, own_row, own_row + shift)


def _bytes_to_read(members: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in members if not _is_parquet(path))


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return sniff(file.read(_SNIFFED_BYTES)) == "parquet"


def _table(project: Project, shard: str, members: Sequence[Path]) -> np.ndarray:
    """Return the runs of rows that stand on successive lines of a member.

    A column each: its first row, the member, its first row there, and how much its lines are ahead.
    """
    runs = list(_runs(project, shard, members))
    return np.array(runs, np.int64).reshape(-1, 4).T


def _runs(
    project: Project, shard: str, members: Sequence[Path]
) -> Iterator[tuple[int, int, int, int]]:
    row = 0
    for number, path in enumerate(members):
        if _is_parquet(path):
            yield row, number, 0, 1
            row += pq.read_metadata(path).num_rows
            continue
        count, shift = 0, None
        for count, line in enumerate(_lines(project, shard, path), start=1):
            if line - (count - 1) != shift:
                shift = line - (count - 1)
                yield row + count - 1, number, count - 1, shift
        row += count


def _lines(project: Project, shard: str, path: Path) -> Iterator[int]:
    """Yield the line of each record of a member; what stands behind damage is none."""
    settings = project.settings
    records = read_shard(
        [path],
        project.shard(shard).fields,
        shard=shard,
        max_record_bytes=settings.clean.max_record_bytes,
        limits=settings.read,
    )
    try:
        for batch in records:
            yield from (record.line for record in batch)
    except DamagedShard:  # what a shard is blocked for is said from its own record
        return
