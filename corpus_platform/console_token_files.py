"""What `corpus inspect` prints of token files, and of the artifact or export that they are of."""

import dataclasses
from collections.abc import Iterator

from rich.filesize import decimal

from corpus_platform.console import printable
from corpus_platform.errors import place
from corpus_platform.stages.export_formats import entry_word
from corpus_platform.stages.export_json import Finished
from corpus_platform.stages.token_inspection import Comparison, TokenInspection
from corpus_platform.storage.manifest import Manifest

__all__ = ["artifact_lines", "comparison_lines", "exported_lines", "token_json", "token_lines"]

MAX_ENTRIES = (
    20  # of a part of a ledger: beyond them, as of thousands of shards, their number is said
)


def token_lines(found: TokenInspection) -> Iterator[str]:
    """Yield what was seen of a token file, line by line."""
    yield f"token file: {found.path}: {found.format}, ids of {found.dtype}"
    for name, value in found.header.items():
        yield f"  {name}: {value}"
    yield _count_line(found)
    if found.lengths:
        lengths = ", ".join(f"{share} {value:,}" for share, value in found.lengths.items())
        of = "an entry" if found.row_tokens else "a document"
        yield f"tokens of {of}, at shares of all: {lengths}"
    if found.max_id is not None:
        limit = "" if found.vocab_size is None else f" of a vocabulary of {found.vocab_size:,}"
        yield f"largest id: {found.max_id:,}{limit}"
    if found.eos_id is not None:
        yield _end_line(found)
    if found.without_loss is not None and found.tokens:
        share = found.without_loss / found.tokens
        yield f"without loss: {found.without_loss:,} tokens ({share:.1%})"
    for fault in found.faults:
        yield f"fault: {fault}"
    for number, beginning in found.beginnings:
        yield f"document {number}:"
        yield from (f"  {line}" for line in printable(beginning).split("\n"))


def _count_line(found: TokenInspection) -> str:
    line = f"{found.tokens:,} tokens"
    if found.documents is not None:
        line += f"; {found.documents:,} documents by the {found.documents_by}"
    if found.row_tokens is not None:
        rows = found.tokens // found.row_tokens
        line += " begin in" if found.documents_by == "index" else " in"
        line += f" {rows:,} rows of {found.row_tokens:,}"
        if found.padding is not None:
            line += f"; {found.entries or 0:,} pieces, {found.padding:,} tokens of padding"
        elif found.entries not in (None, rows):
            line += f"; {found.entries:,} pieces, with padding"
    return line


def _end_line(found: TokenInspection) -> str:
    line = f"end token {found.eos_id} (by the {found.eos_by}): {found.eos_count or 0:,}"
    if found.eos_count:
        line += f", one in {found.tokens / found.eos_count:,.1f} tokens"
    if found.mean_length is not None and found.documents_by == "index" and not found.row_tokens:
        line += f"; documents have {found.mean_length:,.1f} on average"
    return line


def token_json(found: TokenInspection) -> dict[str, object]:
    """Return what was seen of a token file, to be printed as JSON."""
    return {**dataclasses.asdict(found), "eos_density": found.eos_density}


def artifact_lines(manifest: Manifest) -> Iterator[str]:
    """Yield what an artifact is, by its manifest."""
    yield f"artifact: {place(manifest.asset, manifest.partition)}, content {manifest.content}"
    for name, value in manifest.ledger.items():
        long = isinstance(value, dict | list) and len(value) > MAX_ENTRIES
        yield f"  {name}: {f'{len(value):,} entries' if long else value}"
    for output in manifest.outputs:
        count = next((f", {n:,} {w}" for n, w in ((output.rows, "rows"), (output.tokens, "tokens")) if n is not None), "")  # fmt: skip
        yield f"file: {output.name}: {decimal(output.bytes)}{count}"


def exported_lines(found: Finished) -> Iterator[str]:
    """Yield what an export is, by its export.json."""
    said = found.identity
    options = ", ".join(f"{name} {value}" for name, value in _options(said["options"]))
    yield f"export: {said['format']} of the release with content {said['release']}; {options}"
    word = entry_word(str(said["format"]), found.row_tokens)
    for file in found.files.values():
        holds = f", {file.documents:,} {word}" if file.documents else ""
        yield f"file: {file.path}: {decimal(file.bytes)}{holds}"


def _options(options: object) -> list[tuple[str, object]]:
    return list(options.items()) if isinstance(options, dict) else []


def comparison_lines(found: Comparison, one: str, other: str) -> Iterator[str]:
    """Yield where two files differ first, and what was not compared."""
    for words in found.not_compared:
        yield f"not compared: {words}"
    if found.difference is None:
        yield f"equal: {one} and {other}"
    else:
        yield f"different: {one} (here) and {other} (there): {found.difference}"
