"""What `corpus diff` prints: what came, went and stayed between two releases, and why."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from corpus_platform.console import printable
from corpus_platform.stages.release_diff import Changes, Reason, ReleaseDiff, Side

__all__ = ["changes_table", "diff_json", "diff_lines", "reasons_table"]

NAMED = 5  # shards in a line
ADDED = {
    "no_shard": "its shard was not in the release",
    "retired": "its shard was retired",
    "left_out": "its shard was left out",
}
REMOVED = {
    "no_shard": "its shard is none of the release",
    "retired": "its shard is retired",
    "left_out": "its shard is left out",
    "not_in_source": "its record is not in the source any more",
}
WORDS = {
    "rule": "dropped by a rule",
    "exact_copy": "exact copy of a document of",
    "near_copy": "near copy of a document of",
    "quarantined": "in quarantine",
    "not_in_source": "its record was not in the source",
    "unknown": "unknown: what the release was made of is gone",
}


def diff_json(found: ReleaseDiff) -> dict[str, object]:
    """Return what differs, to be printed as JSON."""
    return {
        **dataclasses.asdict(found),
        "crawls": {name: dataclasses.asdict(c) for name, c in found.crawls.items()},
        "languages": {name: dataclasses.asdict(c) for name, c in found.languages.items()},
        "settings": {n: {"old": a, "new": b} for n, (a, b) in found.settings.items()},
        "left_out_old": dict(found.left_out_old),
        "left_out_new": dict(found.left_out_new),
        "tokenizer_changed": found.old.tokenizer != found.new.tokenizer,
    }


def diff_lines(found: ReleaseDiff) -> Iterator[str]:
    """Yield what differs besides documents: tokenizer, settings, shards."""
    yield f"old: {_side(found.old)}"
    yield f"new: {_side(found.new)}"
    if found.old.tokenizer != found.new.tokenizer:
        yield f"tokenizer: {found.old.tokenizer[:16]} became {found.new.tokenizer[:16]}"
    for name, (before, after) in found.settings.items():
        yield f"setting {name}: {_value(before)} became {_value(after)}"
    yield from _shard_lines("shards added", found.shards_added)
    yield from _shard_lines("shards not in the new one", found.shards_removed)
    if found.repacked:
        yield f"shards packed anew: {found.repacked:,}"
    for side, left_out in (("old", found.left_out_old), ("new", found.left_out_new)):
        for shard, why in left_out.items():
            yield f"left out of the {side} one: {shard}: {why}"


def _side(side: Side) -> str:
    made = "" if side.made_at is None else f", made {side.made_at}"
    return (
        f"release {side.id}{made}: {side.documents:,} documents, {side.tokens:,} tokens of"
        f" {side.shards:,} shards"
    )


def _value(value: object) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _shard_lines(what: str, shards: Sequence[str]) -> Iterator[str]:
    if shards:
        more = f" and {len(shards) - NAMED:,} more" if len(shards) > NAMED else ""
        yield f"{what}: {', '.join(shards[:NAMED])}{more}"


def changes_table(found: ReleaseDiff) -> Table:
    """Return a row for each crawl, each language, and all: documents (tokens)."""
    table = Table(box=None, pad_edge=False)
    table.add_column("by")
    table.add_column("of")
    for name in ("added", "removed", "kept", "other length", "to validation", "to train"):
        table.add_column(name, justify="right")
    for by, rows in (("crawl", found.crawls), ("language", found.languages)):
        for name, changes in rows.items():
            table.add_row(by, escape(printable(name)), *_cells(changes))
    table.add_row("all", "", *_cells(found.total))
    return table


def _cells(changes: Changes) -> list[str]:
    difference = changes.kept_tokens_new - changes.kept_tokens_old
    length = "" if not changes.resized_documents else f"{changes.resized_documents:,} ({difference:+,})"  # fmt: skip
    return [
        _count(changes.added_documents, changes.added_tokens),
        _count(changes.removed_documents, changes.removed_tokens),
        _count(changes.kept_documents, changes.kept_tokens_new),
        length,
        _count(changes.to_validation_documents, changes.to_validation_tokens),
        _count(changes.to_train_documents, changes.to_train_tokens),
    ]


def _count(documents: int, tokens: int) -> str:
    return f"{documents:,} ({tokens:,})" if documents else ""


def reasons_table(found: ReleaseDiff) -> Table:
    """Return a row for each reason why documents are in one release alone."""
    table = Table(box=None, pad_edge=False)
    for name in ("documents", "why"):
        table.add_column(name)
    table.add_column("number", justify="right")
    table.add_column("tokens", justify="right")
    removed: tuple[str, Mapping[str, str], Sequence[Reason]] = ("removed", REMOVED, found.removed)
    for what, words, reasons in (removed, ("added", ADDED, found.added)):
        for one in reasons:
            why = (WORDS | words)[one.reason]
            detail = "" if one.detail is None else f"{':' if one.reason in ('rule', 'quarantined', 'left_out') else ''} {printable(one.detail)}"  # fmt: skip
            before = "before: " if what == "added" else ""
            table.add_row(
                what, escape(f"{before}{why}{detail}"), f"{one.documents:,}", f"{one.tokens:,}"
            )
    return table
