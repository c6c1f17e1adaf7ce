"""Verification: every artifact in force hashed again, against its manifest and its source."""

from collections.abc import Callable
from dataclasses import dataclass

from corpus_platform.errors import Uncleared
from corpus_platform.stages.project import Project

__all__ = ["Fault", "verify_all"]


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
    wanted = [
        (asset, partition)
        for asset, stage in project.chain.items()
        for partition in (project.shards() if stage.per_shard else [None])
    ]
    count, faults = 0, []
    for done, (asset, partition) in enumerate(wanted):
        progress(done, len(wanted))
        artifact = project.artifact(asset, partition)
        if artifact is None:
            continue
        count += 1
        damages = project.store.deep_damage(artifact, artifact.manifest.outputs)
        faults += [Fault(asset, partition, f"{artifact.path(d.name)}: {d.reason}") for d in damages]
        if damages:
            project.store.distrust(artifact)
        if (witness := project.chain[asset].witness) is not None:
            try:
                witness(project, partition, artifact)
            except Uncleared as refusal:
                faults.append(Fault(asset, partition, refusal.reason))
    progress(len(wanted), len(wanted))
    return count, faults
