"""Which release a name means: an id or its beginning, `current`, or `previous`.

A release is found whatever its gates say and whatever became of what it was made of; whether it may
be read by a training run is for `pinned_release`.
"""

from dataclasses import dataclass
from pathlib import Path

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import MANIFEST_NAME, Manifest

__all__ = ["NamedRelease", "name_release"]

ASSET = "shuffled_bins"


@dataclass(frozen=True)
class NamedRelease:
    """A release that is there, and its manifest."""

    artifact: Artifact
    manifest: Manifest

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.artifact.folder.name

    @property
    def shards(self) -> list[str]:
        """The source shards that are in it, in key order."""
        return list(self.manifest.ledger["shards"])

    @property
    def excluded(self) -> dict[str, str]:
        """The source shards that were left out, and why."""
        reasons = self.manifest.measured.get("excluded", {})
        return {s: reasons.get(s, "not cleared") for s in self.manifest.ledger["excluded"]}

    def path(self, name: str) -> Path:
        """Return one of its files; raise StorageError where it has not the recorded size."""
        path = self.artifact.path(name)
        size = next((o.bytes for o in self.manifest.outputs if o.name == name), None)
        found = path.stat().st_size if path.is_file() else None
        if found is None or found != size:
            how = "is missing" if found is None else f"has {found} bytes, expected {size}"
            raise StorageError(f"{path}: {how}; `corpus verify` looks at all files")
        return path


def name_release(project: Project, name: str) -> NamedRelease:
    """Return the release of a name, which is compared with those that are there and never a path.

    `previous` is the one made last before that in force or, where none is older, the last other one.
    Raises UsageError where there is none of that name, StorageError where the manifest of the one
    in force is gone or damaged.
    """
    made = list(project.store.generations(ASSET, None))  # the one made last first
    found = {artifact.folder.name: artifact for artifact in made}
    if name in ("current", "previous"):
        current = _in_force(project, found)
        return _release(current if name == "current" else _before(made, current))
    matching = sorted(i for i in found if name and i.startswith(name))
    if len(matching) == 1:
        return _release(found[matching[0]])
    if matching:
        raise UsageError(f"release {name!r} is more than one: {', '.join(matching)}")
    there = f"there are {', '.join(sorted(found))}" if found else "there is none; run `corpus run`"
    raise UsageError(f"no release {name!r}: {there}")


def _release(artifact: Artifact) -> NamedRelease:
    return NamedRelease(artifact, artifact.manifest)


def _in_force(project: Project, found: dict[str, Artifact]) -> Artifact:
    in_force = release_in_force(project)
    if in_force is None:
        raise UsageError("no release is in force; `corpus run` makes one, or name one by its id")
    if (name := in_force["id"]) not in found:
        others = f"; or name one that is there: {', '.join(sorted(found))}" if found else ""
        raise StorageError(
            f"release {name} is in force, but {in_force['path']}/{MANIFEST_NAME} is missing or"
            f" damaged; `corpus run` makes it again{others}"
        )
    return found[name]


def _before(made: list[Artifact], current: Artifact) -> Artifact:
    place = [artifact.folder for artifact in made].index(current.folder)
    others = made[place + 1 :] or made[:place]
    if not others:
        raise UsageError(
            f"there is no release before {current.folder.name}, the only one; `corpus run` makes"
            " another when anything changed"
        )
    return others[0]
