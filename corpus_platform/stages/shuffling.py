"""The two-phase shuffle: packed shards in, token files in one seeded order out.

Each shard's units are written sorted by key; then each range of keys is read from all shards,
sorted, and written to its place. Memory holds a range for each worker, and both passes go side by
side in threads, whose work is done by the system. The order depends on keys alone, so neither the
number of workers nor that of ranges changes a byte. What the first pass has finished is found again
after a crash.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.engines.local import map_pieces
from corpus_platform.errors import StageFailed
from corpus_platform.formats.token_bin import Header
from corpus_platform.formats.token_bin_parts import TokenBinParts
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.packing.placement import Filled, Placement, Run
from corpus_platform.stages.shuffle_gather import Gather, gather, sorted_units
from corpus_platform.stages.shuffle_scatter import Scatter, scatter
from corpus_platform.stages.shuffle_scratch import (
    COUNTED,
    TOKENS,
    UNIT,
    bands_in,
    size_of,
    units_in,
)
from corpus_platform.stages.shuffle_sealing import Sealing
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.tables import TableWriter

__all__ = ["LinesWriter", "PackedShard", "Shuffle", "Shuffled", "scatters", "shuffle_split"]

MAX_BITS = 12
AHEAD = 2  # ranges for each writer: their lines wait in memory for the table of documents
BAND_BYTES = 1 << 24  # that a band has at least: each is looked at for each range
GROUP_ROWS = 1 << 16  # of the table of documents, however the ranges are cut


class PackedShard(NamedTuple):
    """A packed shard: its name, the folder of its bins, and the table beside them."""

    name: str
    folder: Path
    documents: Path


@dataclass(frozen=True)
class Shuffle:
    """How a split is shuffled; `bucket_bytes`, `workers` and `scratch` change no byte."""

    seed: int
    level: Level
    max_tokens_per_file: int
    pad_id: int | None  # for windows of a stream
    bucket_bytes: int
    workers: int
    scratch: Path


class Shuffled(NamedTuple):
    """The files of a split by base name, and how many documents they have.

    `empty` documents of streams have no token, and so no place in windows.
    """

    headers: dict[str, Header]
    documents: int
    oversized: int
    empty: int


Told = Callable[[int], None]  # hears of tokens that were moved


class LinesWriter:
    """Writes the table of the documents of a release, in row groups of one size.

    A context manager; `rows` counts what was written.
    """

    def __init__(self, path: Path) -> None:
        self._writer = TableWriter(path, RELEASE_DOCUMENTS, dictionary=["file", "shard"])
        self._held, self._waiting, self.rows = list[pa.Table](), 0, 0

    def write(self, lines: pa.Table) -> None:
        """Append lines, which have the columns of RELEASE_DOCUMENTS in any order."""
        self._held.append(lines.select(RELEASE_DOCUMENTS.names))
        self._waiting += lines.num_rows
        while self._waiting >= GROUP_ROWS:
            whole = pa.concat_tables(self._held, promote_options="permissive")
            self._write_group(whole.slice(0, GROUP_ROWS))
            self._held = [whole.slice(GROUP_ROWS)]
            self._waiting -= GROUP_ROWS

    def _write_group(self, lines: pa.Table) -> None:
        self._writer.write(lines.cast(RELEASE_DOCUMENTS).combine_chunks())
        self.rows += lines.num_rows

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._held:
            self._write_group(pa.concat_tables(self._held, promote_options="permissive"))
        self._writer.__exit__(kind, error, trace)


def shuffle_split(
    folder: Path,
    name: str,
    shards: Sequence[PackedShard],
    how: Shuffle,
    *,
    lines: LinesWriter,
    told: Told,
) -> Shuffled:
    """Write the files NAME-00000, NAME-00001, … of one split into a folder, and their lines.

    `shards` come in the order of their names. Each token is told of twice.
    """
    headers = [Header.read(shard.folder / f"{name}.json") for shard in shards]
    policy, row_tokens = _common(shards, headers, how)
    tasks = scatters(name, shards, how)
    for tokens in map_pieces(scatter, tasks, workers=how.workers, threads=True):
        told(tokens)
    bands = _bands(tasks)
    plan = _plan(bands, how)
    files = _files(folder, name, policy, row_tokens, plan)
    ranges = _gathers(bands, plan, files)
    with Sealing(files, workers=how.workers) as sealing:
        # A hash takes as long as the writing: one worker has that to do.
        writers = max(1, how.workers - 1)
        for done in map_pieces(gather, ranges, workers=writers, threads=True, ahead=AHEAD):
            for number, filled in done.reached:
                sealing.reach(number, filled)
            for table in done.lines:
                lines.write(table)
            told(done.tokens)
        made = sealing.headers(plan.documents, plan.padding)
    documents = sum(plan.documents)
    return Shuffled(
        headers={file.name: header for file, header in zip(files, made, strict=True)},
        documents=documents,
        oversized=plan.placement.oversized,
        empty=sum(h.documents for h in headers) - documents,
    )


def _common(
    shards: Sequence[PackedShard], headers: Sequence[Header], how: Shuffle
) -> tuple[Policy, int | None]:
    """Return what the files of a split share; raise StageFailed where shards differ."""
    kinds = [(Policy.of(header), header.row_tokens) for header in headers]
    for shard, kind in zip(shards, kinds, strict=True):
        if kind != kinds[0]:
            raise StageFailed(
                f"{shard.name} is packed as {kind}, {shards[0].name} as {kinds[0]}; one release has"
                " one tokenizer and one way of packing: pack again"
            )
    policy, row_tokens = kinds[0]
    if row_tokens is None and how.level.unit == "windows":
        return policy._replace(pad_id=how.pad_id), how.level.tokens
    return policy, row_tokens


def scatters(name: str, shards: Sequence[PackedShard], how: Shuffle) -> list[Scatter]:
    """Return what the first pass has to do, shard by shard."""
    headers = [Header.read(shard.folder / f"{name}.json") for shard in shards]
    before = np.cumsum([0, *(header.documents for header in headers)]).tolist()
    return [
        Scatter(
            shard=shard.name,
            packed=shard.folder,
            documents=shard.documents,
            name=name,
            seed=how.seed,
            level=how.level,
            pad_id=how.pad_id,
            documents_before=first,
            band_bytes=max(how.bucket_bytes, BAND_BYTES),
            target=how.scratch / f"{name}-{number:06d}",
        )
        for number, (shard, first) in enumerate(zip(shards, before, strict=False))
    ]


class _Band(NamedTuple):
    """Units [first, after) of a shard, whose keys rise, and the folder that they lie in."""

    shard: str
    folder: Path
    first: int
    after: int


class _Plan(NamedTuple):
    """Ranges of units by band, the runs of each range, and what each file will hold."""

    units: np.ndarray  # [band, range]: where the units of a range begin, with one more range
    runs: list[list[Run]]
    placement: Placement
    masked: list[int]  # units that have a mask
    documents: list[int]
    padding: list[int]


def _bands(tasks: Sequence[Scatter]) -> list[_Band]:
    """Return what the first pass has made, in the order of the shards."""
    return [_Band(t.shard, t.target, *borders) for t in tasks for borders in bands_in(t.target)]


def _plan(bands: Sequence[_Band], how: Shuffle) -> _Plan:
    """Return where everything goes; the units are looked at where a file ends among them."""
    folders = [band.folder for band in bands]
    units, totals = _ranges(bands, _bits(set(folders), how.bucket_bytes))
    placement = Placement(how.max_tokens_per_file)
    plan = _Plan(units, [], placement, [0], [0], [0])
    counts = np.diff(units, axis=1).sum(axis=0).tolist()
    for number, (count, total) in enumerate(zip(counts, totals, strict=True)):
        if not count:
            plan.runs.append([])
        elif run := placement.place_all(count, Filled(int(total["token"]), int(total["entry"]))):
            plan.runs.append([run])
            _count(plan, run, {name: total[name] for name in COUNTED})
        else:
            found = sorted_units(folders, units[:, number], units[:, number + 1])
            plan.runs.append(placement.place(found["token"], found["entry"]))
            for run in plan.runs[-1]:
                part = slice(run.first, run.after)
                _count(plan, run, {name: values[part].sum() for name, values in found.items()})
    return plan


def _ranges(bands: Sequence[_Band], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where ranges of keys with the same first bits begin in each band, and what they have."""
    borders = np.arange(1 << bits, dtype=np.uint64)
    borders = borders << np.uint64(64 - bits) if bits else borders
    begins = np.zeros((len(bands), len(borders) + 1), np.int64)
    totals: np.ndarray = np.zeros(len(borders), UNIT)
    for band, begin in zip(bands, begins, strict=True):
        records = units_in(band.folder)
        keys = records["key"][band.first : band.after]
        begin[:-1] = band.first + np.searchsorted(keys, borders)
        begin[-1] = band.after
        for name in COUNTED:
            totals[name] += np.diff(records[name][begin])
    return begins, totals


def _bits(folders: Iterable[Path], bucket_bytes: int) -> int:
    """Return how many first bits of a key make ranges of at most about so many bytes."""
    total = sum(size_of(folder / TOKENS) for folder in folders)
    return min(MAX_BITS, (max(total - 1, 0) // bucket_bytes).bit_length())


def _count(plan: _Plan, run: Run, totals: dict[str, np.integer]) -> None:
    """Add what a run puts into a file."""
    for of_file, name in ((plan.masked, "masked"), (plan.documents, "begun"), (plan.padding, "padding")):  # fmt: skip
        of_file += [0] * (run.file + 1 - len(of_file))
        of_file[run.file] += int(totals[name])


def _files(
    folder: Path, name: str, policy: Policy, row_tokens: int | None, plan: _Plan
) -> list[TokenBinParts]:
    """Create the files in their full size."""
    files = [
        TokenBinParts(
            folder=folder,
            name=f"{name}-{number:05d}",
            policy=policy,
            tokens=filled.tokens,
            entries=filled.entries,
            masked=masked > 0,
            row_tokens=row_tokens,
        )
        for number, (filled, masked) in enumerate(
            zip(plan.placement.files, plan.masked, strict=True)
        )
    ]
    for file in files:
        file.create()
    return files


def _gathers(bands: Sequence[_Band], plan: _Plan, files: Sequence[TokenBinParts]) -> list[Gather]:
    """Return what the second pass has to do, range by range."""
    shards, folders = [band.shard for band in bands], [band.folder for band in bands]
    return [
        Gather(
            shards=shards,
            folders=folders,
            first=plan.units[:, number],
            after=plan.units[:, number + 1],
            files=files,
            runs=runs,
        )
        for number, runs in enumerate(plan.runs)
    ]
