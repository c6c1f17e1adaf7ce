"""What `corpus inspect` prints: one shard, as it is."""

import dataclasses
from collections.abc import Iterator

from rich.filesize import decimal

from corpus_platform.config import Fields
from corpus_platform.console import printable
from corpus_platform.stages.inspection import Inspection

__all__ = ["inspection_json", "inspection_lines"]


def inspection_lines(found: Inspection, fields: Fields, *, limit: int | None) -> Iterator[str]:
    """Yield what was seen of a shard, line by line."""
    for file in found.files:
        yield f"file: {file.name}: {decimal(file.bytes)} stored as {file.stored_as}, holds {file.holds}"
    yield from _column_lines(found, fields)
    yield _record_line(found, limit)
    for reason, count in found.rejected.most_common():
        yield f"  not readable: {reason}: {count:,}"
    if found.failure is not None:
        yield f"cannot be read on: {found.failure}"
    if found.documents:
        yield from _text_lines(found, found.languages.total())
    for identity, beginning in found.beginnings:
        yield f"document {identity}:"
        yield from (f"  {line}" for line in printable(beginning).split("\n"))


def inspection_json(found: Inspection) -> dict[str, object]:
    """Return what was seen of a shard, to be printed as JSON."""
    whole = dataclasses.asdict(found)
    del whole["characters"]
    return {
        **whole,
        "documents": found.documents,
        "characters": found.quantiles(),
        "languages": dict(found.languages),
        "rejected": dict(found.rejected),
    }


def _column_lines(found: Inspection, fields: Fields) -> Iterator[str]:
    used = {fields.text: "text", fields.id: "id", fields.url: "url", fields.lang: "lang"}
    for column in found.columns:
        share = f" in {column.seen / column.records:.0%}" if column.seen < column.records else ""
        role = f", taken as the {used[column.name]}" if column.name in used else ""
        yield f"column: {printable(column.name)}: {' or '.join(column.types)}{share}{role}"
    if found.columns and fields.text not in {column.name for column in found.columns}:
        yield f"no column {fields.text!r}: name the text's with `fields: {{text: ...}}` of its source"


def _record_line(found: Inspection, limit: int | None) -> str:
    rows = f"{found.rows:,} rows" if found.rows is not None else "rows are not counted"
    part = (
        "" if limit is None or found.records < limit else f" of the first {limit:,} (--all: of all)"
    )
    size = decimal(found.decompressed_bytes)
    return f"{rows}; {found.documents:,} of {found.records:,} records read{part} are documents; {size} of plain bytes read"


def _text_lines(found: Inspection, total: int) -> Iterator[str]:
    lengths = ", ".join(f"{share} {value:,}" for share, value in found.quantiles().items())
    yield f"characters of a text, at shares of the documents: {lengths}"
    yield f"bytes of UTF-8 per document: {found.utf8_bytes / found.documents:,.0f}"
    shares = ", ".join(f"{n} {c / total:.0%}" for n, c in found.languages.most_common(5))
    yield f"languages of the first {total:,} documents, by their beginnings: {shares}"
    yield f"suspected mojibake: {_share(found.mojibake, found)}; suspected HTML: {_share(found.html, found)}"


def _share(count: int, found: Inspection) -> str:
    return f"{count:,} documents ({count / found.documents:.1%})"
