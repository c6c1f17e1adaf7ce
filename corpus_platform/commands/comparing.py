"""`corpus diff`: what came, went and stayed between two releases, and why."""

import json
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_diff import changes_table, diff_json, diff_lines, reasons_table
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.release_diff import diff_releases

__all__ = ["diff"]


@click.command()
@config_option
@click.argument("old")
@click.argument("new")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(config_file: Path, old: str, new: str, *, as_json: bool) -> None:
    """Compare two releases.

    OLD and NEW are ids of releases or their beginnings, `current`, or `previous`. Shows documents
    and tokens that came, went, stayed or moved between the splits, by crawl and language; why they
    went, and why those that came were not there before; settings, tokenizer and shards that differ.
    """
    project = open_project(load_settings(config_file), read_only=True)
    found = diff_releases(project, old, new)
    if as_json:
        click.echo(json.dumps(diff_json(found), indent=1, ensure_ascii=False))
        return
    console = standard_output()
    for line in diff_lines(found):
        say(console, line)
    console.print(changes_table(found))
    if found.removed or found.added:
        console.print(reasons_table(found))
