"""`corpus inspect`: what a shard or a token file is, before anything is built on it."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from corpus_platform.commands.opening import config_option, reading_project
from corpus_platform.config import Fields
from corpus_platform.console import say, standard_output
from corpus_platform.console_inspect import inspection_json, inspection_lines
from corpus_platform.console_token_files import (
    artifact_lines,
    comparison_lines,
    exported_lines,
    token_json,
    token_lines,
)
from corpus_platform.errors import UsageError
from corpus_platform.formats.shard import ShardRecords
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.inspection import inspect_shard, open_members
from corpus_platform.stages.members import member_names
from corpus_platform.stages.token_files import (
    Subject,
    as_wide,
    find_subjects,
    read_artifact,
    read_exported,
)
from corpus_platform.stages.token_inspection import compare_tokens, inspect_tokens

__all__ = ["inspect"]

INSPECTED_RECORDS = 10_000


@click.command()
@config_option
@click.argument("path")
@click.option("--all", "every", is_flag=True, help="Judge all records, not only the first 10,000.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Token files: a tokenizer.json to decode with, and to hold ids against.",
)
@click.option(
    "--vocab-size",
    type=click.IntRange(min=1),
    help="Token files: ids that there are; others are faults.",
)
@click.option(
    "--dtype",
    type=click.Choice(["uint8", "uint16", "uint32", "int32"]),
    help="Token files: how wide ids are, where the file does not say.",
)
@click.option(
    "--against",
    metavar="OTHER",
    help="Token files: compare with another one, of any format, and say where they differ first.",
)
def inspect(
    config_file: Path,
    path: str,
    tokenizer: Path | None,
    vocab_size: int | None,
    dtype: str | None,
    against: str | None,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Show what a shard or a token file is, and what is wrong in it.

    PATH is a file, the folder of an artifact, a release or an export, or a shard as `corpus status`
    names it. Of a shard: container, columns, rows, what cannot be read and why, how long texts are,
    which languages they seem to be in, how many seem garbled or to hold HTML, and how three
    documents begin. Of a token file of any format: header, type of ids, tokens, documents and how
    long they are, largest id, end tokens, mask, faults, and with a tokenizer how documents begin.
    """
    subjects = find_subjects(Path(path), dtype=dtype)
    if subjects is not None:
        if every:
            raise UsageError("--all is for shards of text; a token file is read as a whole")
        if dtype is not None and Path(path).is_dir():
            raise UsageError(f"--dtype: the files of {path} say how wide ids are; leave it out")
        asked = _Asked(path, tokenizer, vocab_size, dtype, as_json)
        sys.exit(_inspect_tokens(asked, subjects) if against is None else _compare(asked, subjects, against))  # fmt: skip
    of_tokens = {"--tokenizer": tokenizer, "--vocab-size": vocab_size, "--dtype": dtype, "--against": against}  # fmt: skip
    if given := [option for option, value in of_tokens.items() if value is not None]:
        raise UsageError(f"{given[0]} is for token files, and {path} is none that is known")
    _inspect_shard(config_file, path, every=every, as_json=as_json)


def _inspect_shard(config_file: Path, shard: str, *, every: bool, as_json: bool) -> None:
    members, fields, records = _opened(config_file, shard)
    limit = None if every else INSPECTED_RECORDS
    found = inspect_shard(members, records, limit=limit)
    if as_json:
        _print_json(inspection_json(found))
    else:
        for line in inspection_lines(found, fields, limit=limit):
            say(standard_output(), line)
    if found.failure is not None:
        sys.exit(1)


def _print_json(value: object) -> None:
    whole = json.dumps(value, indent=1, ensure_ascii=False)
    # A name of a file that is not UTF-8 has lone surrogates, whose escapes are those of JSON.
    click.echo(whole.encode("utf-8", "backslashreplace"))


class _Asked(NamedTuple):
    path: str
    tokenizer: Path | None
    vocab_size: int | None
    dtype: str | None
    as_json: bool


def _inspect_tokens(asked: _Asked, subjects: Sequence[Subject]) -> int:
    """Show an artifact, an export, or a token file; return the exit code."""
    console = standard_output()
    lines, damaged = _about(Path(asked.path))
    found = [
        inspect_tokens(
            subject, tokenizer=asked.tokenizer, vocab_size=asked.vocab_size, progress=_reading
        )
        for subject in (() if damaged else subjects)
    ]
    if asked.as_json:
        _print_json({"faults": damaged, "files": [token_json(one) for one in found]})
    else:
        for line in [*lines, *(f"fault: {fault}" for fault in damaged)]:
            say(console, line)
        for one in found:
            for line in token_lines(one):
                say(console, line)
    return 1 if damaged or any(one.faults for one in found) else 0


def _about(path: Path) -> tuple[list[str], list[str]]:
    """Return what a folder is by its manifest or export.json, in lines, and what is damaged."""
    if (artifact := read_artifact(path)) is not None:
        return list(artifact_lines(artifact[0])), artifact[1]
    if (export := read_exported(path)) is not None:
        return list(exported_lines(export[0])), export[1]
    return [], []


def _reading(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done / total:4.0%}", nl=done == total, err=True)


def _compare(asked: _Asked, subjects: Sequence[Subject], against: str) -> int:
    """Show where two token files differ first; return the exit code."""
    others = find_subjects(Path(against)) or []
    if len(subjects) != 1 or len(others) != 1:
        name = asked.path if len(subjects) != 1 else against
        raise UsageError(f"--against compares two token files, and {name} is not one; name files")
    if asked.tokenizer is not None or asked.vocab_size is not None:
        raise UsageError("--against compares, and takes no tokenizer and no vocabulary")
    other = others[0] if asked.dtype is None else as_wide(others[0], asked.dtype)
    found = compare_tokens(subjects[0], other)
    if asked.as_json:
        _print_json(dataclasses.asdict(found))
    else:
        for line in comparison_lines(found, asked.path, against):
            say(standard_output(), line)
    return 1 if found.difference is not None else 0


def _opened(config_file: Path, shard: str) -> tuple[list[Path], Fields, ShardRecords]:
    """Return the files of a shard, the names of its fields, and its records.

    A path needs no settings; where there are some, their limits and the first source's fields hold.
    """
    path, is_file = Path(shard), Path(shard).is_file()
    if is_file and not config_file.exists():
        return [path], Fields(), open_members(None, [path], Fields(), shard=shard)
    if not config_file.exists():
        raise UsageError(
            f"{shard!r} is no file, and no folder of an artifact or an export; of shards only"
            f" settings tell, and {config_file} is not there: name it with --config"
        )
    effective = load_settings(config_file)
    if is_file:
        fields = effective.sources[0].fields
        return [path], fields, open_members(effective, [path], fields, shard=shard)
    project = reading_project(effective)
    if shard not in project.shards():
        raise UsageError(
            f"{shard!r} is neither a file nor a shard; name a file, or a shard as `corpus status` does"
        )
    entry = project.shard(shard)
    stored = project.artifact("raw_shards", shard)
    if stored is not None:
        members = [stored.path(name) for name in member_names(entry)]
    else:
        members = [Path(m.location) for m in entry.members if m.path is not None]
    if len(members) < len(entry.members):
        raise UsageError(f"{shard} is not stored yet; fetch it first: corpus fetch {shard}")
    records = open_members(project.settings, members, entry.fields, shard=shard)
    return members, entry.fields, records
