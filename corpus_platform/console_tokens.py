"""What `corpus tokens` prints: documents, tokens and bytes per token, by language and state."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from corpus_platform.console import printable
from corpus_platform.stages.token_counts import CLEANED, STATES, Count, TokenCounts

__all__ = ["counting", "tokens_json", "tokens_lines", "tokens_table"]

NAMED_SHARDS = 5
NAME_WIDTH = 80
Group = tuple[str | None, str | None]  # a shard or crawl, and a language; None for all


@contextmanager
def counting(console: Console) -> Generator[Callable[[int, int | None], None]]:
    """Show on a terminal how far a count is, which hears of it by what this gives."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
    with bars:
        bar = bars.add_task("counting tokens", total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def tokens_table(found: TokenCounts, *, by_shard: bool) -> Table:
    """Return a row for each shard, or else each crawl, and language, then those of all."""
    table = Table(box=None, pad_edge=False)
    table.add_column("shard" if by_shard else "crawl")
    table.add_column("language")
    table.add_column("documents", justify="right")
    for state in STATES:
        table.add_column(f"{state} tokens", justify="right")
    table.add_column("bytes/token", justify="right")
    groups: dict[Group, dict[str, Count]] = {}
    for count in found.counts:
        for group in _groups(count, by_shard=by_shard):
            states = groups.setdefault(group, {})
            states[count.state] = _sum(states.get(count.state), count)
    for group in sorted(groups, key=lambda group: (group[0] is None, group[1] is None)):
        table.add_row(*(_name(name) for name in group), *_cells(groups[group]))
    return table


def _name(name: str | None) -> Text:
    """Return the name of a shard, a crawl or a language on one line; a language may be any text."""
    if name is None:
        return Text("all")
    line = printable(name).replace("\n", "\\n")
    return Text(line if len(line) <= NAME_WIDTH else f"{line[: NAME_WIDTH - 1]}…")  # no markup


def _groups(count: Count, *, by_shard: bool) -> Iterator[Group]:
    name = count.shard if by_shard else count.shard.split("/", 1)[0]
    yield name, count.lang
    yield None, count.lang
    yield None, None


def _sum(first: Count | None, second: Count) -> Count:
    if first is None:
        return second
    totals = (a + b for a, b in zip(first[3:], second[3:], strict=True))
    return Count(*first[:3], *totals)


def _cells(states: dict[str, Count]) -> Iterator[str]:
    cleaned = states[CLEANED]  # every document that is counted is in this state
    yield f"{cleaned.documents:,}"
    for state in STATES:
        yield f"{states[state].tokens:,}" if state in states else ""
    yield f"{cleaned.bytes / cleaned.tokens:.2f}" if cleaned.tokens else ""


def tokens_lines(found: TokenCounts) -> Iterator[str]:
    """Yield by which tokenizer and engine was counted, and what was left out."""
    engines = ", ".join(f"{name} {count}" for name, count in sorted(found.engines.items()))
    yield f"tokenizer {found.tokenizer[:16]}; shards by engine: {engines or 'none'}"
    yield "tokens of texts alone: each control token of a document is one more"
    if found.undecided:
        yield f"not yet decided, so counted as cleaned only: {_named(found.undecided)}"
    if found.left_out:
        yield f"not cleaned, so left out: {_named(found.left_out)}"


def _named(shards: tuple[str, ...]) -> str:
    more = f" and {len(shards) - NAMED_SHARDS} more" if len(shards) > NAMED_SHARDS else ""
    return ", ".join(shards[:NAMED_SHARDS]) + more


def tokens_json(found: TokenCounts) -> dict[str, object]:
    """Return the counts as JSON values, one object for each shard, language and state."""
    return {
        "tokenizer": found.tokenizer,
        "engines": dict(found.engines),
        "counts": [count._asdict() for count in found.counts],
        "undecided": list(found.undecided),
        "left_out": list(found.left_out),
    }
