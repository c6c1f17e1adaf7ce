"""Registration only ever adds: shards to the registry, keys to Dagster's partitions."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.registering import Registered, register
from corpus_platform.errors import SettingsError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform_tests.instances import in_memory

KEYS = ("a/1", "a/10", "a/2", "a-b/0")  # the order of shards: crawls by name, then their shards


@pytest.fixture
def project(tmp_path: Path) -> Project:
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'source/{crawl}/*'}]\n", encoding="utf-8")
    for key in KEYS:
        _put(tmp_path, key)
    return open_project(load_settings(config))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with in_memory() as made:
        yield made


def _put(folder: Path, key: str) -> Path:
    path = folder / "source" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    return path


def _partitions(instance: dg.DagsterInstance) -> set[str]:
    return set(instance.get_dynamic_partitions(SHARDS_NAME))


def test_all_that_is_listed_is_taken_once(project: Project, instance: dg.DagsterInstance) -> None:
    assert register(project, instance) == Registered(new=KEYS)
    assert _partitions(instance) == set(KEYS)
    assert register(project, instance) == Registered()


def test_a_limit_takes_the_first_new_ones_and_leaves_the_rest_for_the_next_time(
    project: Project, instance: dg.DagsterInstance
) -> None:
    assert register(project, instance, limit=3) == Registered(new=KEYS[:3], left=1)
    assert tuple(project.registry.keys()) == KEYS[:3]
    assert _partitions(instance) == set(KEYS[:3])
    assert register(project, instance, limit=0) == Registered(left=1)
    assert register(project, instance, limit=3) == Registered(new=KEYS[3:])


def test_what_is_listed_no_more_is_told_and_stays(
    project: Project, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    register(project, instance)
    (tmp_path / "source" / "a/10").unlink()
    assert register(project, instance) == Registered(gone=("a/10",))
    assert "a/10" in project.shards()
    assert "a/10" in _partitions(instance)


def test_a_key_that_was_deleted_in_dagster_alone_is_restored(
    project: Project, instance: dg.DagsterInstance
) -> None:
    register(project, instance)
    instance.delete_dynamic_partition(SHARDS_NAME, "a/2")
    assert register(project, instance) == Registered(restored=("a/2",))
    assert _partitions(instance) == set(KEYS)


def test_a_given_listing_is_taken_instead_of_another_look_at_the_sources(
    project: Project, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    register(project, instance)
    listed = list(project.shards().values())
    _put(tmp_path, "b/0")
    assert register(project, instance, listed) == Registered()
    assert register(project, instance) == Registered(new=("b/0",))


def test_sources_without_any_shard_are_a_fault_of_the_settings(
    project: Project, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    for key in KEYS:
        (tmp_path / "source" / key).unlink()
    with pytest.raises(SettingsError, match="there is no shard"):
        register(project, instance)
