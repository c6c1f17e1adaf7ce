"""`corpus tokens`: what the corpus is in tokens, before any are packed."""

import json
import sys
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_tokens import tokens_json, tokens_lines, tokens_table
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.token_counts import count_tokens
from corpus_platform.stages.tokenizer import TOKENIZER_FILE

__all__ = ["tokens"]


@click.command()
@config_option
@click.argument("shard", nargs=-1)
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A tokenizer.json to count with.  [default: the corpus's own]",
)
@click.option("--by-shard", is_flag=True, help="A row for each shard instead of each crawl.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tokens(
    config_file: Path,
    shard: tuple[str, ...],
    tokenizer: Path | None,
    *,
    by_shard: bool,
    as_json: bool,
) -> None:
    """Count tokens by language and state, without writing any.

    Of all shards, or only of each SHARD, named as `corpus status` names it. Counts cleaned
    documents, and those of them that dedup keeps, in train and validation.
    """
    project = open_project(load_settings(config_file), read_only=True)
    found = count_tokens(
        project,
        shard or list(project.shards()),
        tokenizer=None if tokenizer is None else tokenizer.read_bytes(),
        name=TOKENIZER_FILE if tokenizer is None else str(tokenizer),
        choice=project.settings.run.encoder,
        progress=_counting,
    )
    if as_json:
        click.echo(json.dumps(tokens_json(found), indent=1))
        return
    console = standard_output()
    console.print(tokens_table(found, by_shard=by_shard))
    for line in tokens_lines(found):
        say(console, line)


def _counting(done: int, total: int | None) -> None:
    if total and sys.stderr.isatty():
        click.echo(f"\r{done / total:4.0%}", nl=done == total, err=True)
