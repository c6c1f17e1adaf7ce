"""All generations that lie in the store: wanted or not, with a sound manifest or without.

It goes by the folders that are there. Which of them may be read, and which may go, is for others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from corpus_platform.errors import StorageError
from corpus_platform.stages.project import Project
from corpus_platform.storage.manifest import MANIFEST_NAME, Manifest, read_manifest

__all__ = ["Generation", "generations"]


@dataclass(frozen=True)
class Generation:
    """A generation's folder; `manifest` is None where there is no sound one, which `reason` tells."""

    asset: str
    partition: str | None
    folder: Path
    manifest: Manifest | None
    reason: str = ""


def generations(project: Project, asset: str) -> Iterator[Generation]:
    """Yield every generation folder of an asset with what its manifest says, sorted by path."""
    per_shard = project.chain[asset].per_shard
    shards = {project.store.folder(asset, key): key for key in project.registry.all()}
    for folder in project.store.generation_folders(asset, per_shard=per_shard):
        partition = None
        if per_shard:
            home = folder.parent
            partition = shards.get(home) or f"{unquote(home.parent.name)}/{unquote(home.name)}"
        manifest, reason = _manifest(project, folder)
        yield Generation(asset, partition, folder, manifest, reason)


def _manifest(project: Project, folder: Path) -> tuple[Manifest | None, str]:
    """Return the manifest of a folder, or why there is none that is sound."""
    try:
        manifest = read_manifest(folder / MANIFEST_NAME)
    except FileNotFoundError:
        return None, "there is no manifest"
    except (StorageError, OSError) as error:
        return None, str(error)
    stored = project.store.generation(manifest.asset, manifest.partition, manifest.key)
    return (manifest, "") if stored == folder else (None, f"its manifest is that of {stored}")
