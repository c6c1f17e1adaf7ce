"""What the `corpus` command draws: progress of runs and samples, tallies, plans, states."""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from corpus_platform.errors import place
from corpus_platform.planner import Due, Survey
from corpus_platform.rule_settings import RULES
from corpus_platform.stages.sample import SampleReport
from corpus_platform.stages.tally import CrawlTally

__all__ = [
    "RunView",
    "SampleView",
    "crawl_table",
    "plan_lines",
    "printable",
    "release_lines",
    "sample_lines",
    "say",
    "standard_output",
    "status_lines",
    "status_table",
]

UNFOLDED = 10_000  # columns


class _Task(Protocol):
    @property
    def job(self) -> str: ...
    @property
    def partition(self) -> str | None: ...


def standard_output() -> Console:
    """Return the console of standard output; where that is no terminal, lines are never folded."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=UNFOLDED)


def say(console: Console, text: str) -> None:
    """Print a line: folded at blanks on a terminal, whole elsewhere."""
    console.print(printable(text), markup=False, soft_wrap=not console.is_terminal)


def printable(text: str) -> str:
    """Return a text with escapes for what would steer a terminal or cannot be encoded."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


class RunView:
    """Progress of a run: bars on a terminal; elsewhere a heading per phase, and lines below it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn(
                "{task.description}",
                markup=False,  # names of files are no markup
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", markup=False, justify="right"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._phase: TaskID | None = None
        self._total = self._done = 0
        self._began = 0.0
        self._bars: dict[_Task, TaskID] = {}

    def phase(self, name: str, tasks: Sequence[_Task]) -> None:
        """Begin a phase."""
        self._total, self._done, self._began = len(tasks), 0, time.monotonic()
        self._phase = self._progress.add_task(name, total=self._total, count=f"0/{self._total}")
        if not self._console.is_terminal:
            shards = sum(task.partition is not None for task in tasks)
            say(
                self._console, f"{name}: {shards} to make" if shards else f"{name}: over all shards"
            )

    def progressed(self, task: _Task, asset: str, done: int, total: int | None) -> None:
        """Show how far a task is."""
        label = f"  {asset}" if task.partition is None else f"  {asset} {printable(task.partition)}"
        count = f"{done / total:.0%}" if total else f"{done:,}"
        if task not in self._bars:
            self._bars[task] = self._progress.add_task(label, total=total, count=count)
        self._progress.update(
            self._bars[task], description=label, completed=done, total=total, count=count
        )

    def ended(self, task: _Task, success: bool, reasons: Sequence[str]) -> None:
        """Count a task as ended; say why where it did not succeed."""
        self._done += 1
        count = f"{self._done}/{self._total}"
        if (bar := self._bars.pop(task, None)) is not None:
            self._progress.remove_task(bar)
        if self._phase is not None:
            self._progress.update(self._phase, completed=self._done, count=count)
        what = task.partition or task.job
        if not success:
            say(self._console, f"  {count} {what}: not done: {'; '.join(reasons)}")
        elif not self._console.is_terminal:
            seconds = time.monotonic() - self._began
            say(self._console, f"  {count} {what} (at {seconds:.0f} s)")

    def waiting(self, holder: str) -> None:
        """Say that another run is at work."""
        say(self._console, f"another corpus run is at work ({holder}); waiting for it to end")

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
            TextColumn("{task.description}", markup=False),
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


def crawl_table(crawls: Mapping[str, CrawlTally], *, width: int) -> Table:
    """Return the flow of documents and tokens, a column per crawl and one for all.

    Where that is wider than `width`, the oldest crawls share a column.
    """
    rows = _rows(crawls)
    room = width - 4 - max(cell_len(label) for label, _ in rows)
    columns = _fitting([printable(name) for name in crawls], [values for _, values in rows], room)
    table = Table(title="What became of the documents")
    table.add_column("", no_wrap=True)
    for name, _ in columns:
        table.add_column(Text(name, overflow="fold"), justify="right")
    for number, (label, _) in enumerate(rows):
        table.add_row(Text(label), *(f"{values[number]:,}" for _, values in columns))
    return table


_Columns = list[tuple[str, list[int]]]  # name and values from top to bottom


def _fitting(names: Sequence[str], rows: Sequence[Sequence[int]], room: int) -> _Columns:
    """Return the columns that fit into so many cells, with the sums over as many as do not."""
    every = ("all", [sum(row) for row in rows])
    for merged in (0, *range(2, len(names))):
        recent = [(n, [row[i] for row in rows]) for i, n in enumerate(names) if i >= merged]
        earlier = [(f"{merged} earlier", [sum(row[:merged]) for row in rows])] if merged else []
        columns = [*earlier, *recent, every]
        if sum(_cells(*column) for column in columns) <= room:
            return columns
    return [every]


def _cells(name: str, values: Sequence[int]) -> int:
    """Return the width of a column with its padding and border; a long name is folded."""
    return 3 + max(min(cell_len(name), 16), *(len(f"{value:,}") for value in values))


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


def plan_lines(due: Sequence[Due], *, blocked: int = 0) -> Iterator[str]:
    """Yield what is due and why, in the order in which it would run."""
    for entry in due:
        yield f"{place(entry.asset, entry.partition)}: {entry.reason}"
    if blocked:
        yield f"{blocked} blocked: `corpus status` says by what"
    if due:
        yield f"{len(due)} due; `corpus run` makes them"
    else:
        yield "nothing is due" if blocked else "nothing is due: all is current"


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
        table.add_row(Text(printable(shard)), *(row.get(asset, "") for asset in assets))
    return table


def status_lines(found: Survey) -> Iterator[str]:
    """Yield how the assets over all shards stand, then what is blocked or warned of, and why."""
    for state in found.states:
        if state.partition is None:
            yield f"{state.asset}: {state.state}"
    for state in found.states:
        where = place(state.asset, state.partition)
        if state.gate is not None:
            yield f"blocked: {where}: {state.gate}: {state.reason}"
        elif state.state == "current" and state.reason:
            yield f"warning: {where}: {state.reason}"
    if found.due:
        yield f"{len(found.due)} due: `corpus plan` says why, `corpus run` makes them"


def release_lines(release: Mapping[str, str] | None) -> Iterator[str]:
    """Yield which release is in force, and the whole hash that training may expect of it."""
    if release is None:
        yield "no release is in force"
        return
    yield f"release {release['id']} in {release['path']}"
    yield f"content {release['content']}"
