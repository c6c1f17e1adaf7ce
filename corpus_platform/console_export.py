"""What `corpus export` draws: how far it is, what it came to, and what was lost on the way."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from corpus_platform.console import printable, say
from corpus_platform.stages.exporting import ExportReport

__all__ = ["ExportView", "export_lines", "validation_lines"]

LINE_SECONDS = 30.0  # between lines where there is no terminal


class ExportView:
    """Progress of an export: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._spoke = console, time.monotonic()
        self._progress = Progress(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._bar = self._progress.add_task("", total=None)

    def progressed(self, what: str, done: int, total: int) -> None:
        """Show what is done now, and how much of all that is."""
        self._progress.update(self._bar, description=printable(what), completed=done, total=total)
        if not self._console.is_terminal and time.monotonic() - self._spoke >= LINE_SECONDS:
            self._spoke = time.monotonic()
            say(self._console, f"  {done / max(total, 1):.0%}, {what}")

    def hashed(self, done: int, total: int) -> None:
        """Show how much was hashed."""
        self.progressed(f"hashed {decimal(done)} of {decimal(total)}", done, total)

    def waiting(self, holder: str) -> None:
        """Say that another export is at work."""
        say(
            self._console,
            f"another export to the same place is at work ({holder}); waiting for it to end",
        )

    def collecting(self, holder: str) -> None:
        """Say that releases are being removed, or one is pinned."""
        say(
            self._console,
            f"releases are being collected or pinned ({holder}); waiting for that to end",
        )

    def __enter__(self) -> "ExportView":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def export_lines(report: ExportReport) -> Iterator[str]:
    """Yield what an export came to, in words."""
    what = f"release {report.release} as {report.format} in {report.where}"
    for fault in report.damaged:
        yield f"damaged, and made again: {fault}"
    there = len(report.files) - report.written
    before = f", {there:,} were there before" if there else ""
    if report.was_finished:
        yield f"nothing to do: {what} is finished"
    elif report.written:
        yield f"{what}: {report.written:,} files written and read again{before}"
    else:
        yield f"{what}: all of its {there:,} files were there before"
    yield f"{_counted(report)}, {decimal(report.bytes)}"
    for loss in report.lost:
        word = "lost, as accepted" if loss.accepted else "not held"
        yield f"{word}: {loss.kind}: {loss.what}"
    for note in report.notes:
        yield f"note: {note}"


def _counted(report: ExportReport) -> str:
    documents, tokens, padding, rows = report.counts
    if rows:
        places = f"{tokens:,} tokens and {padding:,} of padding in {rows:,} rows of {report.row_tokens:,}"  # fmt: skip
        return f"{places}; {documents:,} documents"
    return f"{tokens:,} tokens, {documents:,} documents" if tokens else f"{documents:,} documents"


def validation_lines(count: int, faults: Sequence[str]) -> Iterator[str]:
    """Yield what is not as recorded, and a sum."""
    yield from faults
    way_out = "; delete them, and the same export makes them again" if faults else ""
    yield f"{count:,} files validated, {len(faults):,} not as recorded{way_out}"
