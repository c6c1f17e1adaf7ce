"""Verification: every artifact in force hashed again, against its manifest and its source."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from corpus_platform.errors import StorageError, Uncleared
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact

__all__ = ["Fault", "verify_all"]

KEPT = ("shuffled_bins",)  # whose old generations a training run may have pinned


@dataclass(frozen=True)
class Fault:
    """An artifact that is not as recorded."""

    asset: str
    partition: str | None
    reason: str


def verify_all(
    project: Project, *, progress: Callable[[int, int], None]
) -> tuple[int, list[Fault]]:
    """Hash the files of all artifacts in force, and the sources; return the count and the faults."""
    project.hashes.forget()
    found = list(_artifacts(project))  # before any is distrusted, which hides what depends on it
    faults = []
    for done, (asset, partition, artifact) in enumerate(found):
        progress(done, len(found))
        damages = list(_damages(project, artifact))
        faults += [Fault(asset, partition, reason) for reason in damages]
        if damages:
            project.store.distrust(asset, artifact)
        if (witness := project.chain[asset].witness) is not None:
            try:
                witness(project, partition, artifact)
            except Uncleared as refusal:
                faults.append(Fault(asset, partition, refusal.reason))
    progress(len(found), len(found))
    return len(found), faults


def _damages(project: Project, artifact: Artifact) -> Iterator[str]:
    try:
        outputs = artifact.manifest.outputs
    except StorageError as error:
        yield str(error)
        return
    for damage in project.store.deep_damage(artifact, outputs):
        yield f"{artifact.path(damage.name)}: {damage.reason}"


def _artifacts(project: Project) -> Iterator[tuple[str, str | None, Artifact]]:
    """Yield of each asset and partition the artifact wanted now, or else the last; all releases."""
    with project.unchanging():
        for asset, stage in project.chain.items():
            for partition in project.shards() if stage.per_shard else [None]:
                if asset in KEPT:
                    artifacts = project.store.generations(asset, partition)
                else:
                    wanted = project.artifact(asset, partition)
                    artifacts = [wanted or project.last_generation(asset, partition)]
                yield from ((asset, partition, a) for a in artifacts if a is not None)
