"""`corpus pin`: releases that no collection takes."""

from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import say, standard_output
from corpus_platform.console_collecting import pin_lines
from corpus_platform.errors import UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.release_pins import pin_release, read_pins, unpin_release

__all__ = ["pin"]


@click.command()
@config_option
@click.argument("release", required=False)
@click.option(
    "--name", help="Of the pin, such as that of a training run.  [default: the release's id]"
)
@click.option("--remove", is_flag=True, help="Take all pins of RELEASE away, or the one of --name.")
def pin(config_file: Path, release: str | None, name: str | None, *, remove: bool) -> None:
    """Pin a release, so that no collection takes it.

    RELEASE is `current`, `previous`, or the id of a release or its beginning. What it was made of stays too, so
    that it can be exported in any format. Without RELEASE the pins are listed.
    """
    project, console = open_project(load_settings(config_file)), standard_output()
    if release is None:
        if name is not None or remove:
            raise UsageError("which release? corpus pin RELEASE [--name NAME] [--remove]")
        for line in pin_lines(read_pins(project)):
            say(console, line)
        return

    def waiting(holder: str) -> None:
        say(console, f"pins are in use ({holder}); waiting")

    if remove:
        for gone, found in unpin_release(project, release, name, waiting=waiting):
            say(console, f"release {found}: pin {gone} is taken away")
        return
    name, found = pin_release(project, release, name, waiting=waiting)
    for line in pin_lines({name: found}):
        say(console, line)
