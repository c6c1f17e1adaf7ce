"""`corpus tokenizer`: the tokenizer in force, and another one trained in its place."""

import json
import sys
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_tokenizer import (
    due_lines,
    languages_table,
    retrained_lines,
    tokenizer_json,
    tokenizer_lines,
)
from corpus_platform.errors import UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.retraining import current_packs, in_force, retrain

__all__ = ["tokenizer"]


@click.group(invoke_without_command=True)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def tokenizer(context: click.Context, config_file: Path, *, as_json: bool) -> None:
    """Show the tokenizer in force, or train another one.

    Shown are the file, its vocabulary, what it was trained on, and characters and bytes per token of
    each language, as measured on kept documents when it was made. Ends with 1 where there is none yet.
    """
    if context.invoked_subcommand is not None:
        if context.get_parameter_source("config_file") == click.core.ParameterSource.COMMANDLINE:
            context.default_map = {context.invoked_subcommand: {"config_file": str(config_file)}}
        return
    found = in_force(open_project(load_settings(config_file), read_only=True))
    if as_json:
        click.echo(json.dumps(tokenizer_json(found), indent=1, ensure_ascii=False))
        return
    console = standard_output()
    for line in tokenizer_lines(found):
        say(console, line)
    console.print(languages_table(found))


@tokenizer.command("retrain")
@config_option
@click.option("--yes", is_flag=True, help="Do not ask; must be given where nobody can be asked.")
def retrain_command(config_file: Path, *, yes: bool) -> None:
    """Train a new tokenizer on the corpus as it is now, in place of the frozen one.

    Says first what becomes due: the packs of all shards, and a release of them, which the next
    `corpus run` makes. Releases that are there stay as they are and can be read, each with the
    tokenizer that it was made by. Settings for the training are those under `tokenizer:`.
    """
    project, console = open_project(load_settings(config_file)), standard_output()
    found = in_force(project)
    if found.is_of_now:
        say(
            console, "it was trained on the corpus as it is now: training again would give the same"
        )
        return
    for line in due_lines(found, current_packs(project)):
        say(console, line)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody can be asked here; to train a new tokenizer add --yes")
        click.confirm("Train a new tokenizer?", abort=True)
    for line in retrained_lines(retrain(project, progress=_training)):
        say(console, line)


def _training(done: int, total: int | None) -> None:
    if total and sys.stderr.isatty():
        click.echo(f"\rread {done / total:4.0%}", nl=done == total, err=True)
