"""Which generations of the store must stay, and why: what is wanted now, and what kept releases are made of.

A root is a generation that is wanted, in force, pinned or among the newest; from there it goes on to
what each was made of, by the contents that manifests name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corpus_platform.errors import StorageError, Uncleared, split_place
from corpus_platform.stages.dedup_verdicts import latest_path
from corpus_platform.stages.generations import Generation, generations
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_pins import read_pins
from corpus_platform.stages.shuffled_bins import current_path
from corpus_platform.storage.pointer import read_pointer

__all__ = ["RELEASES", "Keep", "Lying", "Place", "Stored", "find_kept", "newest_first"]

RELEASES, CLUSTERS, VERDICTS = "shuffled_bins", "dedup_clusters", "dedup_verdicts"
Place = tuple[str, str | None]  # asset and partition


@dataclass(frozen=True)
class Keep:
    """Why a folder stays: a root in words, or the root that it is a part of."""

    reason: str
    root: bool = True


@dataclass(frozen=True)
class Lying:
    """A generation as it lies there: of its manifest what tells where it comes from, and no more.

    `content` is None where there is no sound manifest; `verdicts` are the keys that clusters name.
    """

    place: Place
    folder: Path
    content: str | None = None
    made_at: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """All generations of the store by their places."""

    by_place: Mapping[Place, list[Lying]]

    @classmethod
    def of(cls, project: Project) -> "Stored":
        """Read all manifests, and keep some 2 kB of each."""
        found: dict[Place, list[Lying]] = {}
        for asset in project.chain:
            for one in generations(project, asset):
                found.setdefault((one.asset, one.partition), []).append(_lying(one))
        return cls(found)

    def __iter__(self) -> Iterator[Lying]:
        return (one for place in self.by_place.values() for one in place)

    def at(self, place: Place) -> list[Lying]:
        """Return the generations of a place."""
        return self.by_place.get(place, [])


def _lying(one: Generation) -> Lying:
    place, manifest = (one.asset, one.partition), one.manifest
    if manifest is None:
        return Lying(place, one.folder)
    return Lying(
        place,
        one.folder,
        content=manifest.content,
        made_at=str(manifest.measured.get("made_at", "")),  # of one zone and form: sorts by time
        inputs=manifest.inputs,
        verdicts=manifest.ledger.get("verdicts", {}) if one.asset == CLUSTERS else {},
    )


def newest_first(found: Iterable[Lying]) -> list[Lying]:
    """Return those with a sound manifest, the one made last first, of one second the larger id."""
    sound = [one for one in found if one.content is not None]
    return sorted(sound, key=lambda one: (one.made_at, one.folder.name), reverse=True)


def find_kept(project: Project, stored: Stored, *, all_releases: bool) -> dict[Path, Keep]:
    """Return the folders that must stay, each with the first reason found for it.

    `all_releases`: none of them goes now, so that what they were made of stays too. Folders that
    are not there may be among those returned: a name that is spoken for.
    """
    kept: dict[Path, Keep] = {}
    with project.unchanging():
        for folder, reason in (
            *_releases(project, stored),
            *_latest(project),
            *_wanted(project, stored),
            *(_others(stored) if all_releases else ()),
        ):
            kept.setdefault(folder, Keep(reason))
    _add_parts(project, stored, kept)
    return kept


def _releases(project: Project, stored: Stored) -> Iterator[tuple[Path, str]]:
    home = project.store.folder(RELEASES, None)
    if (in_force := _named(current_path(project), "id")) is not None:
        yield home / in_force, f"release {in_force} is in force"
    for name, release in sorted(read_pins(project).items()):
        yield home / release, f"release {release} is pinned as {name}"
    keep = project.settings.release.keep
    for one in newest_first(stored.at((RELEASES, None)))[:keep]:
        yield one.folder, f"release {one.folder.name} is one of the {keep} newest"
    try:
        wanted = project.expected(RELEASES, None).key
    except Uncleared:
        return
    folder = project.store.generation(RELEASES, None, wanted)
    yield folder, f"release {folder.name} is what `corpus run` would make now"


def _others(stored: Stored) -> Iterator[tuple[Path, str]]:
    for one in newest_first(stored.at((RELEASES, None))):
        yield one.folder, f"release {one.folder.name} is there, and releases were not asked for"


def _latest(project: Project) -> Iterator[tuple[Path, str]]:
    """Yield the clusters whose verdicts count, wanted or not."""
    if (key := _named(latest_path(project), "key")) is not None:
        yield project.store.generation(CLUSTERS, None, key), "the clusters in force"


def _named(pointer: Path, field: str) -> str | None:
    """Return what a pointer names, None where there is no pointer.

    Raises StorageError where it names nothing: what is in force would be taken for old.
    """
    name = read_pointer(pointer).get(field)
    if isinstance(name, str) and name:
        return name
    if pointer.exists():
        raise StorageError(f"{pointer}: not a pointer; first `corpus run`, which sets it anew")
    return None


def _wanted(project: Project, stored: Stored) -> Iterator[tuple[Path, str]]:
    shards, known = project.shards(), set(project.registry.all())
    places: set[Place] = set(stored.by_place)
    for asset, stage in project.chain.items():
        places |= {(asset, key) for key in shards} if stage.per_shard else {(asset, None)}
    for place in sorted(places, key=lambda p: (p[0], p[1] or "")):
        asset, partition = place
        if asset == RELEASES:
            continue
        if partition is not None and partition not in known:
            reason = f"its shard {partition} is not registered"
            yield from ((g.folder, reason) for g in stored.at(place))
        elif partition is not None and partition not in shards:
            yield from _last(project, place, "the last one of a retired shard")
        else:
            yield from _wanted_at(project, stored, place)


def _wanted_at(project: Project, stored: Stored, place: Place) -> Iterator[tuple[Path, str]]:
    """Yield the generation wanted now; all where that cannot be told, the last where it is not made."""
    found = stored.at(place)
    try:
        key = project.expected(*place).key
    except Uncleared:
        yield from (
            (g.folder, "what is wanted now cannot be told before `corpus run`") for g in found
        )
        return
    folder = project.store.generation(*place, key)
    yield folder, "wanted now"
    if not any(g.folder == folder and g.content is not None for g in found):
        yield from _last(project, place, "the last one, and the one wanted now is not made yet")


def _last(project: Project, place: Place, reason: str) -> Iterator[tuple[Path, str]]:
    last = project.last_generation(*place)
    if last is not None:
        yield last.folder, reason


def _add_parts(project: Project, stored: Stored, kept: dict[Path, Keep]) -> None:
    """Add what kept generations were made of, down to raw shards."""
    by_folder = {one.folder: one for one in stored}
    open_ = [folder for folder in kept if folder in by_folder]
    while open_:
        whole = open_.pop()
        for part in _parts(project, stored, by_folder[whole]):
            if part.folder not in kept:
                kept[part.folder] = Keep(kept[whole].reason, root=False)
                open_.append(part.folder)


def _parts(project: Project, stored: Stored, of: Lying) -> Iterator[Lying]:
    for name, content in of.inputs.items():
        asset, shard = split_place(name)
        if asset in project.chain:  # else it names a shard that was left out
            own = of.place[1] if project.chain[asset].per_shard else None
            yield from (g for g in stored.at((asset, shard or own)) if g.content == content)
    for shard, key in of.verdicts.items():
        folder = project.store.generation(VERDICTS, shard, key)
        yield from (g for g in stored.at((VERDICTS, shard)) if g.folder == folder)
