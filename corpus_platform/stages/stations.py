"""What became of one record at each station of the chain, each read by itself.

Of a table one row is read: statistics of `row` say in which row group it is. Which record is meant
is for `explaining` to find out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from corpus_platform.errors import StorageError, Uncleared
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.cleaned_documents import DOCUMENTS, QUARANTINE_FILE, TOMBSTONE_FILE
from corpus_platform.stages.clusters_files import CLUSTER_FILE
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.document_index import Kind
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.stages.record_places import RecordPlace, find_record
from corpus_platform.stages.release_names import NamedRelease
from corpus_platform.stages.release_places import Line, find_group, lines_of, masked
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.registry import key_order

__all__ = [
    "CLEANED",
    "RAW",
    "Copies",
    "Drop",
    "Packed",
    "Quarantined",
    "Released",
    "Story",
    "add_released",
    "has_value",
    "records",
    "standing",
    "story",
]

RAW, CLEANED, VERDICTS, PACKED = "raw_shards", "cleaned_documents", "dedup_verdicts", "packed_bins"
SPLITS = {bin_file(name): split for split, name in BIN_NAMES.items()}


@dataclass(frozen=True)
class Quarantined:
    """Why a record cannot be read; `line` and `offset` count over all files of a shard."""

    line: int
    offset: int | None
    reason: str
    excerpt: str


@dataclass(frozen=True)
class Drop:
    """Which rule dropped a document, and by what: `value` against `threshold`."""

    rule: str
    value: float | None
    threshold: float | None


@dataclass(frozen=True)
class Copies:
    """The cluster of a document: its number and how many are in it; `similarity` is to the twin."""

    cluster: int
    cluster_size: int
    similarity: float | None


@dataclass(frozen=True)
class Packed:
    """The tokens of a document as they are packed: how many, cut off, and without loss."""

    split: str
    tokens: int
    cut: int
    masked: int


@dataclass(frozen=True)
class Released:
    """Where a document lies in a release: a line, or one for each piece."""

    release: str
    split: str
    tokens: int
    places: tuple[Line, ...]


@dataclass
class Story:
    """One record. `state` is `quarantined`, `dropped`, `exact_copy`, `near_copy`, `kept`, or
    `undecided` where no clusters know it; `twin` is the kept document that it is a copy of.

    `notes` say which stations are stale or not there.
    """

    shard: str
    row: int
    state: str
    id: str | None = None
    url: str | None = None
    lang: str | None = None
    lang_score: float | None = None
    source: RecordPlace | None = None
    quarantined: Quarantined | None = None
    dropped: Drop | None = None
    copies: Copies | None = None
    twin: "Story | None" = None
    packed: Packed | None = None
    released: Released | None = None
    notes: list[str] = field(default_factory=list)


def standing(project: Project, asset: str, shard: str) -> tuple[Artifact | None, str | None]:
    """Return an artifact, and in words what is wrong with it: the wanted one, else the last one."""
    wanted = project.artifact(asset, shard)
    if wanted is not None:
        return wanted, None
    last = project.last_generation(asset, shard)
    if last is not None:
        return last, f"{asset} is stale: {project.difference(asset, shard, last)}"
    try:
        project.expected(asset, shard)
    except (Uncleared, StorageError) as reason:
        return None, f"{asset} was never made: {reason}"
    return None, f"{asset} was never made"


def records(cleaned: Artifact) -> int:
    """Return how many records a cleaned shard has."""
    return int(cleaned.numbers["lines"])


def has_value(cleaned: Artifact, row: int, kind: Kind, value: str) -> bool:
    """Tell whether a row of a cleaned shard has an id or a URL."""
    files = (DOCUMENTS,) if kind == "url" else (DOCUMENTS, TOMBSTONE_FILE)
    rows = (_row(cleaned.path(name), row, [kind]) for name in files)
    return any(found[kind] == value for found in rows if found)


def _row(path: Path, row: int, columns: list[str]) -> dict | None:
    """Return some columns of one row of a shard's table; None where it has no such row."""
    found = pl.scan_parquet(path).filter(pl.col("row") == row).select(columns).collect()
    return found.row(0, named=True) if len(found) else None


def story(project: Project, shard: str, row: int, *, of_twin: bool = False) -> Story:
    """Tell what became of a record of a shard that has been cleaned, as far as its pack."""
    told = Story(shard, row, "undecided")
    if project.shard(shard).retired:
        told.notes.append("its shard is retired: `corpus run` makes a release without it")
    _add_cleaned(project, told)
    if not of_twin:
        _add_source(project, told)
    if told.state == "undecided":
        _add_copies(project, told, of_twin)
    if told.state == "kept":
        _add_packed(project, told)
    return told


def _station(project: Project, asset: str, told: Story) -> Artifact | None:
    artifact, note = standing(project, asset, told.shard)
    told.notes += [note] if note else []
    return artifact


def _add_cleaned(project: Project, told: Story) -> None:
    cleaned = _station(project, CLEANED, told)
    assert cleaned is not None
    if kept := _row(cleaned.path(DOCUMENTS), told.row, ["id", "url", "lang", "lang_score"]):
        told.id, told.url = kept["id"], kept["url"]
        told.lang, told.lang_score = kept["lang"], kept["lang_score"]
    elif dropped := _row(cleaned.path(TOMBSTONE_FILE), told.row, ["id", "rule", "value", "threshold"]):  # fmt: skip
        told.id, told.state = dropped.pop("id"), "dropped"
        told.dropped = Drop(**dropped)
    else:
        told.state = "quarantined"
        told.quarantined = _quarantined(cleaned, told.row)


def _quarantined(cleaned: Artifact, row: int) -> Quarantined:
    """Return what is known of a record that is neither kept nor dropped.

    The quarantine has no rows: the n-th of it is the n-th row that the other tables leave out.
    """
    tables = (pl.scan_parquet(cleaned.path(name)) for name in (DOCUMENTS, TOMBSTONE_FILE))
    others = sum(t.filter(pl.col("row") < row).select(pl.len()).collect().item() for t in tables)
    found = pl.scan_parquet(cleaned.path(QUARANTINE_FILE)).slice(row - others, 1).collect()
    return Quarantined(**found.row(0, named=True))


def _add_source(project: Project, told: Story) -> None:
    raw = _station(project, RAW, told)
    if raw is None:
        return
    try:
        told.source = find_record(project, told.shard, raw, told.row)
    except OSError as error:
        told.notes.append(f"{RAW} cannot be read: {error}")
        return
    if told.source is None:
        told.notes.append(
            "its line was not looked up: the shard is large, and would have to be read"
        )


def _add_copies(project: Project, told: Story, of_twin: bool) -> None:
    try:
        clusters = latest_clusters(project)
    except Uncleared as never:
        told.notes.append(str(never))
        return
    try:
        project.expected(VERDICTS, told.shard)
    except Uncleared as stale:
        told.notes.append(stale.reason)
    found = _cluster_row(clusters.path(CLUSTER_FILE), told.shard, told.row)
    if found is None:
        return
    if found["id"] != told.id:
        told.notes.append(f"the clusters know another document of this row: {found['id']!r}")
        return
    told.state = "kept" if found["kept"] else f"{found['kind']}_copy"
    told.copies = Copies(found["cluster"], found["cluster_size"], found["similarity"])
    if not found["kept"] and not of_twin:
        told.twin = _twin(project, found)


def _twin(project: Project, found: dict) -> Story:
    shard, row = found["twin_shard"], found["twin_row"]
    cleaned = None
    if shard in project.registry.all():
        cleaned, _ = standing(project, CLEANED, shard)
    if cleaned is None or not cleaned.numbers.get("readable") or row >= records(cleaned):
        notes = ["it is not there any more, or cannot be read"]
        return Story(shard, row, "undecided", id=found["twin_id"], notes=notes)
    return story(project, shard, row, of_twin=True)


def _cluster_row(path: Path, shard: str, row: int) -> dict | None:
    """Return a row of the cluster table, which is in the order of shard and row."""
    with pq.ParquetFile(path) as file:
        first, rows = find_group(file, ["shard", "row"], (shard, row), _key)
    group = pl.scan_parquet(path).slice(first, rows)
    found = group.filter((pl.col("row") == row) & (pl.col("shard") == shard)).collect()
    return found.row(0, named=True) if len(found) else None


def _key(place: tuple) -> tuple:
    shard, row = place
    return key_order(shard), row


def _add_packed(project: Project, told: Story) -> None:
    packed = _station(project, PACKED, told)
    if packed is None:
        return
    pieces = pl.scan_parquet(packed.path(PACKED_DOCUMENTS)).filter(pl.col("row") == told.row)
    found = pieces.select("file", "start", "tokens", "cut").collect()
    if not len(found):
        return
    file = found["file"][0]
    bin_ = open_token_bin(packed.folder, file.removesuffix(".bin"))
    silent = sum(masked(bin_, *p) for p in found.select("start", "tokens").iter_rows())
    told.packed = Packed(SPLITS[file], int(found["tokens"].sum()), int(found["cut"].sum()), silent)


def add_released(project: Project, stories: Sequence[Story], release: NamedRelease | None) -> None:
    """Tell of documents and their twins where they lie in a release, by one look at its table."""
    every = [*stories, *(told.twin for told in stories if told.twin is not None)]
    if release is None:
        for told in every:
            told.notes.append("no release is in force")
        return
    lines = lines_of(release, {(told.shard, told.row) for told in every})
    for told in every:
        _add_lines(project, told, release, lines.get((told.shard, told.row), []))


def _add_lines(project: Project, told: Story, release: NamedRelease, lines: Sequence[Line]) -> None:
    if told.shard in release.excluded:
        why = release.excluded[told.shard]
        told.notes.append(f"release {release.id} leaves its shard out: {why}")
    if not lines:
        return
    if told.id is not None and lines[0].id != told.id:
        told.notes.append(
            f"release {release.id} has another document of this row: {lines[0].id!r}; the shard"
            " was repaired since"
        )
        return
    split = "train" if lines[0].file.startswith(BIN_NAMES["train"]) else "validation"
    told.released = Released(release.id, split, sum(p.tokens for p in lines), tuple(lines))
    made_of = release.manifest.inputs.get(f"{PACKED}[{told.shard}]")
    pack = project.artifact(PACKED, told.shard)
    if told.state != "kept":
        told.notes.append(f"release {release.id} has it still: it was made of an earlier state")
    elif pack is None or pack.content != made_of:
        told.notes.append(f"release {release.id} was made of another pack of its shard")
