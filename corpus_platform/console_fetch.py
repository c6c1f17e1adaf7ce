"""What `corpus fetch` draws: bytes, rate and time left of each shard at work, and of all."""

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from corpus_platform.console import printable, say
from corpus_platform.stages.fetching import Outcome
from corpus_platform.stages.members import VERIFIED
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.registry import Member, Shard

__all__ = ["FetchView", "fetched_line"]

DRAWN_SECONDS = 0.1  # between sums over all shards: of 10,000 they take longer than the bytes
LINE_SECONDS = 30.0  # between lines about what is at work, where there is no terminal


class FetchView:
    """Progress of downloads: bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, shards: Sequence[Shard]) -> None:
        self._console, self._count, self._ended = console, len(shards), 0
        self._sizes = {s.key: _sum(map(_bytes, s.members)) for s in shards}
        self._progress = Progress(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._all = self._progress.add_task("", total=_sum(self._sizes.values()))
        self._bars: dict[str, TaskID] = {}
        self._there: dict[str, int] = {}
        self._at_work: set[str] = set()
        self._speaking = threading.Lock()
        self._spoke, self._said = time.monotonic(), 0
        self._drew = 0.0

    def progressed(self, shard: str, done: int, total: int | None) -> None:
        """Show how much of a shard is there."""
        self._there[shard] = done
        self._at_work.add(shard)
        if total is not None:
            self._sizes[shard] = total
        if not self._console.is_terminal:
            self._speak()
            return
        if shard not in self._bars:
            self._bars[shard] = self._progress.add_task(f"  {printable(shard)}", total=total)
        self._progress.update(self._bars[shard], completed=done, total=total)
        if time.monotonic() - self._drew >= DRAWN_SECONDS:
            self._show_all()

    def ended(self, outcome: Outcome) -> None:
        """Say what became of a shard."""
        self._ended += 1
        self._at_work.discard(outcome.shard)
        if (bar := self._bars.pop(outcome.shard, None)) is not None:
            self._progress.remove_task(bar)
        self._show_all()
        say(self._console, f"  {self._ended}/{self._count} {fetched_line(outcome)}")

    def _show_all(self) -> None:
        self._drew = time.monotonic()
        done = sum(list(self._there.values()))
        words = f"{self._ended} of {self._count} shards"
        total = _sum(list(self._sizes.values()))
        self._progress.update(self._all, description=words, completed=done, total=total)

    def _speak(self) -> None:
        """Say now and then how much is there, of all and of each shard at work, and how fast it comes."""
        with self._speaking:
            seconds = time.monotonic() - self._spoke
            if seconds < LINE_SECONDS:
                return
            done, total = sum(list(self._there.values())), _sum(list(self._sizes.values()))
            rate = max(done - self._said, 0) / seconds
            self._spoke, self._said = time.monotonic(), done
        left = ""
        if total is not None and rate:
            left = f", {timedelta(seconds=round(max(total - done, 0) / rate))} left"
        whole = f"{_of(done, total)}, {decimal(round(rate))}/s{left}"
        say(self._console, f"  {self._ended}/{self._count} shards, {whole}")
        for shard in sorted(self._at_work.copy()):
            say(self._console, f"    {shard}: {_of(self._there[shard], self._sizes.get(shard))}")

    def __enter__(self) -> "FetchView":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def _bytes(member: Member) -> int | None:
    """Return how large a member is, where that can be known before it is fetched."""
    if member.path is None:
        return member.bytes
    seen = stamp(member.path)
    return None if seen is None else seen.bytes


def _sum(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, None where a size is not known."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def _of(done: int, total: int | None) -> str:
    return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"


def fetched_line(outcome: Outcome) -> str:
    """Return a line on what became of a shard: how it was verified, and what came over the network."""
    if outcome.report is None:
        return f"{outcome.shard}: not fetched: {outcome.error}"
    manifest = outcome.report.artifact.manifest
    rows = manifest.measured["source"]
    how = {row["verified"] for row in rows}
    verified = next(v for v in VERIFIED if v in how)
    size = decimal(manifest.ledger["bytes"])
    came = sum(row.get("transferred", 0) for row in rows)
    over = f", {decimal(came)} transferred" if any("transferred" in r for r in rows) else ""
    if verified == "nothing":
        return f"{outcome.shard}: {size}{over}; UNVERIFIED: nothing states its length or hash"
    return f"{outcome.shard}: {size}{over}; verified by {verified}"
