"""Which release is in force, and how many documents another one would have to have to take its place."""

import logging
from collections.abc import Collection
from pathlib import Path

import polars as pl

from corpus_platform.errors import StorageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.tables import readable
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import MANIFEST_NAME, read_manifest
from corpus_platform.storage.pointer import read_pointer

__all__ = [
    "DOCUMENTS",
    "current_path",
    "documents_in_force",
    "documents_to_match",
    "release_in_force",
]

_log = logging.getLogger(__name__)

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
    are none where no release is in force, or its table of documents is not there any more; where that
    is damaged, its manifest says how many.
    """
    in_force = release_in_force(project)
    if in_force is None:
        return 0
    own = Path(in_force["path"]) == folder
    shards = project.registry.all()
    retired = [key for key, shard in shards.items() if shard.retired]
    beside = [] if own else [*excluded, *retired]
    try:
        with readable():
            return _listed(Path(in_force["path"]) / DOCUMENTS, beside)
    except FileNotFoundError:
        return 0
    except StorageError:  # damaged: `corpus verify` names it, a new release needs it no more
        return _recorded(Path(in_force["path"]) / MANIFEST_NAME, beside)


def _listed(table: Path, beside: Collection[str]) -> int:
    """Count the documents of other shards than those beside in a release's table."""
    begin = pl.scan_parquet(table).filter(pl.col("offset") == 0)
    others = begin.filter(~pl.col("shard").is_in(beside))
    return int(others.select(pl.len()).collect(engine="streaming").item())


def _recorded(manifest: Path, beside: Collection[str]) -> int:
    """Count them by what a release's manifest says of each shard; none where that is damaged too."""
    try:
        by_shard = read_manifest(manifest).ledger.get("by_shard", {})
    except (OSError, StorageError) as error:
        _log.warning("nothing is matched with the release in force: %s", error)
        return 0
    own = (counts for shard, counts in by_shard.items() if shard not in beside)
    return sum(c["train_documents"] + c["validation_documents"] for c in own)


def documents_in_force(project: Project, artifact: Artifact) -> dict[str, float]:
    """Return what a release is held against today: the release in force changes, and it does not."""
    in_force = release_in_force(project)
    if in_force is not None and Path(in_force["path"]) == artifact.folder:
        return {"documents_in_force": artifact.numbers.get("documents", 0.0)}
    excluded = artifact.manifest.ledger.get("excluded", ())
    return {"documents_in_force": documents_to_match(project, artifact.folder, excluded)}
