"""The registry is the truth about the set of shards."""

from pathlib import Path

import pytest

from corpus_platform.config import Fields
from corpus_platform.errors import StorageError, UsageError
from corpus_platform.storage.registry import Member, Registry, Shard


def _shard(key: str, where: str = "/in") -> Shard:
    return Shard(key, (Member(f"{where}/{key}"),), Fields())


def test_shards_come_back_in_key_order_whatever_the_order_of_registration(tmp_path: Path) -> None:
    keys = ["b/1", "a/2", "a/10", "a-b/1"]
    files = []
    for name, order in (("one", keys), ("two", keys[::-1])):
        registry = Registry(tmp_path / name / "registry.json")
        for key in order:
            registry.register([_shard(key)])
        files.append((tmp_path / name / "registry.json").read_bytes())
        assert list(registry.shards()) == ["a/10", "a/2", "a-b/1", "b/1"]
    assert files[0] == files[1]


def test_only_new_shards_are_reported_and_a_shorter_listing_removes_none(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    assert registry.register([_shard("c/1"), _shard("c/2")]) == ["c/1", "c/2"]
    assert registry.register([_shard("c/2"), _shard("c/3")]) == ["c/3"]
    assert list(registry.shards()) == ["c/1", "c/2", "c/3"]


def test_a_moved_source_is_followed_and_its_generation_stays(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_shard("c/1")])
    registry.accept("c/1")
    registry.register([_shard("c/1", "/moved")])
    assert registry.shard("c/1").members == (Member("/moved/c/1"),)
    assert registry.shard("c/1").generation == 1


def test_a_retired_shard_stays_known_and_no_listing_brings_it_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_shard("c/1"), _shard("c/2")])
    assert registry.retire("c/1").retired
    assert registry.register([_shard("c/1")]) == []
    assert (list(registry.shards()), registry.keys()) == (["c/2"], ["c/1", "c/2"])
    assert not registry.retire("c/1", retired=False).retired
    assert list(registry.shards()) == ["c/1", "c/2"]


def test_a_shard_is_retired_once_and_taken_in_once(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_shard("c/1")])
    with pytest.raises(UsageError, match="'c/1' is not retired"):
        registry.retire("c/1", retired=False)
    registry.retire("c/1")
    with pytest.raises(UsageError, match="'c/1' is retired already"):
        registry.retire("c/1")


def test_an_unknown_shard_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'c/9' is not registered"):
        Registry(tmp_path / "registry.json").accept("c/9")


def test_a_broken_registry_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    path.write_text('{"shards": ')
    with pytest.raises(StorageError, match="not a registry"):
        Registry(path).shards()
