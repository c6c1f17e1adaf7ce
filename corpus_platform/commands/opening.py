"""What several commands share: the option that names the settings, and a project that only reads."""

import contextlib
import os
import resource
from pathlib import Path

import click

from corpus_platform.config import Settings
from corpus_platform.console import printable
from corpus_platform.errors import StorageError
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Project
from corpus_platform.storage.registry import Shard

__all__ = ["config_option", "reading_project", "take_open_files"]

OPEN_FILES = 65_536

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    default=lambda: os.environ.get("CORPUS_CONFIG", "corpus.yaml"),
    show_default="$CORPUS_CONFIG, else corpus.yaml",
    help="The settings file. Paths in it are relative to it.",
)


def take_open_files() -> None:
    """Have this process and its children open up to OPEN_FILES files, as far as the machine lets them.

    The audit of a release maps all its files at once, and 1,024, the usual limit, are 300 of them.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def reading_project(settings: Settings) -> Project:
    """Return a project that writes nothing, with what the sources list now already counted in."""
    project = open_project(settings, read_only=True)
    shards = project.registry.merged(_listed(project))
    return open_project(settings, shards=shards, read_only=True)


def _listed(project: Project) -> list[Shard]:
    """Return what the sources list; where a network is down, the registered shards have to do."""
    try:
        return list_shards(project, hurried=True)
    except StorageError as error:
        if not project.registry.keys():
            raise
        words = printable(str(error))
        click.echo(f"warning: the sources cannot be listed now: {words}", err=True)
        return []
