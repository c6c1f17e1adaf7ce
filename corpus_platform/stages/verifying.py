"""Verification: every stored generation hashed again, against its manifest; sources and pointers too.

It goes by the folders that are there, not by what is wanted: what has lost its manifest, and what
an old training run may have pinned, is looked at like anything else. Repair is left to the stages.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corpus_platform.errors import StorageError, Uncleared
from corpus_platform.stages.dedup_verdicts import latest_path
from corpus_platform.stages.generations import Generation, generations
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import current_path
from corpus_platform.stages.source_manifest import read_source_manifest, source_manifest_path
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Output
from corpus_platform.storage.pointer import read_pointer

__all__ = ["Fault", "verify_all"]


@dataclass(frozen=True)
class Fault:
    """Something stored that is not as recorded."""

    asset: str
    partition: str | None
    reason: str


@dataclass(frozen=True)
class _Look:
    """One thing to be read: a file of a generation in `folder`, or the source of an artifact."""

    asset: str
    partition: str | None
    folder: Path | None
    find: Callable[[], list[str]]


def verify_all(
    project: Project, *, progress: Callable[[int, int], None]
) -> tuple[int, list[Fault]]:
    """Hash all stored files, and the sources; return the count of generations and the faults."""
    project.hashes.forget()
    found = [g for asset in project.chain for g in generations(project, asset)]
    in_force = list(_in_force(project))  # before any is distrusted, which hides what depends on it
    faults = [_without_manifest(g) for g in found if g.manifest is None]
    distrusted = {(g.asset, g.folder) for g in found if g.manifest is None}
    looks = [*_file_looks(project, found), *_source_looks(project, in_force)]
    for look, reasons in _carried_out(project, looks, progress):
        faults += [Fault(look.asset, look.partition, reason) for reason in reasons]
        if reasons and look.folder is not None:
            distrusted.add((look.asset, look.folder))
    for asset, folder in sorted(distrusted):
        project.store.distrust(asset, folder)
    faults += _dangling(
        project, {(g.asset, g.folder.name) for g in found if g.manifest is not None}
    )
    faults += _source_manifest(project)
    order = list(project.chain)
    return len(found), sorted(faults, key=lambda f: (order.index(f.asset), f.partition or ""))


def _without_manifest(found: Generation) -> Fault:
    words = (
        f"{found.folder}: {found.reason}; if `corpus run` does not make it again, delete the folder"
    )
    return Fault(found.asset, found.partition, words)


def _in_force(project: Project) -> Iterator[tuple[str, str | None, Artifact]]:
    """Yield of each asset with a witness and each partition the artifact wanted now, or the last."""
    with project.unchanging():
        for asset, stage in project.chain.items():
            if stage.witness is None:
                continue
            for key in project.shards() if stage.per_shard else [None]:
                artifact = project.artifact(asset, key) or project.last_generation(asset, key)
                if artifact is not None:
                    yield asset, key, artifact


def _file_looks(project: Project, found: list[Generation]) -> Iterator[_Look]:
    for generation in found:
        if generation.manifest is None:
            continue
        asset, partition, folder = generation.asset, generation.partition, generation.folder
        for output in generation.manifest.outputs:
            yield _Look(asset, partition, folder, _file_look(project, folder, output))


def _file_look(project: Project, folder: Path, output: Output) -> Callable[[], list[str]]:
    def find() -> list[str]:
        try:
            damages = project.store.deep_damage(folder, [output])
        except OSError as error:  # of a failing disk: the other files are looked at all the same
            return [f"{folder / output.name}: cannot be read: {error}"]
        return [f"{folder / damage.name}: {damage.reason}" for damage in damages]

    return find


def _source_looks(
    project: Project, in_force: list[tuple[str, str | None, Artifact]]
) -> Iterator[_Look]:
    for asset, partition, artifact in in_force:
        yield _Look(asset, partition, None, _source_look(project, asset, partition, artifact))


def _source_look(
    project: Project, asset: str, partition: str | None, artifact: Artifact
) -> Callable[[], list[str]]:
    def find() -> list[str]:
        witness = project.chain[asset].witness
        try:
            if witness is not None:
                witness(project, partition, artifact)
        except Uncleared as refusal:
            return [refusal.reason]
        except StorageError:  # of its manifest, which is told already
            return []
        except OSError as error:
            return [f"its source cannot be read: {error}"]
        return []

    return find


def _carried_out(
    project: Project, looks: list[_Look], progress: Callable[[int, int], None]
) -> Iterator[tuple[_Look, list[str]]]:
    """Look at all, several at once: reading and hashing leave the interpreter free."""
    progress(0, len(looks))
    with ThreadPoolExecutor(project.workers) as pool:
        try:
            results = pool.map(lambda look: look.find(), looks)
            for done, (look, reasons) in enumerate(zip(looks, results, strict=True), start=1):
                progress(done, len(looks))
                yield look, reasons
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _source_manifest(project: Project) -> Iterator[Fault]:
    """Yield a fault for a stored source manifest that is not as it was written."""
    path = source_manifest_path(project)
    try:
        if path.exists():
            read_source_manifest(path)
    except StorageError as error:
        yield Fault("raw_shards", None, str(error))


def _dangling(project: Project, sound: Collection[tuple[str, str]]) -> Iterator[Fault]:
    """Yield a fault for each pointer to a generation that is not there, or is not sound."""
    pointers = (
        ("dedup_clusters", latest_path(project), "key"),
        ("shuffled_bins", current_path(project), "id"),
    )
    for asset, path, field in pointers:
        if not path.exists():
            continue
        name = str(read_pointer(path).get(field, ""))[:16]
        if not name:
            yield Fault(asset, None, f"{path}: not a pointer; `corpus run` sets it anew")
        elif (asset, name) not in sound:
            yield Fault(asset, None, f"{path}: points to {name}, of which no whole one is there")
