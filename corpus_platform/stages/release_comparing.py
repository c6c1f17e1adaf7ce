"""A release held against the packed shards that it was made of: what is missing, foreign or changed.

One pass over the files and one over the packs sum up the hashes of each shard's lines. Where the sums
are equal, so are the lines. Only shards whose sums differ are compared line by line, some at a time,
so memory does not grow with the documents of a release, however many of them are damaged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.release_hashes import (
    FOUND,
    entries_of,
    hashed,
    hashed_lines,
    hashed_windows,
    line_hashes,
    mixed,
    placed,
    whole_documents,
)
from corpus_platform.stages.release_leaks import Common
from corpus_platform.stages.release_lines import ReleaseLines, held_lines

__all__ = ["Compared", "Pack", "compare", "kind_of", "listed_in_both"]

TRAIN, VALIDATION = BIN_NAMES["train"], BIN_NAMES["validation"]


class Pack(NamedTuple):
    """The bins of a packed shard and the table beside them."""

    folder: Path
    documents: Path


class Compared(NamedTuple):
    """Lines that one side has alone, the tokens of the packs, and leaked validation documents."""

    differing: int
    tokens: int
    leaked: int


def kind_of(base: str) -> str:
    """Return what a file of a release holds, from its base name: train-00000 is train."""
    return base.rsplit("-", 1)[0]


def compare(bins: Mapping[str, TokenBin], lines: ReleaseLines, packs: Sequence[Pack]) -> Compared:
    """Compare all lines of a release with those of the packs of its shards, in the ledger's order.

    A line is known by kind of file, shard, row and offset, and compared by count and hash of its
    tokens and of their mask. What lies elsewhere than the table says counts once more.
    """
    return _Comparison(bins, lines, packs).result()


class _Sums:
    """Sums of the hashes of lines, by number of their shard, and how many lines they are of."""

    def __init__(self, shards: int) -> None:
        self.lines = np.zeros(shards, np.int64)
        self.low, self.high = np.zeros(shards, np.uint64), np.zeros(shards, np.uint64)
        self.foreign = 0  # lines of shards that have no number

    def add(self, found: pl.DataFrame) -> None:
        """Add lines of hashes."""
        known = found.filter(pl.col("shard") >= 0)
        self.foreign += len(found) - len(known)
        numbers = known["shard"].to_numpy()
        low, high = line_hashes(known)
        np.add.at(self.lines, numbers, 1)
        np.add.at(self.low, numbers, low)
        np.add.at(self.high, numbers, high)

    @property
    def total(self) -> int:
        """How many lines there are."""
        return int(self.lines.sum()) + self.foreign

    def of(self, number: int) -> tuple[int, int, int]:
        """Return the sums of one shard."""
        return int(self.lines[number]), int(self.low[number]), int(self.high[number])


class _Packed(NamedTuple):
    """Lines of a packed bin as a release should hold them, and as they are where windows cut them."""

    released: pl.DataFrame
    uncut: pl.DataFrame | None


class _Comparison:
    """The state of a comparison; each kind of file is looked at by itself."""

    def __init__(
        self, bins: Mapping[str, TokenBin], lines: ReleaseLines, packs: Sequence[Pack]
    ) -> None:
        self._bins, self._lines, self._packs = bins, lines, packs
        self._row_tokens = next(iter(bins.values())).header.row_tokens if bins else None
        self._sums = {kind: _Sums(len(packs)) for kind in (VALIDATION, TRAIN)}
        self._held = held_lines(lines.lines)  # about 60 bytes each, while they are compared
        self._uncut = False  # whether the packs tell of whole documents, since windows cut them
        self.differing = self.tokens = 0

    def result(self) -> Compared:
        """Compare everything."""
        for base, bin_ in self._bins.items():
            self._sum_up(base, bin_)
        self.differing += sum(sums.foreign for sums in self._sums.values())
        held, met = sorted(self._sums, key=lambda kind: self._sums[kind].total)
        common, leaked = Common(), 0
        for low, high in self._documents(held):
            common.hold(low, high)
        for low, high in self._documents(met):
            leaked += common.meet(low, high)
        leaked = common.met_times if held == VALIDATION else leaked
        return Compared(self.differing, self.tokens, leaked)

    def _sum_up(self, base: str, bin_: TokenBin) -> None:
        """Add the hashes of a file's lines to the sums, and count those that lie elsewhere."""
        kind, misplaced = _side(base), 0
        for part in placed(bin_, self._lines.of(bin_file(base))):
            misplaced += part.misplaced
            self._sums[kind].add(hashed_lines(bin_, kind, part))
        unlisted = sum(len(e.ends) for e in entries_of(bin_)) - self._lines.count(bin_file(base))
        self.differing += abs(unlisted) or misplaced

    def _documents(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield hashes of whole documents of a kind, shard by shard; count the lines that differ."""
        unequal = list[int]()
        for number in range(len(self._packs)):
            packed = self._packed(number, kind)
            self.tokens += int(packed.released["tokens"].sum())
            if _sums_of(packed.released) == self._sums[kind].of(number):
                yield whole_documents(packed.released if packed.uncut is None else packed.uncut)
            else:
                unequal.append(number)
        for group in self._groups(kind, unequal):
            yield from self._line_by_line(kind, group)
        if not self._uncut:
            yield from self._foreign(kind)

    def _groups(self, kind: str, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yield shards in groups that have few lines enough to hold, or one by one."""
        group, lines = list[int](), 0
        for number in numbers:
            more = int(self._sums[kind].lines[number])
            if group and lines + more > self._held:
                yield group
                group, lines = [], 0
            group.append(number)
            lines += more
        if group:
            yield group

    def _line_by_line(
        self, kind: str, group: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        chosen = np.zeros(len(self._packs) + 1, np.bool_)
        chosen[list(group)] = True  # the last is that of foreign shards
        lines = self._released(kind, lambda shards, _: chosen[np.maximum(shards, -1)])
        by_shard, none = lines.partition_by("shard", as_dict=True), lines.clear()
        del lines
        for number in group:
            found, packed = by_shard.get((number,), none), self._packed(number, kind)
            self.differing += _differing(found, packed.released)
            yield whole_documents(found if packed.uncut is None else packed.uncut)

    def _foreign(self, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the hashes of whole documents of shards that the ledger does not name."""
        parts = -(-self._sums[kind].foreign // self._held)
        for part in range(parts):
            yield whole_documents(
                self._released(kind, lambda s, rows, i=part: (s < 0) & (rows % parts == i))
            )

    def _released(
        self, kind: str, choose: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> pl.DataFrame:
        """Return the lines of hashes of a kind that are chosen by their shards and rows."""
        found = [pl.DataFrame(schema=FOUND)]
        for base, bin_ in self._bins.items():
            if _side(base) == kind:
                for part in placed(bin_, self._lines.of(bin_file(base))):
                    which = choose(*(part.lines[name].to_numpy() for name in ("shard", "row")))
                    found.append(hashed_lines(bin_, kind, part.chosen(which)))
        return pl.concat(found)

    def _packed(self, number: int, kind: str) -> _Packed:
        pack = self._packs[number]
        lines = pl.read_parquet(
            pack.documents, columns=["file", "start", "tokens", "row", "offset"]
        )
        part = lines.filter(pl.col("file") == bin_file(kind)).with_columns(
            shard=pl.lit(number, pl.Int64)
        )
        if not part["start"].is_sorted():
            part = part.sort("start", maintain_order=True)
        bin_ = open_token_bin(pack.folder, kind)
        if bin_.header.row_tokens is not None:  # of documents without a token they have nothing
            return _Packed(hashed(bin_, kind, part.filter(pl.col("tokens") > 0)), None)
        found = hashed(bin_, kind, part)
        if self._row_tokens is None:
            return _Packed(found, None)
        self._uncut = True
        return _Packed(hashed_windows(bin_, kind, part, self._row_tokens), found)


def _side(base: str) -> str:
    return TRAIN if kind_of(base) == TRAIN else VALIDATION


def _sums_of(lines: pl.DataFrame) -> tuple[int, int, int]:
    low, high = line_hashes(lines)
    return len(lines), int(low.sum()), int(high.sum())


def _differing(found: pl.DataFrame, packed: pl.DataFrame) -> int:
    """Count the lines that one side has alone, each as often as it has it more than the other."""
    sides = [found.with_columns(times=pl.lit(1)), packed.with_columns(times=pl.lit(-1))]
    times = pl.concat(sides).group_by(packed.columns).agg(pl.col("times").sum())
    return int(times["times"].abs().sum())


def listed_in_both(lines: ReleaseLines) -> int:
    """Count documents that are listed in a file of validation and in another one, by shard and row."""
    sides = {True: list[str](), False: list[str]()}
    for file in lines.files:
        sides[file.startswith(f"{VALIDATION}-")].append(file)
    held, met = sorted(sides.values(), key=lambda files: sum(map(lines.count, files)))
    common = Common()
    for file in held:
        for part in lines.of(file, ("shard", "row")):
            common.hold(*_name_of(part))
    for file in met:
        for part in lines.of(file, ("shard", "row")):
            common.meet(*_name_of(part))
    return common.met


def _name_of(lines: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return shard and row, one to one, as hashes."""
    shards, rows = (lines[name].to_numpy().view(np.uint64) for name in ("shard", "row"))
    return mixed(rows + mixed(shards)), shards
