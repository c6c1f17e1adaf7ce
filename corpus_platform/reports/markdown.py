"""Text of shards, and of errors about them, as Markdown that shows it and does nothing else.

Names and reasons may hold whatever a crawl held. Nothing of it becomes markup or another column of
a table. A bare address may be shown as a link to itself, and to nowhere else: Dagster's UI makes it
one whatever is escaped.
"""

import re
from collections.abc import Sequence

__all__ = ["cell", "table"]

MAX_CHARS = 300
# Entities for HTML, since not every reader of Markdown takes a backslash for it.
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
MARKUP = re.compile(r"([\\`*_{}\[\]()#!|~^$])")


def cell(text: str, *, limit: int = MAX_CHARS) -> str:
    """Return a text of at most `limit` characters as one line of plain Markdown."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    escaped = MARKUP.sub(r"\\\1", line)
    return re.sub("[&<>]", lambda found: ENTITIES[found[0]], escaped)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown already. Columns after the first hold what they may."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
