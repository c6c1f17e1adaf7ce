"""The two-phase shuffle: packed shards in, token files in one seeded order out.

Each shard's units are written sorted by key; then each range of keys is read from all shards,
sorted, and written to its place. Memory holds a range, and both passes go side by side. The order
depends on keys alone, so neither the number of processes nor that of ranges changes a byte. What
the first pass has finished is found again after a crash.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.engines.local import map_pieces, worth
from corpus_platform.errors import StageFailed
from corpus_platform.formats.token_bin import Header
from corpus_platform.formats.token_bin_parts import TokenBinParts
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.packing.placement import Placement, Run
from corpus_platform.stages.shuffle_gather import (
    Gather,
    bucket_borders,
    bucket_units,
    gather,
    sorted_units,
)
from corpus_platform.stages.shuffle_scatter import TOKENS, Scatter, scatter
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.tables import TableWriter

__all__ = ["PackedShard", "Shuffle", "Shuffled", "scatters", "shuffle_split", "write_lines"]

MAX_BITS = 12
GROUP_ROWS = 1 << 16  # of the table of documents, however the ranges are cut
SHARE_TOKENS = 1 << 28  # for each of which a process is worth its start, twice 1.5 s


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
    """The files of a split by base name, and the lines of their documents in one table.

    `empty` documents of streams have no token, and so no place in windows.
    """

    headers: dict[str, Header]
    lines: Sequence[Path]
    documents: int
    oversized: int
    empty: int


Told = Callable[[int], None]  # hears of tokens that were moved


def shuffle_split(
    folder: Path, name: str, shards: Sequence[PackedShard], how: Shuffle, told: Told
) -> Shuffled:
    """Write the files NAME-00000, NAME-00001, … of one split into a folder.

    `shards` come in the order of their names. Each token is told of twice.
    """
    headers = [Header.read(shard.folder / f"{name}.json") for shard in shards]
    policy, row_tokens = _common(shards, headers, how)
    workers = worth(how.workers, sum(h.tokens for h in headers), share=SHARE_TOKENS)
    tasks = scatters(name, shards, how)
    for tokens in map_pieces(scatter, tasks, workers=workers):
        told(tokens)
    made = _gathered(folder, name, tasks, policy, row_tokens, how, workers, told)
    return made._replace(empty=sum(h.documents for h in headers) - made.documents)


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
            documents_before=first,
            target=how.scratch / f"{name}-{number:06d}",
        )
        for number, (shard, first) in enumerate(zip(shards, before, strict=False))
    ]


def _gathered(
    folder: Path,
    name: str,
    tasks: Sequence[Scatter],
    policy: Policy,
    row_tokens: int | None,
    how: Shuffle,
    workers: int,
    told: Told,
) -> Shuffled:
    plan = _plan(tasks, how)
    files = [
        TokenBinParts(
            folder,
            f"{name}-{number:05d}",
            policy,
            filled.tokens,
            filled.entries,
            masked > 0,
            row_tokens,
        )
        for number, (filled, masked) in enumerate(zip(plan.placement.files, plan.masked, strict=True))
    ]  # fmt: skip
    for file in files:
        file.create()
    pieces = list(_pieces(how.scratch / f"{name}-lines", tasks, plan, files))
    for tokens in map_pieces(gather, pieces, workers=workers):
        told(tokens)
    with ThreadPoolExecutor(how.workers) as pool:
        sealed = pool.map(_sealed, files, plan.documents, plan.padding)
        headers = {file.name: header for file, header in zip(files, sealed, strict=True)}
    lines = [piece.lines for piece in pieces]
    return Shuffled(headers, lines, sum(plan.documents), plan.placement.oversized, 0)


def _sealed(file: TokenBinParts, documents: int, padding: int) -> Header:
    return file.seal(documents=documents, padding=padding)


class _Plan(NamedTuple):
    """Ranges of units by shard, the runs of each range, and what each file will hold."""

    units: np.ndarray  # [shard, range]: where the units of a range begin
    runs: list[list[Run]]
    placement: Placement
    masked: list[int]  # units that have a mask
    documents: list[int]
    padding: list[int]


def _plan(tasks: Sequence[Scatter], how: Shuffle) -> _Plan:
    """Return where everything goes, reading one range of unit records at a time."""
    folders = [task.target for task in tasks]
    borders = bucket_borders(_bits(folders, how.bucket_bytes))
    units = np.array([bucket_units(folder, borders) for folder in folders])
    placement, runs = Placement(how.max_tokens_per_file), []
    plan = _Plan(units, runs, placement, [0], [0], [0])
    for number in range(len(borders)):
        records = sorted_units(folders, units[:, number], units[:, number + 1])
        placed = placement.place(records["tokens"], records["entries"])
        runs.append(placed)
        for run in placed:
            _count(plan, run, records[run.first : run.after])
    return plan


def _count(plan: _Plan, run: Run, records: np.ndarray) -> None:
    """Add what a run puts into a file."""
    for totals in (plan.masked, plan.documents, plan.padding):
        totals += [0] * (run.file + 1 - len(totals))
    plan.masked[run.file] += int(records["masked"].sum())
    plan.documents[run.file] += int(records["begun"].sum())
    plan.padding[run.file] += int(records["padding"].sum())


def _bits(folders: Sequence[Path], bucket_bytes: int) -> int:
    """Return how many first bits of a key make ranges of at most about so many bytes."""
    total = sum((folder / TOKENS).stat().st_size for folder in folders)
    return min(MAX_BITS, (max(total - 1, 0) // bucket_bytes).bit_length())


def _pieces(
    lines: Path, tasks: Sequence[Scatter], plan: _Plan, files: Sequence[TokenBinParts]
) -> Iterator[Gather]:
    shutil.rmtree(lines, ignore_errors=True)
    lines.mkdir()
    shards, folders = [task.shard for task in tasks], [task.target for task in tasks]
    for number, runs in enumerate(plan.runs):
        yield Gather(
            shards=shards,
            folders=folders,
            first=plan.units[:, number],
            after=plan.units[:, number + 1],
            files=files,
            runs=runs,
            lines=lines / f"{number:06d}",
        )


def write_lines(path: Path, parts: Sequence[Path]) -> int:
    """Write the lines of all files into one table; return how many there are.

    Row groups are of one size, wherever the parts were cut.
    """
    with TableWriter(path, RELEASE_DOCUMENTS, dictionary=["file", "shard"]) as writer:
        held = list[pa.Table]()
        for part in parts:
            held.append(pl.read_ipc(part).to_arrow().cast(RELEASE_DOCUMENTS))
            while sum(t.num_rows for t in held) >= GROUP_ROWS:
                whole = pa.concat_tables(held)
                writer.write(whole.slice(0, GROUP_ROWS).combine_chunks())
                held = [whole.slice(GROUP_ROWS)]
        writer.write(pa.concat_tables(held).combine_chunks())
        return writer.close()
