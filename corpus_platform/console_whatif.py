"""What `corpus whatif` prints: the counts of today beside those of another setting."""

import dataclasses
from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from corpus_platform.console import printable
from corpus_platform.stages.whatif import DedupCounts, WhatIf

__all__ = ["whatif_json", "whatif_table"]

NAMES = [field.name for field in dataclasses.fields(DedupCounts)]


def whatif_table(now: WhatIf, then: WhatIf) -> Table:
    """Return a row for each count that is there or differs, all crawls first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("crawl")
    table.add_column("count")
    for found in (now, then):
        table.add_column(f"{found.threshold} {found.keep}", justify="right")
    table.add_column("difference", justify="right")
    for row in _rows(now, then):
        table.add_row(*row)
    return table


def _rows(now: WhatIf, then: WhatIf) -> Iterator[tuple[str, ...]]:
    for crawl in now.counts:
        for name in NAMES:
            a, b = getattr(now.counts[crawl], name), getattr(then.counts[crawl], name)
            if crawl is None or name in ("documents", "kept"):
                shown = "all" if crawl is None else escape(printable(crawl))
                yield shown, name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if a != b else ""


def whatif_json(found: WhatIf) -> dict[str, object]:
    """Return the counts as JSON values; those of all crawls under the key "all"."""
    return {
        "threshold": found.threshold,
        "keep": found.keep,
        "all": dataclasses.asdict(found.counts[None]),
        "crawls": {c: dataclasses.asdict(n) for c, n in found.counts.items() if c is not None},
    }
