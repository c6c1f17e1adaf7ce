"""REPORT.md: what a release is, for the person who is to train on it, as Markdown.

It depends on what goes in alone: no clock, no machine, no path of one. Names, reasons and decoded
text are whatever a crawl held; they are shown as text and nothing else.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple  # Any: values of settings

from corpus_platform.reports.acceptance import Checked, Compression, Decoded, Figures, acceptance
from corpus_platform.reports.markdown import cell, table

__all__ = [
    "Crawl",
    "LanguageTokens",
    "RareToken",
    "ReleaseReport",
    "Source",
    "Vocabulary",
    "acceptance_section",
    "report_text",
]

ACCEPTANCE = "Acceptance"
MAX_ROWS = 500  # of a table; what is beyond them stands in one line
NAME_CHARS, TEXT_CHARS = 120, 300
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Crawl:
    """What became of the documents of a crawl, as far as its shards are in the release."""

    shards: int = 0
    lines: int = 0
    quarantined: int = 0
    documents: int = 0
    dropped: int = 0
    cleaned: int = 0
    copies: int = 0
    kept: int = 0
    train_documents: int = 0
    validation_documents: int = 0
    train_tokens: int = 0
    validation_tokens: int = 0

    def __add__(self, other: "Crawl") -> "Crawl":
        names = [f.name for f in fields(self)]
        return Crawl(*(getattr(self, name) + getattr(other, name) for name in names))


class LanguageTokens(NamedTuple):
    """Documents and tokens of one language."""

    train_documents: int
    train_tokens: int
    validation_documents: int
    validation_tokens: int


class Source(NamedTuple):
    """Where the shards of a crawl came from; `sha256` is that of names, sizes and hashes of all files."""

    crawl: str
    shards: int
    files: int
    bytes: int
    sha256: str
    location: str
    licences: tuple[str, ...]  # of several sources of one crawl each


class RareToken(NamedTuple):
    """A token of the vocabulary, and how often it occurs in train."""

    id: int
    text: str
    bytes: int
    occurrences: int


class Vocabulary(NamedTuple):
    """Tokens that a text may hold, and how many of them train has fewer than `limit` times, and never."""

    limit: int
    tokens: int
    rare: int
    never: int
    longest: Sequence[RareToken]  # of those that are rare


@dataclass(frozen=True)
class ReleaseReport:
    """All that the report shows."""

    figures: Figures
    crawls: Mapping[str, Crawl]
    languages: Mapping[str, LanguageTokens]
    shards: Sequence[tuple[str, int, int]]  # shard, documents, tokens
    left_out: Mapping[str, str]
    sources: Sequence[Source]
    tokenizer: Mapping[str, str]
    vocabulary: Vocabulary
    settings: Mapping[str, Any]
    files: Sequence[tuple[str, int, str]]  # name, bytes, sha256


def report_text(report: ReleaseReport) -> str:
    """Return the text of REPORT.md."""
    sections = {
        ACCEPTANCE: _acceptance(acceptance(report.figures)),
        "What became of the documents": _crawls(report.crawls),
        "What the rules dropped": _rules(report.figures),
        "Tokens by language": _languages(report.languages),
        "Compression": _compression(report.figures.compression, report.figures.sample_tokens),
        "Tokens by shard": _shards(report.shards),
        "Shards left out": _left_out(report.left_out),
        "Sources": _sources(report.sources),
        "Tokenizer": table(("", ""), [(cell(k), cell(v)) for k, v in report.tokenizer.items()]),
        "Tokens that train has hardly any of": _rare(report.vocabulary),
        "Text at random positions": _decoded(report.figures.decoded),
        "Settings": _settings(report.settings),
        "Files": _files(report.files),
    }
    parts = [f"## {name}\n\n{text}" for name, text in sections.items()]
    return "\n\n".join(["# Release", *parts]) + "\n"


def acceptance_section(text: str) -> str | None:
    """Return the acceptance list of a report's text, None where there is none."""
    _, found, rest = text.partition(f"## {ACCEPTANCE}\n\n")
    return rest.split("\n\n## ", 1)[0] if found else None


def _acceptance(checked: Sequence[Checked]) -> str:
    rows = [
        (str(i), cell(c.question), f"**{c.status}**", cell(c.figure), cell(c.source))
        for i, c in enumerate(checked, start=1)
    ]
    return table(("", "question", "", "found", "where"), rows)


def _crawls(crawls: Mapping[str, Crawl]) -> str:
    names = [f.name for f in fields(Crawl)]
    rows = [(cell(name, limit=NAME_CHARS), *_numbers(one, names)) for name, one in crawls.items()]
    if len(crawls) > 1:
        rows.append(("all", *_numbers(sum(crawls.values(), Crawl()), names)))
    said = (
        "lines = quarantined + documents; documents = dropped + cleaned; cleaned = copies + kept;"
        " kept = train + validation documents. Of the shards that are in the release."
    )
    return f"{table(('crawl', *(n.replace('_', ' ') for n in names)), rows)}\n\n{said}"


def _numbers(crawl: Crawl, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{getattr(crawl, name):,}" for name in names)


def _rules(figures: Figures) -> str:
    whole = figures.cleaned_from
    rows = [(cell(r), f"{n:,}", _share(n, whole)) for r, n in figures.dropped.items()]
    return table(("rule", "documents", "of all"), rows) if rows else "no rule is in force"


def _languages(languages: Mapping[str, LanguageTokens]) -> str:
    ranked = sorted(languages.items(), key=lambda p: (-p[1].train_tokens - p[1].validation_tokens, p[0]))  # fmt: skip
    rows = [
        (cell(name, limit=NAME_CHARS) or "no language", *(f"{n:,}" for n in counts))
        for name, counts in ranked[:MAX_ROWS]
    ]
    if rest := [counts for _, counts in ranked[MAX_ROWS:]]:
        rows.append((f"{len(rest):,} more", *(f"{sum(n):,}" for n in zip(*rest, strict=True))))
    heading = ("train documents", "train tokens", "validation documents", "validation tokens")
    return table(("language", *heading), rows) if rows else "no documents"


def _compression(compression: Mapping[str, Compression], sample: int) -> str:
    rows = [
        (
            cell(name, limit=NAME_CHARS) or "no language",
            f"{c.documents:,}",
            f"{c.tokens:,}",
            f"{c.chars / c.tokens:.3f}" if c.tokens else "-",
            f"{c.bytes / c.tokens:.3f}" if c.tokens else "-",
        )
        for name, c in sorted(compression.items(), key=lambda p: (-p[1].tokens, p[0]))[:MAX_ROWS]
    ]
    heading = ("language", "documents", "tokens", "characters a token", "bytes a token")
    return f"{table(heading, rows)}\n\nOf the first {sample:,} tokens of train, without control tokens."


def _shards(shards: Sequence[tuple[str, int, int]]) -> str:
    rows = [(cell(s, limit=NAME_CHARS), f"{d:,}", f"{t:,}") for s, d, t in shards[:MAX_ROWS]]
    if rest := shards[MAX_ROWS:]:
        documents, tokens = (sum(shard[i] for shard in rest) for i in (1, 2))
        rows.append((f"{len(rest):,} more", f"{documents:,}", f"{tokens:,}"))
    return table(("shard", "documents", "tokens"), rows)


def _left_out(left_out: Mapping[str, str]) -> str:
    rows = [(cell(s, limit=NAME_CHARS), cell(why)) for s, why in list(left_out.items())[:MAX_ROWS]]
    if len(left_out) > MAX_ROWS:
        rows.append((f"{len(left_out) - MAX_ROWS:,} more", ""))
    return table(("shard", "why"), rows) if rows else "none"


def _sources(sources: Sequence[Source]) -> str:
    rows = [
        (
            cell(s.crawl, limit=NAME_CHARS),
            cell(s.location),
            cell(" or ".join(s.licences)) if s.licences else NOT_STATED,
            f"{s.shards:,}",
            f"{s.files:,}",
            f"{s.bytes:,}",
            f"`{s.sha256}`",
        )
        for s in sources
    ]
    heading = (
        "crawl",
        "from",
        "licence",
        "shards",
        "files",
        "bytes",
        "sha256 of names, sizes, hashes",
    )
    said = "Places and licences are those that were set when the release was made."
    return f"{table(heading, rows)}\n\n{said}"


def _rare(found: Vocabulary) -> str:
    share = _share(found.rare, found.tokens)
    said = (
        f"Of {found.tokens:,} tokens that a text may hold {found.rare:,} ({share}) occur fewer than"
        f" {found.limit} times in train, {found.never:,} of them never."
    )
    if not found.longest:
        return said
    rows = [
        (
            str(t.id),
            cell(json.dumps(t.text, ensure_ascii=False)),
            f"{t.bytes:,}",
            f"{t.occurrences:,}",
        )
        for t in found.longest
    ]
    return f"{said} The longest of them:\n\n{table(('id', 'text', 'bytes', 'in train'), rows)}"


def _decoded(decoded: Sequence[Decoded]) -> str:
    rows = [
        (cell(d.file), f"{d.position:,}", f"{d.strange:.1%}", cell(d.text, limit=TEXT_CHARS))
        for d in decoded
    ]
    return table(("file", "token", "unreadable", "text"), rows) if rows else "no tokens"


def _settings(settings: Mapping[str, Any]) -> str:
    rows = [(cell(name), cell(value, limit=2000)) for name, value in _flat(settings)]
    said = (
        "Settings of dedup and split act through verdicts; manifest.json has them under `measured`."
    )
    return f"{table(('setting', 'value'), rows)}\n\n{said}"


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", json.dumps(value, ensure_ascii=False, sort_keys=True)


def _files(files: Sequence[tuple[str, int, str]]) -> str:
    rows = [(cell(name), f"{size:,}", f"`{sha256}`") for name, size, sha256 in files]
    return table(("file", "bytes", "sha256"), rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"
