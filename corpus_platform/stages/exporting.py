"""A release -> token files of another format, a folder or a prefix of S3 with export.json last.

Each file is written under another name, read again by the format's own reader and held against the
release, and then gets its name: a killed export leaves nothing half, and the same call goes on.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal  # Any: clients of boto3 have no type

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.shards_json import NAME as INDEX_NAME
from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.export_formats import (
    FORMATS,
    STREAMS,
    TOKENIZER_NAME,
    FormatName,
    Lost,
    check_accepted,
    losses,
    notes,
)
from corpus_platform.stages.export_json import Finished, export_json, read_export
from corpus_platform.stages.export_plan import Part, Told
from corpus_platform.stages.export_prefix import Prefix
from corpus_platform.stages.export_shards import (
    Hdf5Options,
    hdf5_indexes,
    hdf5_parts,
    parquet_parts,
)
from corpus_platform.stages.export_streams import stream_parts
from corpus_platform.stages.export_target import (
    EXPORT_NAME,
    ExportedFile,
    Folder,
    State,
    Target,
    export_hashes,
    held,
)
from corpus_platform.stages.pinned_release import Counts, PinnedRelease, find_release
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_pins import pins_lease
from corpus_platform.storage import lease

__all__ = ["UPLOAD_BLOCK_BYTES", "ExportOptions", "ExportReport", "Progress", "export_release"]

UPLOAD_BLOCK_BYTES = 64 << 20
Progress = Callable[[str, int, int], None]  # what is done now, units done, units in all
Waiting = Callable[[str], None]  # who is waited for


@dataclass(frozen=True)
class ExportOptions:
    """How a release is exported; None where a format's default holds.

    `to` is a folder or s3://bucket/prefix. `window`, `chunk` (tokens) and `compression` are of
    HDF5, `single_file` of the other token files; `local_scratch` and `upload_block_bytes` of S3.
    """

    to: str | None = None
    single_file: bool = False
    accept_loss: frozenset[str] = frozenset()
    window: int | None = None
    chunk: int | None = None
    compression: Literal["gzip"] | None = None
    local_scratch: Path | None = None
    upload_block_bytes: int | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it goes to S3."""
        return self.to is not None and self.to.startswith("s3://")

    def check(self, name: str) -> None:
        """Raise UsageError for an option that the format or the target does not know."""
        if name not in FORMATS:
            raise UsageError(f"no format {name!r}; formats are {', '.join(FORMATS)}")
        of_hdf5 = {
            "--window": self.window,
            "--chunk": self.chunk,
            "--compression": self.compression,
        }
        of_s3 = {"--local-scratch": self.local_scratch, "--upload-block-size": self.upload_block_bytes}  # fmt: skip
        wrong = [
            option for option, value in of_hdf5.items() if value is not None and name != "hdf5"
        ]
        wrong += ["--single-file"] if self.single_file and name not in STREAMS else []
        if wrong:
            raise UsageError(f"{wrong[0]}: {name} knows no such option; leave it out")
        if not self.is_remote and (given := [o for o, v in of_s3.items() if v is not None]):
            raise UsageError(f"{given[0]}: is for exports to s3://bucket/prefix; leave it out")
        if self.to is not None and "://" in self.to and not re.match("s3://[^/]", self.to):
            raise UsageError(f"--to {self.to}: a folder or s3://bucket/prefix is wanted")


@dataclass(frozen=True)
class ExportReport:
    """What an export came to: `written` of its `files` were made now.

    `counts` are those of the release, with its rows of `row_tokens`, and of texts without tokens.
    `was_finished` says that this very export was there, whole, and nothing was done; `damaged` what
    was wrong with files that had been made before, and were made again.
    """

    release: str
    format: FormatName
    where: str
    files: tuple[ExportedFile, ...]
    written: int
    lost: tuple[Lost, ...]
    notes: tuple[str, ...]
    counts: Counts
    row_tokens: int | None
    was_finished: bool
    damaged: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)


def export_release(
    project: Project,
    release: str,
    name: FormatName,
    options: ExportOptions | None = None,
    *,
    progress: Progress = lambda what, done, total: None,
    waiting: Waiting | None = None,
    collecting: Waiting | None = None,
) -> ExportReport:
    """Export a release, given by its id, the beginning of it or `current`, to a format.

    What an earlier call has made stays. `waiting` hears of another process that exports to the same
    place, `collecting` of one that removes releases or pins one. Raises UsageError for what cannot be, or would lose what is not accepted, Uncleared for a
    release that may not be read, StageFailed for a file that differs when it is read again.
    """
    options = options or ExportOptions()
    options.check(name)
    found = _found(project, release, collecting)
    lost = losses(name, found, sorted(options.accept_loss))
    check_accepted(name, lost)
    target = _target(project, found, name, options)
    with held(project.settings.storage_path, target.where, waiting):
        try:  # what was found may have gone until here; from here on no collection begins
            found = _found(project, found.id, collecting)
        except UsageError as error:
            raise UsageError(
                f"release {found.id} was removed (corpus gc) just when this export began, and nothing"
                f" was written: {error}"
            ) from error
        return _Export(project, found, name, options, target, lost).run(progress)


def _found(project: Project, release: str, collecting: Waiting | None) -> PinnedRelease:
    """Find a release while none is removed: a collection holds the pins until its end."""
    with lease.hold(pins_lease(project), waiting=collecting):
        return find_release(project, release)


def _target(
    project: Project, release: PinnedRelease, name: FormatName, options: ExportOptions
) -> Target:
    exports = project.settings.storage_path / "exports"
    if options.to is None:
        return _folder(project, exports / f"{release.id}-{name}")
    if not options.is_remote:
        _check_outside(Path(options.to), project.settings.storage_path, exports)
        return _folder(project, Path(options.to).absolute())
    return Prefix(
        options.to,
        options.local_scratch or exports,
        settings=project.settings.download,
        connect=lambda: _connected(project),
        block_bytes=options.upload_block_bytes or UPLOAD_BLOCK_BYTES,
    )


def _folder(project: Project, folder: Path) -> Folder:
    return Folder(folder, export_hashes(project.settings.storage_path, str(folder)))


def _check_outside(folder: Path, storage: Path, exports: Path) -> None:
    """Raise UsageError for a folder among the artifacts, where it would be taken for one."""
    real = Path(os.path.realpath(folder))
    within, free = (Path(os.path.realpath(path)) for path in (storage, exports))
    if real.is_relative_to(within) and not (real != free and real.is_relative_to(free)):
        raise UsageError(
            f"--to {folder}: lies in the storage folder {storage}, whose other folders are the"
            f" platform's own; name one in {exports}, or outside"
        )


def _connected(project: Project) -> Any:
    from corpus_platform.storage.s3 import connect

    return connect(project.settings.s3, project.settings.download)


class _Export:
    """One export: what it is, and the story of it."""

    def __init__(
        self,
        project: Project,
        release: PinnedRelease,
        name: FormatName,
        options: ExportOptions,
        target: Target,
        lost: Sequence[Lost],
    ) -> None:
        self._project, self._release, self._name = project, release, name
        self._target, self._lost = target, tuple(lost)
        self._single = options.single_file
        self._hdf5 = Hdf5Options.of(
            release,
            project.settings.pack.sequence_length,
            window=options.window,
            chunk=options.chunk,
            compression=options.compression,
        )
        self._written = self._done = 0
        self._damaged = list[str]()

    def run(self, progress: Progress) -> ExportReport:
        """Make what is not there, and say at last that all is."""
        before = self._before()
        if before is not None and before.identity == self._identity(whole=True):
            files = list(before.files.values())
            looks = (self._faults([f], progress, i, len(files)) for i, f in enumerate(files))
            if not any(looks):
                self._target.close(finished=True)
                return self._report(files, was_finished=True)
        state = State(self._target.state_path)
        self._check_same(before, state)
        known = {**(before.files if before else {}), **state.files}
        self._target.check_free(known)
        parts = [self._tokenizer(), *self._parts()]
        finished = False
        try:
            self._begin(state, known, changes_release=before is not None)
            total = sum(2 * part.units for part in parts)
            files = [
                file for part in parts for file in self._made(part, known, state, progress, total)
            ]
            files += self._indexes(files, known)
            options = self._identity(whole=True)["options"]
            data = export_json(self._release, self._name, options, files, self._lost)
            self._target.put(EXPORT_NAME, data)
            finished = True
        finally:
            self._target.close(finished=finished)
        return self._report(files, was_finished=False)

    def _before(self) -> Finished | None:
        """Return what export.json says of an export that was finished here."""
        data = self._target.read(EXPORT_NAME)
        return None if data is None else read_export(data, f"{self._target.where}/{EXPORT_NAME}")

    def _identity(self, *, whole: bool = False) -> dict[str, object]:
        """Return what all that is in one place has in common; of HDF5 releases may follow."""
        if self._name == "hdf5" and not whole:
            return {"format": self._name}
        options = self._hdf5._asdict() if self._name == "hdf5" else {"single_file": self._single}
        return {"format": self._name, "release": self._release.content, "options": options}

    def _check_same(self, before: Finished | None, state: State) -> None:
        mine = self._identity()
        there = before.identity if before is not None else state.identity
        if there is None or {key: there.get(key) for key in mine} == mine:
            return
        kind = "a finished export" if before is not None else "an export that is not finished"
        raise UsageError(
            f"{self._target.where}: holds {kind}, and this one differs from it:"
            f" {'; '.join(_differences(there, mine))}; name another place with --to, or delete what"
            " is there"
        )

    def _begin(
        self, state: State, known: Mapping[str, ExportedFile], *, changes_release: bool
    ) -> None:
        """Clear what a killed export left, and note what this one is."""
        self._target.close(finished=False)
        try:
            self._target.scratch.mkdir(parents=True)
            state.begin(self._target.scratch, self._identity(), list(known.values()))
        except OSError as error:
            raise StorageError(
                f"{self._target.scratch.parent}: nothing can be written there: {error}; name another"
                " place, or make room"
            ) from error
        if changes_release and self._name != "hdf5":  # it is damaged, and is made whole again
            self._target.remove(EXPORT_NAME)

    def _parts(self) -> list[Part]:
        if self._name == "hdf5":
            return hdf5_parts(self._project, self._release, self._hdf5)
        if self._name == "parquet":
            return parquet_parts(self._project, self._release)
        return stream_parts(self._release, STREAMS[self._name], single=self._single)

    def _tokenizer(self) -> Part:
        def write(folder: Path, told: Told) -> list[ExportedFile]:
            shutil.copyfile(self._release.tokenizer, folder / TOKENIZER_NAME)
            return [ExportedFile.of(folder / TOKENIZER_NAME, TOKENIZER_NAME)]

        def differs(folder: Path, told: Told) -> str | None:
            same = (folder / TOKENIZER_NAME).read_bytes() == self._release.tokenizer.read_bytes()
            return None if same else "it is not the release's"

        return Part((TOKENIZER_NAME,), 0, write, differs)

    def _made(
        self,
        part: Part,
        known: Mapping[str, ExportedFile],
        state: State,
        progress: Progress,
        total: int,
    ) -> list[ExportedFile]:
        """Return the files of a part, after writing those that are not there."""
        there = [known[name] for name in part.names if name in known]
        same = part.names != (TOKENIZER_NAME,) or self._is_tokenizer(there)
        if len(there) == len(part.names) and same:
            faults = self._faults(there, progress, self._done, total)
            self._damaged += faults
            if not faults:
                self._done += 2 * part.units
                progress(f"{part.names[0]} is there", self._done, total)
                return there
        files = self._write(part, progress, total)
        for file in files:
            self._target.publish(file, known, self._sending(file, progress, total))
        state.note(files)
        self._written += len(files)
        return files

    def _faults(
        self, files: Sequence[ExportedFile], progress: Progress, done: int, total: int
    ) -> list[str]:
        """Say in words what is wrong with files that were made before."""
        found = list[str]()
        for file in files:
            progress(f"looking at {file.path}", done, total)
            if (fault := self._target.fault(file)) is not None:
                found.append(f"{file.path}: {fault}")
        return found

    def _sending(self, file: ExportedFile, progress: Progress, total: int) -> Callable[[int], None]:
        there = 0

        def sent(count: int) -> None:
            nonlocal there
            there += count
            progress(f"sending {file.path}: {there:,} of {file.bytes:,} bytes", self._done, total)

        return sent

    def _is_tokenizer(self, there: Sequence[ExportedFile]) -> bool:
        return [f.sha256 for f in there] == [self._release.policy.tokenizer_sha256]

    def _write(self, part: Part, progress: Progress, total: int) -> list[ExportedFile]:
        def told(verb: str) -> Told:
            def tell(units: int) -> None:
                self._done += units
                progress(f"{verb} {part.names[0]}", self._done, total)

            return tell

        scratch = self._target.scratch
        try:
            files = part.write(scratch, told("writing"))
        except OSError as error:
            path = scratch / part.names[0]
            raise StorageError(f"{path}: cannot be written: {error}; run again") from error
        difference = part.differs(scratch, told("reading again"))
        if difference is not None:
            raise StageFailed(
                f"{self._target.where}/{part.names[0]}: read again, it is not what release"
                f" {self._release.id} holds: {difference}. It was removed; run again"
            )
        return files

    def _indexes(
        self, files: Sequence[ExportedFile], known: Mapping[str, ExportedFile]
    ) -> list[ExportedFile]:
        """Publish the shards.json of an export to HDF5, when all that they name is there."""
        if self._name != "hdf5":
            return []
        found = []
        for path, data in hdf5_indexes(self._release, self._hdf5, files).items():
            staged = self._target.scratch / INDEX_NAME
            staged.write_bytes(data)
            found.append(ExportedFile.of(staged, path))
            if (fault := self._target.fault(found[-1])) is not None:
                self._damaged += [f"{path}: {fault}"] if known.get(path) == found[-1] else []
                self._target.put(path, data)
                self._written += 1
        return found

    def _counts(self) -> Counts:
        splits = [self._release.counts(split) for split in BIN_NAMES]
        found = Counts(*(sum(column) for column in zip(*splits, strict=True)))
        return Counts(found.documents, 0, 0, 0) if self._name == "parquet" else found

    def _report(self, files: Sequence[ExportedFile], *, was_finished: bool) -> ExportReport:
        return ExportReport(
            self._release.id,
            self._name,
            self._target.where,
            tuple(files),
            self._written,
            self._lost,
            tuple(notes(self._name, self._release)),
            self._counts(),
            self._release.row_tokens,
            was_finished,
            tuple(self._damaged),
        )


def _differences(there: Mapping[str, object], mine: Mapping[str, object]) -> list[str]:
    """Say in words in what an export that is there and this one differ, option by option."""
    told = list[str]()
    if there.get("format") != mine.get("format"):
        return [f"--format is {there.get('format')} there and {mine.get('format')} here"]
    if there.get("release") != mine.get("release"):
        contents = [str(one.get("release"))[:16] for one in (there, mine)]
        told.append(f"its release has the content {contents[0]}… there and {contents[1]}… here")
    options = [found if isinstance(found := one.get("options"), dict) else {} for one in (there, mine)]  # fmt: skip
    for name in sorted({*options[0], *options[1]}):
        there_is, here_is = (_option(one.get(name)) for one in options)
        if there_is != here_is:
            told.append(f"--{name.replace('_', '-')} is {there_is} there and {here_is} here")
    return told or ["it says less of itself"]


def _option(value: object) -> str:
    if value is None:
        return "not given"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
