"""`corpus gc`: releases, generations and leftovers that nobody wants any more go."""

from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_collecting import (
    collected_line,
    collected_lines,
    found_lines,
    kept_lines,
)
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.collecting import KINDS, collect, look

__all__ = ["gc"]


@click.command()
@config_option
@click.option("--dry-run", is_flag=True, help="Only say what would go and what stays, and why.")
@click.option(
    "--releases", is_flag=True, help="Releases that are neither in force, pinned nor new enough."
)
@click.option(
    "--artifacts",
    is_flag=True,
    help="Generations that nothing wants, and of which no kept release was made.",
)
@click.option("--scratch", is_flag=True, help="What killed processes left behind.")
def gc(config_file: Path, *, dry_run: bool, releases: bool, artifacts: bool, scratch: bool) -> None:
    """Remove what nobody wants any more.

    Releases beyond the newest `release.keep`, old generations of artifacts, and leftovers; with
    options only those. What is wanted now, in force, pinned (corpus pin), among the newest, or went
    into such a release stays. Exports are never touched. Ends with 3 while a run or an export is at work.
    """
    asked = {"releases": releases, "artifacts": artifacts, "scratch": scratch}
    kinds = [kind for kind in KINDS if asked[kind]] or list(KINDS)
    console = standard_output()
    project = open_project(load_settings(config_file), read_only=dry_run)
    if dry_run:
        found = look(project, kinds)
        for line in (*kept_lines(found), *found_lines(found)):
            say(console, line)
        return
    gone = []
    for item in collect(project, kinds):
        say(console, collected_line(item))
        gone.append(item)
    for line in collected_lines(gone):
        say(console, line)
