"""What `corpus fetch` draws: bytes, rate and time left of each shard at work, and of all."""

import time
from collections.abc import Sequence
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
from corpus_platform.storage.registry import Shard

__all__ = ["FetchView", "fetched_line"]

LINE_SECONDS = 30.0  # between lines about what is at work, where there is no terminal


class FetchView:
    """Progress of downloads: bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, shards: Sequence[Shard]) -> None:
        self._console, self._count, self._ended = console, len(shards), 0
        sizes = [m.bytes for shard in shards for m in shard.members]
        known = [size for size in sizes if size is not None]
        self._total = sum(known) if len(known) == len(sizes) else None
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
        self._all = self._progress.add_task("", total=self._total)
        self._bars: dict[str, TaskID] = {}
        self._there: dict[str, int] = {}
        self._spoke = time.monotonic()

    def progressed(self, shard: str, done: int, total: int | None) -> None:
        """Show how much of a shard is there."""
        self._there[shard] = done
        if not self._console.is_terminal:
            self._speak()
            return
        if shard not in self._bars:
            self._bars[shard] = self._progress.add_task(f"  {printable(shard)}", total=total)
        self._progress.update(self._bars[shard], completed=done, total=total)
        self._show_all()

    def ended(self, outcome: Outcome) -> None:
        """Say what became of a shard."""
        self._ended += 1
        if (bar := self._bars.pop(outcome.shard, None)) is not None:
            self._progress.remove_task(bar)
        self._show_all()
        say(self._console, f"  {self._ended}/{self._count} {fetched_line(outcome)}")

    def _show_all(self) -> None:
        done = sum(list(self._there.values()))
        words = f"{self._ended} of {self._count} shards"
        self._progress.update(self._all, description=words, completed=done)

    def _speak(self) -> None:
        """Say now and then how much is there."""
        if time.monotonic() - self._spoke < LINE_SECONDS:
            return
        self._spoke = time.monotonic()
        of = f" of {decimal(self._total)}" if self._total is not None else ""
        done = sum(list(self._there.values()))
        say(self._console, f"  {self._ended}/{self._count} shards, {decimal(done)}{of}")

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


def fetched_line(outcome: Outcome) -> str:
    """Return a line on what became of a shard: how it was verified, and what came over the network."""
    if outcome.report is None:
        return f"{outcome.shard}: not fetched: {outcome.error}"
    manifest = outcome.report.artifact.manifest
    rows = manifest.measured["source"]
    how = {row["verified"] for row in rows}
    verified = next(v for v in ("nothing", "length", "sha256") if v in how)
    size = decimal(manifest.ledger["bytes"])
    came = sum(row.get("transferred", 0) for row in rows)
    over = f", {decimal(came)} transferred" if any("transferred" in r for r in rows) else ""
    if verified == "nothing":
        return f"{outcome.shard}: {size}{over}; UNVERIFIED: nothing states its length or hash"
    return f"{outcome.shard}: {size}{over}; verified by {verified}"
