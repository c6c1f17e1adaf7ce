"""The commands about what is stored of sources: fetch, verify, lock and retire."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import printable, say, standard_output
from corpus_platform.console_fetch import FetchView
from corpus_platform.errors import CorpusError, UsageError, place
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.fetching import Outcome, fetch_all, list_shards, shards_to_fetch
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source
from corpus_platform.stages.source_lock import lock_path, verify_lock, write_lock
from corpus_platform.stages.source_manifest import (
    differs_from_file,
    source_manifest,
    source_manifest_path,
    write_source_manifest,
)
from corpus_platform.stages.verifying import verify_all

__all__ = ["fetch", "lock", "retire", "verify"]


@click.command()
@config_option
@click.argument("shard", nargs=-1)
@click.option(
    "--resume-only",
    is_flag=True,
    help="Begin no download that has nothing here to go on with; such a shard is refused.",
)
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep downloads in this folder, whole ones too, and take from it what is there.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    help="Shards to fetch side by side.  [default: download.jobs of the settings]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Fetch at most so many shards; further new ones are not registered.",
)
def fetch(
    config_file: Path,
    shard: tuple[str, ...],
    cache_dir: Path | None,
    jobs: int | None,
    limit: int | None,
    *,
    resume_only: bool,
) -> None:
    """Download and verify shards, and do no more.

    All that the sources list, or only each SHARD, named as `corpus status` names it. What is there
    and whole is not fetched again; what was interrupted goes on where it ended. Writes
    source-manifest.json into the storage folder.
    """
    effective = load_settings(config_file)
    if cache_dir is not None:
        chosen = {"cache_dir": str(cache_dir.absolute())}
        changed = effective.download.model_copy(update=chosen)
        effective = effective.model_copy(update={"download": changed})
    project, console = open_project(effective), standard_output()
    wanted = shards_to_fetch(project, shard, limit)
    write_source_manifest(project)
    failed: list[Outcome] = []
    with FetchView(console, wanted) as view:
        outcomes = fetch_all(
            effective,
            wanted,
            jobs=jobs or effective.download.jobs,
            progress=view.progressed,
            resume_only=resume_only,
        )
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                view.ended(outcome)
                failed += [outcome] if outcome.report is None else []
    manifest = write_source_manifest(project)
    left = f", {len(failed)} not" if failed else ""
    others = manifest.shards.keys() - {s.key for s in wanted}
    whole = sum(manifest.shards[key]["state"] == "stored" for key in others)
    say(console, f"{len(wanted) - len(failed)} shards fetched{left}; {whole} were there before")
    say(console, f"{source_manifest_path(project)}: sha256 {manifest.sha256}")
    sys.exit(max((_code_of(outcome) for outcome in failed), default=0))


def _code_of(outcome: Outcome) -> int:
    """Return the exit code that a shard calls for which could not be fetched."""
    if isinstance(outcome.error, UsageError):
        return 1  # refused by --resume-only
    return outcome.error.exit_code if isinstance(outcome.error, CorpusError) else 3


@click.command()
@config_option
@click.option(
    "--locked",
    is_flag=True,
    help="Compare stored shards and the source manifest with corpus.lock instead; both ways.",
)
def verify(config_file: Path, *, locked: bool) -> None:
    """Hash every stored file again and compare with what is recorded.

    Looks at the files of all artifacts and releases, old ones too, at what names the ones in force,
    at the sources and at the lock; several files at once. Ends with 1 when anything is not as
    recorded; `corpus run` then makes again what it can.
    """
    project = open_project(load_settings(config_file))
    if locked:
        _verify_locked(project)
        return
    count, faults = verify_all(project, progress=_hashing())
    for fault in faults:
        click.echo(printable(f"{place(fault.asset, fault.partition)}: {fault.reason}"))
    click.echo(f"{count} artifacts verified, {len(faults)} not as recorded")
    if faults:
        click.echo("`corpus run` repairs what can be made again")
        sys.exit(1)


def _verify_locked(project: Project) -> None:
    manifest = source_manifest(project)
    differing = [
        f"{shard or lock_path(project)}: {reason}"
        for shard, reason in verify_lock(project, manifest.sha256)
    ]
    if (stale := differs_from_file(project, manifest)) is not None:
        differing.append(stale)
    for line in differing:
        click.echo(printable(line))
    click.echo(
        f"{len(project.shards())} shards held against the lock, {len(differing)} differences"
    )
    if differing:
        sys.exit(1)


def _hashing() -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{done} of {total}", nl=done == total, err=True)

    return progress


@click.command()
@config_option
@click.option(
    "--accept",
    metavar="SHARD",
    help="Take the present bytes of this shard's source as its next generation, and the shard out of the lock.",
)
def lock(config_file: Path, accept: str | None) -> None:
    """Pin the hashes of all stored shards in corpus.lock.

    The file lies beside the settings and belongs into your version control. While it is there, a
    shard with other bytes is refused.
    """
    effective = load_settings(config_file)
    project = open_project(effective)
    if accept is not None:
        project.registry.register(list_shards(project))  # they may have moved
        shard = accept_source(project, accept)
        click.echo(
            f"{accept}: the source's bytes count as generation {shard.generation} from now on;"
            " `corpus run` takes them, and `corpus lock` after it pins them"
        )
        return
    count = write_lock(project, write_source_manifest(project).sha256)
    click.echo(f"{lock_path(project)}: {count} shards")
    if left := [k for k in project.shards() if project.artifact("raw_shards", k) is None]:
        more = f" and {len(left) - 3:,} more" if len(left) > 3 else ""
        click.echo(
            f"warning: not stored, and so not locked: {', '.join(map(printable, left[:3]))}{more};"
            " lock again after `corpus run`"
        )


@click.command()
@config_option
@click.argument("shard")
@click.option("--undo", is_flag=True, help="Take a retired shard in again.")
def retire(config_file: Path, shard: str, *, undo: bool) -> None:
    """Take a shard out of the corpus, whatever its source lists.

    The next `corpus run` makes a release without SHARD, which is named as `corpus status` names it.
    Its files stay, and so do releases that have it in them.
    """
    effective = load_settings(config_file)
    project = open_project(effective)
    registry = project.registry
    if shard not in registry.all():  # it may be listed, and new
        registry.register(list_shards(project))
    registry.retire(shard, retired=not undo)
    if undo:
        click.echo(f"{shard}: taken in again; `corpus run` brings it up to date")
    else:
        click.echo(
            f"{shard}: retired; `corpus run` makes a release without it. Its files stay; to take it"
            f" in again: corpus retire --undo {shard}"
        )
