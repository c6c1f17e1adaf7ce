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
    for other in ('{"format": 99, "shards": {}}', "[" * 100_000):  # a later one; nested too deeply
        path.write_text(other)
        with pytest.raises(
            StorageError, match=r"not a registry: .*(format 99 is unknown|recursion)"
        ):
            Registry(path).shards()


def _versioned(version: str | None) -> Shard:
    return Shard("c/1", (Member("s3://b/1", version=version),), Fields())


def test_a_member_remembers_the_version_that_was_registered(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_versioned("v1")])
    registry.register([_versioned("v2")])
    (member,) = Registry(tmp_path / "registry.json").shard("c/1").members
    assert (member.version, member.changed, member.listed_version) == ("v1", "v2", "v2")
    registry.register([_versioned("v3")])
    assert registry.shard("c/1").members[0].listed_version == "v3"
    registry.register([_versioned("v1")])  # it was put back
    assert registry.shard("c/1").members == (Member("s3://b/1", version="v1"),)


def test_what_was_fetched_settles_the_version(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_versioned("v1")])
    registry.register([_versioned("v2")])
    registry.settle(registry.shard("c/1"))
    assert registry.shard("c/1").members == (Member("s3://b/1", version="v2"),)


def test_a_version_that_is_listed_while_another_is_fetched_is_a_change(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_versioned("v1")])
    registry.register([_versioned("v2")])
    fetched = registry.shard("c/1")
    registry.register([_versioned("v3")])
    registry.settle(fetched)
    assert registry.shard("c/1").members == (Member("s3://b/1", version="v2", changed="v3"),)


def test_a_listing_that_names_no_version_changes_none(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_versioned(None)])
    registry.register([_versioned("v1")])
    assert registry.shard("c/1").members[0].changed is None
    registry.register([_versioned(None)])
    assert registry.shard("c/1").members[0].changed is None


def test_the_members_of_a_shard_do_not_change_in_number_or_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    members = (Member("/in/1", name="1"), Member("/in/2", name="2"))
    registry.register([Shard("c/x", members, Fields())])
    for other in ((Member("/in/3"),), (members[0], Member("/in/3", name="3")), ()):
        assert registry.register([Shard("c/x", other, Fields())]) == []
        assert registry.shard("c/x").members == members


def test_a_plan_shows_what_would_be_registered_and_writes_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.json")
    registry.register([_shard("c/2"), _shard("c/3")])
    registry.retire("c/3")
    before = (tmp_path / "registry.json").read_bytes()
    assert list(registry.merged([_shard("c/1"), _shard("c/3")])) == ["c/1", "c/2"]
    assert (tmp_path / "registry.json").read_bytes() == before


def test_a_registry_of_format_1_is_read_with_its_members_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    row = '{"fields": {"id": "id"}, "generation": 2, "members": ["/in/a"], "retired": false}'
    path.write_text(f'{{"format": 1, "shards": {{"c/a": {row}}}}}')
    assert Registry(path).shard("c/a") == Shard("c/a", (Member("/in/a"),), Fields(), generation=2)
