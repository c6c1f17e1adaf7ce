"""Registration: what the sources list becomes shards of the registry and partition keys of Dagster.

The registry is written first: a process killed in between leaves keys for the next one to add.
Nothing is ever removed, neither for what is listed no more nor for what was deleted in the UI.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Project
from corpus_platform.stages.source_manifest import write_source_manifest
from corpus_platform.storage.registry import Shard, key_order

__all__ = ["Registered", "add_partitions", "register"]


@dataclass(frozen=True)
class Registered:
    """What a registration did and saw; keys in key order.

    `new`: the shards it took in. `left`: how many new ones it left for another time. `gone`:
    registered shards that no source lists now. `restored`: partition keys of shards registered
    before that Dagster did not have.
    """

    new: tuple[str, ...] = ()
    left: int = 0
    gone: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


def register(
    project: Project,
    instance: dg.DagsterInstance,
    listed: Sequence[Shard] | None = None,
    limit: int | None = None,
) -> Registered:
    """Take listed shards into the registry, and every registered one into the partitions.

    Lists the sources where `listed` is None. At most `limit` new shards are taken, in key order.
    Raises SettingsError where there is no shard at all, StorageError where a source is unreadable.
    """
    before = set(project.registry.keys())
    if listed is None:
        listed = list_shards(project)
    unknown = sorted((s for s in listed if s.key not in before), key=lambda s: key_order(s.key))
    taken = unknown[:limit]
    new = project.registry.register([*(s for s in listed if s.key in before), *taken])
    write_source_manifest(project)  # what is planned stands in it before it is fetched
    there = {s.key for s in listed}
    return Registered(
        new=tuple(s.key for s in taken if s.key in set(new)),
        left=len(unknown) - len(taken),
        gone=tuple(key for key in project.shards() if key in before - there),
        restored=tuple(key for key in add_partitions(project, instance) if key in before),
    )


def add_partitions(project: Project, instance: dg.DagsterInstance) -> list[str]:
    """Add the keys of registered shards that Dagster lacks; return them.

    Without its key no run of a shard can be launched.
    """
    known = set(instance.get_dynamic_partitions(SHARDS_NAME))
    lacking = [key for key in project.shards() if key not in known]
    if lacking:
        instance.add_dynamic_partitions(SHARDS_NAME, lacking)
    return lacking
