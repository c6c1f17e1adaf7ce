"""`corpus explain`: the whole story of a document, or of a token of a release."""

import json
import sys
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_explain import explain_json, explain_lines
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.explaining import explain as explain_document

__all__ = ["explain"]

MANY = 100  # shards, from which on indexing them takes long enough to be told of


@click.command()
@config_option
@click.argument("what")
@click.option(
    "--release",
    metavar="ID",
    help="A release: its id or its beginning, `current`, or `previous`.  [default: the one in force]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(config_file: Path, what: str, release: str | None, *, as_json: bool) -> None:
    """Tell the whole story of a document or a token.

    WHAT is the id or URL of a document, SHARD:ROW, or FILE:OFFSET of a release: a token file and a
    number of tokens, from 0. Shown are source and line, the rule that dropped it or why it cannot be
    read, the document that it is a copy of and how similar that is, split, tokens, and where it lies
    in the release. Ends with 1 where there is no such document or token.
    """
    project = open_project(load_settings(config_file), read_only=True)
    found = explain_document(project, what, release=release, progress=_looking)
    if as_json:
        whole = json.dumps(explain_json(found), indent=1, ensure_ascii=False)
        click.echo(whole.encode("utf-8", "backslashreplace"))
    else:
        console = standard_output()
        for line in explain_lines(found):
            say(console, line)
    if not found.found:
        sys.exit(1)


def _looking(done: int, total: int) -> None:
    if total >= MANY and sys.stderr.isatty():
        click.echo(f"\r{done / total:4.0%}", nl=done == total, err=True)
