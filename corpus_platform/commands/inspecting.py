"""`corpus inspect`: what a shard or a token file is, before anything is built on it."""

import json
import sys
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option, reading_project
from corpus_platform.config import Fields
from corpus_platform.console import say, standard_output
from corpus_platform.console_inspect import inspection_json, inspection_lines
from corpus_platform.errors import UsageError
from corpus_platform.formats.shard import ShardRecords
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.inspection import inspect_shard, open_members
from corpus_platform.stages.members import member_names

__all__ = ["inspect"]

INSPECTED_RECORDS = 10_000


@click.command()
@config_option
@click.argument("shard")
@click.option("--all", "every", is_flag=True, help="Judge all records, not only the first 10,000.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(config_file: Path, shard: str, *, every: bool, as_json: bool) -> None:
    """Show what a shard is, before anything is built on it.

    SHARD is the path of a file, or a shard as `corpus status` names it. Shows container, columns,
    rows, what cannot be read and why, how long texts are, which languages they seem to be in, how
    many seem garbled or to hold HTML, and how three documents begin.
    """
    members, fields, records = _opened(config_file, shard)
    limit = None if every else INSPECTED_RECORDS
    found = inspect_shard(members, records, limit=limit)
    if as_json:
        whole = json.dumps(inspection_json(found), indent=1, ensure_ascii=False)
        # A name of a file that is not UTF-8 has lone surrogates, whose escapes are those of JSON.
        click.echo(whole.encode("utf-8", "backslashreplace"))
    else:
        for line in inspection_lines(found, fields, limit=limit):
            say(standard_output(), line)
    if found.failure is not None:
        sys.exit(1)


def _opened(config_file: Path, shard: str) -> tuple[list[Path], Fields, ShardRecords]:
    """Return the files of a shard, the names of its fields, and its records.

    A path needs no settings; where there are some, their limits and the first source's fields hold.
    """
    path, is_file = Path(shard), Path(shard).is_file()
    if is_file and not config_file.exists():
        return [path], Fields(), open_members(None, [path], Fields(), shard=shard)
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
