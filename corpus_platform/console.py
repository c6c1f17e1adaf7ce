"""What the `corpus` command draws: progress of runs and samples, tallies, plans, states."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from corpus_platform.config import RULES
from corpus_platform.planner import Due, Survey
from corpus_platform.stages.sample import SampleReport
from corpus_platform.stages.tally import CrawlTally

__all__ = [
    "RunView",
    "SampleView",
    "crawl_table",
    "plan_lines",
    "sample_lines",
    "status_lines",
    "status_table",
]


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


class SampleView:
    """Progress of a sample: a bar for its reading and one for its writing; lines where no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}

    def progressed(self, what: str, done: int, total: int | None) -> None:
        """Show what was read or written last, and how much of all that is."""
        verb = what.partition(" ")[0]
        if verb not in self._bars:
            self._bars[verb] = self._progress.add_task(what, total=total)
        self._progress.update(self._bars[verb], description=what, completed=done, total=total)
        if not self._console.is_terminal and total:
            self._console.print(f"{what}: {done / total:.0%}", markup=False)

    def __enter__(self) -> "SampleView":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def sample_lines(report: SampleReport) -> Iterator[str]:
    """Yield what a sample holds, in words."""
    on_disk = sum(shard.file_bytes for shard in report.shards)
    yield (
        f"{report.folder}: {report.documents:,} documents in {len(report.shards)} shards of two"
        f" crawls; {_megabytes(report.text_bytes)} of text, {_megabytes(on_disk)} on disk"
    )
    kinds = ", ".join(f"{kind.documents:,} {kind.kind}" for kind in report.kinds)
    yield f"taken: {kinds}"
    yield (
        f"met again in the second crawl: {report.met_again:,} as they were,"
        f" {report.met_again_changed:,} in a later version"
    )
    yield f"left out: {report.left_out_short:,} too short, {report.left_out_unreadable:,} not text"
    if report.short_of_target:
        yield (
            f"this machine has {_megabytes(report.short_of_target)} less documentation than the"
            f" {_megabytes(report.target_bytes)} asked for"
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


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
    faults = sorted({r for c in every for r in c.known_faults})
    rules = [r for r in RULES if any(r in c.dropped for c in every)]
    return [
        ("shards", [c.shards for c in every]),
        ("lines", [c.lines for c in every]),
        *((f"  quarantined: {r}", [c.quarantined[r] for c in every]) for r in reasons),
        ("documents", [c.documents for c in every]),
        *((f"  dropped: {r}", [c.dropped[r] for c in every]) for r in rules),
        *(
            (f"    hit only by a known fault: {r}", [c.known_faults[r] for c in every])
            for r in faults
        ),
        ("cleaned", [c.cleaned for c in every]),
        ("  exact copies", [c.exact_copies for c in every]),
        ("  near copies", [c.near_copies for c in every]),
        ("kept", [c.kept for c in every]),
        ("  train documents", [c.train_documents for c in every]),
        ("  validation documents", [c.validation_documents for c in every]),
        ("train tokens", [c.train_tokens for c in every]),
        ("validation tokens", [c.validation_tokens for c in every]),
    ]


def plan_lines(due: Sequence[Due]) -> Iterator[str]:
    """Yield what is due and why, in the order in which it would run."""
    for entry in due:
        yield f"{_place(entry.asset, entry.partition)}: {entry.reason}"
    yield f"{len(due)} due; `corpus run` makes them" if due else "nothing is due: all is current"


def _place(asset: str, partition: str | None) -> str:
    return asset if partition is None else f"{asset}[{partition}]"


def status_table(found: Survey) -> Table:
    """Return a row per shard, a column per asset that is made shard by shard."""
    table = Table(title="Shards")
    of_shards = [s for s in found.states if s.partition is not None]
    assets = list(dict.fromkeys(s.asset for s in of_shards))
    shards: dict[str, dict[str, str]] = {}
    for state in of_shards:
        shards.setdefault(state.partition or "", {})[state.asset] = state.state
    table.add_column("shard", overflow="fold")
    for asset in assets:
        table.add_column(asset.replace("_", "_\n"), no_wrap=True)
    for shard, row in shards.items():
        table.add_row(shard, *(row.get(asset, "") for asset in assets))
    return table


def status_lines(found: Survey) -> Iterator[str]:
    """Yield how the assets over all shards stand, then what is blocked or warned of, and why."""
    for state in found.states:
        if state.partition is None:
            yield f"{state.asset}: {state.state}"
    for state in found.states:
        place = _place(state.asset, state.partition)
        if state.gate is not None:
            yield f"blocked: {place}: {state.gate}: {state.reason}"
        elif state.state == "current" and state.reason:
            yield f"warning: {place}: {state.reason}"
    if found.due:
        yield f"{len(found.due)} due: `corpus plan` says why, `corpus run` makes them"
