"""What the `corpus` command draws: progress bars of a run, and tables of tallies, plans, states."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from corpus_platform.planner import Due, Survey
from corpus_platform.stages.tally import CrawlTally

__all__ = ["RunView", "crawl_table", "plan_table", "status_table"]


class _Task(Protocol):
    @property
    def job(self) -> str: ...
    @property
    def partition(self) -> str | None: ...


class RunView:
    """Progress of a run: a bar per phase and one per running task; plain lines where no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._phase: TaskID | None = None
        self._name = ""
        self._total = self._done = 0
        self._bars: dict[_Task, TaskID] = {}

    def phase(self, name: str, tasks: Sequence[_Task]) -> None:
        """Begin a phase."""
        self._name, self._total, self._done = name, len(tasks), 0
        self._phase = self._progress.add_task(name, total=len(tasks))

    def progressed(self, task: _Task, asset: str, done: int, total: int | None) -> None:
        """Show how far a task is."""
        label = f"  {task.partition or task.job} {asset}"
        if task not in self._bars:
            self._bars[task] = self._progress.add_task(label, total=total)
        self._progress.update(self._bars[task], description=label, completed=done, total=total)

    def ended(self, task: _Task, success: bool, reasons: Sequence[str]) -> None:
        """Count a task as ended; say why where it did not succeed."""
        self._done += 1
        if (bar := self._bars.pop(task, None)) is not None:
            self._progress.remove_task(bar)
        if self._phase is not None:
            self._progress.update(self._phase, completed=self._done)
        what = task.partition or task.job
        if not success:
            self._say(f"{self._name} {what}: not done: {'; '.join(reasons)}")
        elif not self._console.is_terminal:
            self._say(f"{self._name} {self._done}/{self._total} {what}")

    def waiting(self, holder: str) -> None:
        """Say that another run is at work."""
        self._say(f"another corpus run is at work ({holder}); waiting for it to end")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def __enter__(self) -> "RunView":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def crawl_table(crawls: Mapping[str, CrawlTally]) -> Table:
    """Return the flow of documents and tokens, a column per crawl and one for all."""
    table = Table(title="What became of the documents")
    table.add_column("")
    for name in [*crawls, "all"]:
        table.add_column(name, justify="right")
    for label, values in _rows(crawls):
        table.add_row(label, *(f"{v:,}" for v in [*values, sum(values)]))
    return table


def _rows(crawls: Mapping[str, CrawlTally]) -> list[tuple[str, list[int]]]:
    every = list(crawls.values())
    reasons = sorted({r for c in every for r in c.quarantined})
    rules = list(dict.fromkeys(r for c in every for r in c.dropped))
    return [
        ("shards", [c.shards for c in every]),
        ("lines", [c.lines for c in every]),
        *((f"  quarantined: {r}", [c.quarantined[r] for c in every]) for r in reasons),
        ("documents", [c.documents for c in every]),
        *((f"  dropped: {r}", [c.dropped[r] for c in every]) for r in rules),
        ("cleaned", [c.cleaned for c in every]),
        ("  exact copies", [c.exact_copies for c in every]),
        ("  near copies", [c.near_copies for c in every]),
        ("kept", [c.kept for c in every]),
        ("  train documents", [c.train_documents for c in every]),
        ("  validation documents", [c.validation_documents for c in every]),
        ("train tokens", [c.train_tokens for c in every]),
        ("validation tokens", [c.validation_tokens for c in every]),
    ]


def plan_table(due: Sequence[Due]) -> Table:
    """Return what is due and why."""
    table = Table(title=f"{len(due)} due")
    for name in ("asset", "partition", "reason"):
        table.add_column(name, overflow="fold")
    for entry in due:
        table.add_row(entry.asset, entry.partition or "", entry.reason)
    return table


def status_table(found: Survey) -> Table:
    """Return a row per shard, a column per asset, and reasons below for what is not current."""
    table = Table(title="Shards and assets")
    assets = list(dict.fromkeys(s.asset for s in found.states))
    shards: dict[str, dict[str, str]] = {}
    for state in found.states:
        shards.setdefault(state.partition or "(corpus)", {})[state.asset] = state.state
    table.add_column("shard", overflow="fold")
    for asset in assets:
        table.add_column(asset)
    for shard, row in shards.items():
        table.add_row(shard, *(row.get(asset, "") for asset in assets))
    return table
