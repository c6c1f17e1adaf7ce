"""Collection: releases, generations and leftovers that nobody wants any more go, on command alone.

What stays says `keeping`. It is found out while nothing else is being made of all shards; of a
shard only what is in nobody's hands goes. Whatever is removed disappears at once: a killed
collection leaves hidden folders, which the next one removes.
"""

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from corpus_platform.errors import Busy, Uncleared
from corpus_platform.stages.export_target import export_leases
from corpus_platform.stages.keeping import RELEASES, Keep, Lying, Place, Stored, find_kept
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_pins import pins_lease
from corpus_platform.stages.shuffled_bins import scratch_of, shuffle_scratch
from corpus_platform.storage import lease, trash
from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import publish_bytes
from corpus_platform.storage.manifest import MANIFEST_NAME

__all__ = ["GRACE_SECONDS", "KINDS", "Collected", "Found", "Kind", "collect", "look"]

Kind = Literal["releases", "artifacts", "scratch"]
KINDS: tuple[Kind, ...] = ("releases", "artifacts", "scratch")
# What has no manifest may be on its way to one; nothing is so long on that way.
GRACE_SECONDS = 3600.0
_PART = re.compile(r"\..+\.[0-9a-f]{32}\.part")  # of storage.files.publish_bytes


@dataclass(frozen=True)
class Collected:
    """One thing that goes, or would: a folder or file; `place` is the lease that it is under.

    `skipped` says why it did not go after all.
    """

    kind: Kind
    path: Path
    reason: str
    bytes: int
    place: Place | None = None
    manifest: FileStamp | None = None
    skipped: str = ""

    @property
    def name(self) -> str:
        """What it is, in words."""
        if self.place is None:
            return self.path.name
        asset, partition = self.place
        where = asset if partition is None else f"{asset}[{partition}]"
        return f"{where} {self.path.name}"


@dataclass(frozen=True)
class Found:
    """What may go, and what stays: per root its reason and how many generations stay for it."""

    items: tuple[Collected, ...]
    kept: dict[str, int]

    @property
    def bytes(self) -> int:
        """The bytes of all that may go."""
        return sum(item.bytes for item in self.items)


def look(
    project: Project, kinds: Collection[Kind] = KINDS, *, grace: float = GRACE_SECONDS
) -> Found:
    """Return what a collection would take, the releases first; nothing is changed."""
    stored = Stored.of(project)
    kept = find_kept(project, stored, all_releases="releases" not in kinds)
    items = [
        *_generations(stored, kept, kinds),
        *(_leftovers(project, stored, kept, grace) if "scratch" in kinds else ()),
    ]
    there = {one.folder for one in stored if one.content is not None}
    reasons: dict[str, int] = {}
    for folder, keep in kept.items():
        if folder in there:
            reasons[keep.reason] = reasons.get(keep.reason, 0) + 1
    return Found(tuple(items), reasons)


def collect(
    project: Project, kinds: Collection[Kind] = KINDS, *, grace: float = GRACE_SECONDS
) -> Iterator[Collected]:
    """Take what may go, and yield each thing as it is gone, or why it stayed.

    Raises Busy while another process makes something of all shards, or exports a release.
    """
    with _alone(project):
        found = look(project, kinds, grace=grace)
        gone: dict[str, set[str]] = {}
        for item in found.items:
            skipped = _take(project, item)
            if not skipped and item.place is not None and item.manifest is not None:
                gone.setdefault(item.place[0], set()).add(item.path.name)
            yield replace(item, skipped=skipped)
        for asset, folders in gone.items():
            _forget(project, asset, folders)


def _generations(
    stored: Stored, kept: dict[Path, Keep], kinds: Collection[Kind]
) -> Iterator[Collected]:
    sound = [one for one in stored if one.content is not None]
    for one in sorted(sound, key=lambda one: one.place[0] != RELEASES):
        kind: Kind = "releases" if one.place[0] == RELEASES else "artifacts"
        if kind in kinds and one.folder not in kept:
            reason = (
                "older, and neither in force nor pinned"
                if kind == "releases"
                else "nothing wants it"
            )
            yield _generation(kind, one, reason)


def _generation(kind: Kind, one: Lying, reason: str) -> Collected:
    seen = stamp(one.folder / MANIFEST_NAME)
    return Collected(kind, one.folder, reason, _size(one.folder), one.place, seen)


def _leftovers(
    project: Project, stored: Stored, kept: dict[Path, Keep], grace: float
) -> Iterator[Collected]:
    """Yield what dead processes left: drafts, half-removed folders, folders that never got a manifest."""
    for one in stored:
        bare = one.content is None and not (one.folder / MANIFEST_NAME).exists()
        if bare and one.folder not in kept and _age(one.folder) > grace:
            yield _generation("scratch", one, "without a manifest")
    yield from _hidden(project)
    yield from _of_shuffles(project, stored)
    for path in _parts(project):
        if _age(path) > grace:
            yield Collected("scratch", path, "of a writer that was killed", _size(path))


def _hidden(project: Project) -> Iterator[Collected]:
    """Yield drafts and trash: who finds a draft under its lease has its writer's end before him."""
    for asset, stage in project.chain.items():
        for partition in project.registry.all() if stage.per_shard else [None]:
            home = project.store.folder(asset, partition)
            for path in sorted(home.glob(".*")) if home.is_dir() else ():
                if path.name.startswith((".draft-", trash.PREFIX)) and path.is_dir():
                    place = (asset, partition)
                    yield Collected("scratch", path, "of a process that was killed", _size(path), place)  # fmt: skip


def _of_shuffles(project: Project, stored: Stored) -> Iterator[Collected]:
    """Yield what lies between the passes of shuffles, but for one that can be gone on with."""
    home = shuffle_scratch(project)
    try:
        key = project.expected(RELEASES, None).key
        wanted, release = scratch_of(project, key), key[:16]
    except Uncleared:
        wanted, release = None, ""
    made = {one.folder.name for one in stored.at((RELEASES, None)) if one.content is not None}
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        if path != wanted or release in made:
            yield Collected(
                "scratch", path, "of a shuffle that ended", _size(path), (RELEASES, None)
            )


def _parts(project: Project) -> Iterator[Path]:
    """Yield small files that were on their way to their name."""
    root = project.store.root
    folders = [root, *(p for p in root.iterdir() if p.is_dir())] if root.is_dir() else []
    folders += [p for p in (root / "frozen").glob("*") if p.is_dir()]
    for folder in folders:
        yield from sorted(p for p in folder.glob(".*.part") if _PART.fullmatch(p.name))


@contextlib.contextmanager
def _alone(project: Project) -> Generator[None]:
    """Hold what is made of all shards, and the pins, while the block runs."""
    whole = [asset for asset, stage in project.chain.items() if not stage.per_shard]
    paths = [project.store.root / "leases" / "run.lease"]
    paths += [project.store.lease_path(asset, None) for asset in whole]
    with contextlib.ExitStack() as stack:
        for path in [*paths, pins_lease(project)]:
            _check_free(path, "the corpus is being worked on")
            stack.enter_context(lease.hold(path))
        for path in export_leases(project.settings.storage_path):
            _check_free(path, "a release is being exported")  # any one, file by file
        yield


def _check_free(path: Path, what: str) -> None:
    if (who := lease.held_by(path)) is not None:
        raise Busy(f"{what}: {who}; nothing was collected, try again when it has ended")


def _take(project: Project, item: Collected) -> str:
    """Remove one thing; return why it stayed, nothing where it is gone."""
    if item.place is None or item.place[1] is None:  # under a lease that is held all the while
        return _remove(item)
    path = project.store.lease_path(*item.place)
    if (who := lease.held_by(path)) is not None:
        return f"in use: {who}"
    with project.store.lease(*item.place):
        return _remove(item)


def _remove(item: Collected) -> str:
    manifest = stamp(item.path / MANIFEST_NAME) if item.path.is_dir() else None
    if not item.path.exists():
        return "gone already"
    if item.path.is_file():
        item.path.unlink()
    elif item.path.name.startswith((".draft-", trash.PREFIX)):
        trash.empty(item.path)
    elif manifest != item.manifest:
        return "it was made again meanwhile"
    else:
        trash.discard(item.path)
    return ""


def _forget(project: Project, asset: str, folders: Collection[str]) -> None:
    """Write a catalog anew without generations that are gone, and without outdated lines.

    A line that another process appends meanwhile may be lost: its files are hashed once more.
    """
    path = project.store.root / "catalog" / f"{asset}.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    last: dict[tuple[str | None, str], bytes] = {}
    for line in lines:
        try:
            row = json.loads(line)
            place = (row["partition"], row["key"])
        except (ValueError, KeyError, TypeError):
            continue
        if place[1][:16] not in folders:
            last[place] = line
    publish_bytes(path, b"".join(b"\n" + line + b"\n" for line in last.values()))


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(seen.st_size for seen in _stats(path) if not stat.S_ISDIR(seen.st_mode))


def _age(path: Path) -> float:
    """Return the seconds since anything in a folder changed last; none of what is gone."""
    return time.time() - max((seen.st_mtime for seen in _stats(path)), default=time.time())


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Yield what is known of a file, or of a folder and all in it, without what goes meanwhile.

    A draft that is being written and published has other names at any moment.
    """
    every = ((root, (*folders, *files)) for root, folders, files in os.walk(path))
    for name in (path, *(os.path.join(root, name) for root, names in every for name in names)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield os.lstat(name)
