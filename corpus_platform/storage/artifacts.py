"""The artifact store on a local disk: finds, checks and publishes artifacts.

    <root>/<asset>/<crawl>/<shard>/<generation>/    files of the artifact, manifest.json last
    <root>/catalog/<asset>.jsonl                    what planning knows without opening manifests
    <root>/leases/...                               who makes what

A generation is named by the hash of what goes in, so new content never takes an old name. An
artifact appears by one rename of its folder; what stands without a manifest does not exist.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corpus_platform.errors import StorageError
from corpus_platform.storage import lease
from corpus_platform.storage.catalog import Catalog, Entry, FileStamp, stamp
from corpus_platform.storage.files import file_sha256, flush_file, flush_folder, safe_name
from corpus_platform.storage.manifest import MANIFEST_NAME, Manifest, Output, read_manifest

__all__ = ["Artifact", "ArtifactStore", "Damage", "file_stamps"]

FOLDERS = {"shuffled_bins": "releases"}  # what a training run pins has a name of its own


@dataclass(frozen=True)
class Damage:
    """An output that is not what its manifest says; `reason` names both values."""

    name: str
    reason: str


@dataclass(frozen=True)
class Artifact:
    """A published artifact; its manifest is read when asked for."""

    folder: Path
    entry: Entry

    @property
    def content(self) -> str:
        """The hash that chains."""
        return self.entry.content

    @property
    def numbers(self) -> Mapping[str, float]:
        """What the gates look at."""
        return self.entry.numbers

    def hashes(self) -> dict[str, str]:
        """Return the recorded sha256 of each file by name."""
        if all(f.sha256 for f in self.entry.files) and self.entry.files:
            return {f.name: f.sha256 for f in self.entry.files}
        return {o.name: o.sha256 for o in self.manifest.outputs}

    def sizes(self) -> dict[str, int]:
        """Return the recorded bytes of each file by name."""
        if self.entry.files:
            return {f.name: f.bytes for f in self.entry.files}
        return {o.name: o.bytes for o in self.manifest.outputs}

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.folder / MANIFEST_NAME

    @property
    def manifest(self) -> Manifest:
        """The whole manifest."""
        return read_manifest(self.manifest_path)

    def path(self, name: str) -> Path:
        """Return where one of its files lies."""
        return self.folder / name


class ArtifactStore:
    """Artifacts under one local folder; without `remember` nothing at all is written."""

    def __init__(self, root: Path, *, remember: bool = True) -> None:
        self.root = root
        self._remember = remember
        self._catalogs: dict[str, Catalog] = {}
        self._homes: dict[tuple[str, str | None], str] = {}
        self._found: dict[tuple[str, str | None, str], Artifact | None] | None = None
        self._whole: set[Path] = set()  # folders without damage, while nothing changes

    def folder(self, asset: str, partition: str | None) -> Path:
        """Return the folder that holds all generations of an artifact."""
        return Path(self._home(asset, partition))

    def _home(self, asset: str, partition: str | None) -> str:
        """Return that folder's path; remembered, since planning asks many times for each."""
        if (asset, partition) not in self._homes:
            parts = [] if partition is None else partition.split("/", 1)
            path = os.path.join(self.root, FOLDERS.get(asset, asset), *map(safe_name, parts))
            self._homes[asset, partition] = path
        return self._homes[asset, partition]

    def generation(self, asset: str, partition: str | None, key: str) -> Path:
        """Return the folder of one generation."""
        return Path(self._home(asset, partition), key[:16])

    @contextlib.contextmanager
    def unchanging(self) -> Generator[None]:
        """Look at each generation once while the block runs: nothing may be made meanwhile."""
        self._found = {}
        try:
            yield
        finally:
            self._found = None
            self._whole.clear()

    def find(self, asset: str, partition: str | None, key: str) -> Artifact | None:
        """Return the artifact of a generation, None when it has no sound manifest."""
        if self._found is None:
            return self._find(asset, partition, key)
        if (asset, partition, key) not in self._found:
            self._found[asset, partition, key] = self._find(asset, partition, key)
        return self._found[asset, partition, key]

    def _find(self, asset: str, partition: str | None, key: str) -> Artifact | None:
        folder = self.generation(asset, partition, key)
        seen = stamp(folder / MANIFEST_NAME)
        if seen is None:
            return None
        entry = self._catalog(asset).find(partition, key)
        if entry is not None and entry.manifest == seen:
            return Artifact(folder, entry)
        try:
            manifest = read_manifest(folder / MANIFEST_NAME)
        except (StorageError, FileNotFoundError):
            return None
        if manifest.key != key:
            return None
        return Artifact(folder, _entry(manifest, seen))  # each file is hashed once, then noted

    def last(self, asset: str, partition: str | None) -> Artifact | None:
        """Return the sound artifact whose manifest was written last, of any generation."""
        return next(self.generations(asset, partition), None)

    def generations(self, asset: str, partition: str | None) -> Iterator[Artifact]:
        """Yield the sound artifacts of all generations, the one made last first."""
        folder = self.folder(asset, partition)
        paths = [p for p in folder.glob(f"*/{MANIFEST_NAME}") if not p.parent.name.startswith(".")]
        stamps = [(s, p) for p in paths if (s := stamp(p)) is not None]
        for seen, path in sorted(stamps, key=lambda found: found[0].mtime_ns, reverse=True):
            try:
                manifest = read_manifest(path)
            except (StorageError, FileNotFoundError):
                continue
            if (manifest.asset, manifest.partition) == (asset, partition):
                yield Artifact(path.parent, _entry(manifest, seen))

    def damage(self, artifact: Artifact) -> list[Damage]:
        """Return what is wrong with an artifact's files.

        A file with the size and time it had when its hash was right is taken as right; another
        one is hashed, and noted in the catalog when its hash holds.
        """
        known = {f.name: f for f in artifact.entry.files}
        folder = str(artifact.folder)
        changed = [n for n, f in known.items() if stamp(f"{folder}/{n}") != f]
        if known and not changed:
            return []
        read, manifest = stamp(artifact.manifest_path), artifact.manifest
        # Before the hashing: what changes in between has another stamp and is hashed again.
        seen = file_stamps(artifact.folder, [o.name for o in manifest.outputs])
        unsure = [o for o in manifest.outputs if o.name not in known or o.name in changed]
        found = self.deep_damage(artifact.folder, unsure)
        if manifest.outputs and not found and read is not None:
            self._note(manifest.asset, _entry(manifest, read, seen))
        return found

    def deep_damage(self, folder: Path, outputs: Sequence[Output]) -> list[Damage]:
        """Return what is wrong with these outputs of a generation, hashing each."""
        return [d for o in outputs if (d := _compare(folder / o.name, o)) is not None]

    def distrust(self, asset: str, folder: Path) -> None:
        """Have a generation's manifest and files read at the next look, whatever their sizes and times."""
        catalog = self._catalog(asset)
        for entry in catalog.entries():
            if self.generation(asset, entry.partition, entry.key) == folder:
                unseen = replace(entry.manifest, bytes=-1)
                catalog.record(replace(entry, manifest=unseen, files=()))

    def generation_folders(self, asset: str, *, per_shard: bool) -> list[Path]:
        """Return the folders of all generations of an asset, sorted, with a manifest or without."""
        pattern = "*/*/*" if per_shard else "*"
        found = self.folder(asset, None).glob(pattern)
        return sorted(p for p in found if p.is_dir() and not p.name.startswith("."))

    @contextlib.contextmanager
    def lease(
        self, asset: str, partition: str | None, waiting: Callable[[str], None] | None = None
    ) -> Generator[None]:
        """Hold the right to make an artifact while the block runs."""
        with lease.hold(self.lease_path(asset, partition), waiting=waiting):
            yield

    def lease_path(self, asset: str, partition: str | None) -> Path:
        """Return the file whose lock is the right to make an artifact."""
        parts = [] if partition is None else partition.split("/", 1)
        return self.root.joinpath("leases", asset, *map(safe_name, [*parts, "lease"]))

    @contextlib.contextmanager
    def draft(self, asset: str, partition: str | None) -> Generator[Path]:
        """Give a fresh folder to write an artifact in; what was left of dead ones is removed.

        Only the holder of the lease may ask. The folder is gone after the block, published or not.
        """
        home = self.folder(asset, partition)
        home.mkdir(parents=True, exist_ok=True)
        for left in home.glob(".draft-*"):
            shutil.rmtree(left)
        folder = home / f".draft-{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(
        self, draft: Path, manifest: Manifest, *, seen: Mapping[str, FileStamp] | None = None
    ) -> Artifact:
        """Make a draft the artifact of its generation, whole at once.

        The files are flushed before the manifest is written. Where a damaged artifact of the same
        generation stands, its manifest goes first and each file is replaced by rename. `seen` are
        the files' stamps of before they were measured and hashed; raises StorageError when one
        does not fit any more.
        """
        seen = seen if seen is not None else file_stamps(draft, [o.name for o in manifest.outputs])
        for output in manifest.outputs:
            flush_file(draft / output.name)
        written = _write_manifest(draft, manifest)
        target = self.generation(manifest.asset, manifest.partition, manifest.key)
        if target.exists():
            _replace_files(draft, target)
        else:
            os.rename(draft, target)
            flush_folder(target.parent)
        for output in manifest.outputs:
            if stamp(target / output.name) != seen.get(output.name):
                raise StorageError(
                    f"{target / output.name}: it changed while it was published; run again"
                )
        entry = _entry(manifest, written, seen)
        self._note(manifest.asset, entry)
        return Artifact(target, entry)

    def _note(self, asset: str, entry: Entry) -> None:
        if self._remember:
            self._catalog(asset).record(entry)

    def _catalog(self, asset: str) -> Catalog:
        if asset not in self._catalogs:
            self._catalogs[asset] = Catalog(self.root / "catalog" / f"{asset}.jsonl")
        return self._catalogs[asset]


def file_stamps(folder: Path, names: Iterable[str]) -> dict[str, FileStamp]:
    """Return the stamps of a folder's files by name, without those that are not there."""
    return {name: seen for name in names if (seen := stamp(folder / name)) is not None}


def _entry(
    manifest: Manifest, read: FileStamp, files: Mapping[str, FileStamp] | None = None
) -> Entry:
    """Build an entry; `files` are the stamps that the outputs had when their hashes were right."""
    known = files or {}
    stamps = [replace(known[o.name], sha256=o.sha256) for o in manifest.outputs if o.name in known]
    return Entry(
        partition=manifest.partition,
        key=manifest.key,
        content=manifest.content,
        manifest=read,
        files=tuple(stamps),
        numbers=dict(manifest.numbers),
    )


def _compare(path: Path, output: Output) -> Damage | None:
    seen = stamp(path)
    if seen is None:
        return Damage(output.name, "the file is missing")
    if seen.bytes != output.bytes:
        return Damage(output.name, f"{seen.bytes} bytes, expected {output.bytes}")
    sha256 = file_sha256(path)
    if sha256 != output.sha256:
        return Damage(output.name, f"sha256 {sha256}, expected {output.sha256}")
    if stamp(path) != seen:
        return Damage(output.name, "the file changed while it was read")
    return None


def _write_manifest(folder: Path, manifest: Manifest) -> FileStamp:
    path = folder / MANIFEST_NAME
    with path.open("xb") as file:
        file.write(manifest.to_bytes())
        file.flush()
        os.fsync(file.fileno())
        status = os.fstat(file.fileno())
    flush_folder(folder)
    return FileStamp(MANIFEST_NAME, status.st_size, status.st_mtime_ns)


def _replace_files(draft: Path, target: Path) -> None:
    (target / MANIFEST_NAME).unlink(missing_ok=True)
    flush_folder(target)
    for path in sorted(draft.iterdir()):
        if path.name != MANIFEST_NAME:
            os.replace(path, target / path.name)
    flush_folder(target)
    os.replace(draft / MANIFEST_NAME, target / MANIFEST_NAME)
    flush_folder(target)
