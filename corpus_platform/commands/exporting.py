"""`corpus export`: a release as files of another format, or an export hashed again."""

import re
import sys
from pathlib import Path
from typing import Literal

import click

from corpus_platform.commands.opening import config_option
from corpus_platform.console import printable, say, standard_output
from corpus_platform.console_export import ExportView, export_lines, validation_lines
from corpus_platform.errors import UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.export_formats import ACCEPTABLE, FORMATS, FormatName
from corpus_platform.stages.export_validation import validate_export
from corpus_platform.stages.exporting import ExportOptions, export_release

__all__ = ["export"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class _Size(click.ParamType):
    """A number of bytes: 67108864, 64M or 64MiB."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+)([KMG]?)(?:iB)?", value, re.ASCII)
        if found is None:
            self.fail(f"{value!r} is no size such as 64MiB", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


@click.command()
@config_option
@click.argument("release", required=False)
@click.option(
    "--format",
    "name",
    type=click.Choice(FORMATS),
    help="The format to write; docs/exports.md says what each can hold.",
)
@click.option(
    "--to",
    metavar="PLACE",
    help="A folder, or s3://bucket/prefix.  [default: exports/RELEASE-FORMAT in the storage folder]",
)
@click.option(
    "--single-file",
    is_flag=True,
    help="Join the files of a split into one; llm.c's as far as its limit of 2^31 tokens lets.",
)
@click.option(
    "--accept-loss",
    type=click.Choice(ACCEPTABLE),
    multiple=True,
    help="Export though the format cannot hold this, and training goes another way; repeat for more.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    help="HDF5: tokens that training reads at a time.  [default: pack.sequence_length]",
)
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    help="HDF5: tokens of a chunk, a multiple of the window.  [default: the largest up to 65,536]",
)
@click.option("--compression", type=click.Choice(["gzip"]), help="HDF5: pack the chunks.")
@click.option(
    "--validate",
    is_flag=True,
    help="Hash all files again and compare; with --to and without RELEASE an export that is there.",
)
@click.option(
    "--local-scratch",
    type=click.Path(file_okay=False, path_type=Path),
    help="S3: where files are written before they are sent.  [default: exports in the storage folder]",
)
@click.option(
    "--upload-block-size",
    type=_Size(),
    help="S3: bytes that are sent at a time.  [default: 64MiB]",
)
def export(
    config_file: Path,
    release: str | None,
    name: FormatName | None,
    to: str | None,
    accept_loss: tuple[str, ...],
    window: int | None,
    chunk: int | None,
    compression: Literal["gzip"] | None,
    local_scratch: Path | None,
    upload_block_size: int | None,
    *,
    single_file: bool,
    validate: bool,
) -> None:
    """Write a release as files of another format.

    RELEASE is `current`, `previous`, or the id of a release or its beginning. Each file is read again by the
    format's own reader, and held against the release, before it gets its name; export.json comes
    last. Interrupted or killed, the same command goes on where it ended; a finished export is left
    as it is. What a format cannot hold is printed, and refused where training would go by it.
    """
    options = ExportOptions(
        to=to,
        single_file=single_file,
        accept_loss=frozenset(accept_loss),
        window=window,
        chunk=chunk,
        compression=compression,
        local_scratch=local_scratch,
        upload_block_bytes=upload_block_size,
    )
    if release is None and validate and name is None:
        _validate_alone(options)
        return
    settings = load_settings(config_file)
    if release is None or name is None:
        raise UsageError(
            "what is to be exported, and as what? corpus export current --format"
            f" {{{','.join(FORMATS)}}}"
        )
    if validate and options.is_remote:
        raise UsageError("--validate reads files of this machine; validate a copy of the export")
    project, console = open_project(settings), standard_output()
    if options.is_remote and local_scratch is None:
        folder = project.settings.storage_path / "exports"
        click.echo(
            f"warning: files are written to {printable(str(folder))} before they are sent;"
            " --local-scratch names another disk",
            err=True,
        )
    with ExportView(console) as view:
        report = export_release(
            project,
            release,
            name,
            options,
            progress=view.progressed,
            waiting=view.waiting,
            collecting=view.collecting,
        )
    for line in export_lines(report):
        say(console, line)
    if validate:
        _validated(Path(report.where))


def _validate_alone(options: ExportOptions) -> None:
    if options.to is None or "://" in options.to:
        raise UsageError("--validate: which export? Name its folder with --to")
    if options != ExportOptions(to=options.to):
        raise UsageError("--validate without RELEASE goes with --to alone; leave the others out")
    _validated(Path(options.to))


def _validated(folder: Path) -> None:
    console = standard_output()
    with ExportView(console) as view:
        count, faults = validate_export(folder, progress=view.hashed)
    for line in validation_lines(count, faults):
        say(console, line)
    if faults:
        sys.exit(1)
