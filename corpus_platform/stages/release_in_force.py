"""Which release is in force, and how many documents another one would have to have to take its place."""

from collections.abc import Collection
from pathlib import Path

import polars as pl

from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.pointer import read_pointer

__all__ = [
    "DOCUMENTS",
    "current_path",
    "documents_in_force",
    "documents_to_match",
    "release_in_force",
]

ASSET = "shuffled_bins"
DOCUMENTS = "documents.parquet"


def current_path(project: Project) -> Path:
    """Return the small file that names the release in force."""
    return project.store.folder(ASSET, None) / "current.json"


def release_in_force(project: Project) -> dict[str, str] | None:
    """Return id, content and path of the current release, None where there is none."""
    path = current_path(project)
    said = read_pointer(path)
    name, content = said.get("id"), said.get("content")
    if not (isinstance(name, str) and isinstance(content, str)):
        return None
    return {"id": name, "content": content, "path": str(path.parent / name)}


def documents_to_match(project: Project, folder: Path, excluded: Collection[str]) -> int:
    """Return the documents of the release in force, as far as the one in `folder` has to have them.

    Of shards that it leaves out (gate `whole` speaks of them) and of retired ones it need not. There
    are none where no release is in force, or its table of documents is not there any more.
    """
    in_force = release_in_force(project)
    if in_force is None:
        return 0
    own = Path(in_force["path"]) == folder
    shards = project.registry.all()
    retired = [key for key, shard in shards.items() if shard.retired]
    beside = [] if own else [*excluded, *retired]
    begin = pl.scan_parquet(Path(in_force["path"]) / DOCUMENTS).filter(pl.col("offset") == 0)
    try:
        count = (
            begin.filter(~pl.col("shard").is_in(beside))
            .select(pl.len())
            .collect(engine="streaming")
        )
    except FileNotFoundError:
        return 0
    return int(count.item())


def documents_in_force(project: Project, artifact: Artifact) -> dict[str, float]:
    """Return what a release is held against today: the release in force changes, and it does not."""
    in_force = release_in_force(project)
    if in_force is not None and Path(in_force["path"]) == artifact.folder:
        return {"documents_in_force": artifact.numbers.get("documents", 0.0)}
    excluded = artifact.manifest.ledger.get("excluded", ())
    return {"documents_in_force": documents_to_match(project, artifact.folder, excluded)}
