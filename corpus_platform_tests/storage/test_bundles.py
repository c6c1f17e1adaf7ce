"""Tests of bundles: which files are joined, that nothing changes them later, and who names them."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpus_platform.config import Fields
from corpus_platform.errors import SettingsError
from corpus_platform.storage.bundles import bundled_files, to_shards
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member, Registry, Shard

FIELDS = Fields()


def _files(*names: str, size: int | None = 10, crawl: str = "c") -> list[Listed]:
    return [Listed(crawl, n, Member(f"https://h/{crawl}/{n}", size)) for n in names]


def _shards(
    files: Iterable[Listed], registry: Registry | None = None, *, bundle_bytes: int = 25
) -> list[Shard]:
    registered = registry.all() if registry else {}
    bundled = bundled_files(registered)
    found = to_shards(
        files, bundle_bytes=bundle_bytes, fields=FIELDS, registered=registered, bundled=bundled
    )
    return list(found)


def _contents(shards: Iterable[Shard]) -> dict[str, list[str]]:
    return {s.key: s.files for s in shards}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry.json")


def test_files_are_joined_in_the_order_of_their_names_up_to_the_size() -> None:
    assert _contents(_shards(_files("e", "b", "a", "d", "c"))) == {
        "c/a%+1": ["c/a", "c/b"],
        "c/c%+1": ["c/c", "c/d"],
        "c/e": ["c/e"],
    }


def test_a_file_as_large_as_a_bundle_is_a_shard_of_its_own() -> None:
    files = [*_files("a"), *_files("b", size=25), *_files("c", "d", size=12)]
    assert _contents(_shards(files)) == {
        "c/a": ["c/a"],
        "c/b": ["c/b"],
        "c/c%+1": ["c/c", "c/d"],
    }


def test_a_bundle_has_files_of_one_crawl() -> None:
    files = [*_files("a", crawl="c1"), *_files("b", crawl="c2"), *_files("c", crawl="c2")]
    assert _contents(_shards(files)) == {"c1/a": ["c1/a"], "c2/b%+1": ["c2/b", "c2/c"]}


def test_without_bundle_bytes_each_file_is_a_shard_that_needs_no_size() -> None:
    found = _shards(_files("a", "b", size=None), bundle_bytes=0)
    assert found == [
        Shard("c/a", (Member("https://h/c/a"),), FIELDS),
        Shard("c/b", (Member("https://h/c/b"),), FIELDS),
    ]


def test_files_of_unknown_size_cannot_be_joined_and_no_signature_is_told() -> None:
    files = [Listed("c", "a", Member("https://h/a?Signature=5ec2e7"))]
    with pytest.raises(SettingsError, match="the size of https://h/a is not listed") as caught:
        _shards(files)
    assert "5ec2e7" not in str(caught.value)


def test_files_that_come_later_make_new_bundles_and_change_none(registry: Registry) -> None:
    registry.register(_shards(_files("a", "c")))
    registry.register(_shards(_files("a", "b", "c", "d"), registry))
    assert _contents(registry.shards().values()) == {
        "c/a%+1": ["c/a", "c/c"],
        "c/b%+1": ["c/b", "c/d"],
    }


@pytest.mark.parametrize("bundle_bytes", [0, 1, 1000])
def test_another_size_of_bundles_changes_only_new_ones(
    registry: Registry, bundle_bytes: int
) -> None:
    registry.register(_shards(_files("a", "b", "c")))
    before = dict(registry.all())
    registry.register(_shards(_files("a", "b", "c"), registry, bundle_bytes=bundle_bytes))
    assert dict(registry.all()) == before


def test_a_shard_of_one_file_stays_one_when_files_are_joined_from_now_on(
    registry: Registry,
) -> None:
    registry.register(_shards(_files("a"), bundle_bytes=0))
    registry.register(_shards(_files("a", "b", "c"), registry))
    assert _contents(registry.shards().values()) == {"c/a": ["c/a"], "c/b%+1": ["c/b", "c/c"]}


def test_a_file_of_a_bundle_that_is_listed_no_more_stays_in_it(registry: Registry) -> None:
    registry.register(_shards(_files("a", "b")))
    moved = [Listed("c", "b", Member("https://elsewhere/b", 10))]
    registry.register(_shards(moved, registry))
    assert registry.shard("c/a%+1").members == (
        Member("https://h/c/a", 10, name="a"),
        Member("https://elsewhere/b", 10, name="b"),
    )


def test_a_retired_bundle_keeps_its_files(registry: Registry) -> None:
    registry.register(_shards(_files("a", "b")))
    registry.retire("c/a%+1")
    assert registry.register(_shards(_files("a", "b", "c"), registry)) == ["c/c"]


@pytest.mark.parametrize("name", ["a+1", "a%+1", "a%2B1"])
def test_no_file_has_the_key_of_a_bundle_whatever_its_name(registry: Registry, name: str) -> None:
    registry.register(_shards(_files("a", "b")))
    assert len(registry.register(_shards(_files("a", "b", name), registry))) == 1
    assert registry.shard("c/a%+1").files == ["c/a", "c/b"]


def test_what_two_processes_list_at_one_time_puts_no_file_into_two_shards(
    registry: Registry,
) -> None:
    one, other = _shards(_files("a", "b", "c", "d")), _shards(_files("b", "c", "d", "e"))
    registry.register(one)
    registry.register(other)
    files = [file for shard in registry.all().values() for file in shard.files]
    assert sorted(files) == ["c/a", "c/b", "c/c", "c/d"]
    registry.register(_shards(_files("a", "b", "c", "d", "e"), registry))
    files = [file for shard in registry.all().values() for file in shard.files]
    assert sorted(files) == ["c/a", "c/b", "c/c", "c/d", "c/e"]


def test_many_who_list_at_one_time_put_no_file_into_two_shards(tmp_path: Path) -> None:
    names = "abcdefghij"

    def list_and_register(start: int) -> None:
        registry = Registry(tmp_path / "registry.json")
        registry.register(_shards(_files(*names[start:], size=10 + start), registry))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(list_and_register, range(6)))
    list_and_register(0)
    shards = Registry(tmp_path / "registry.json").all().values()
    assert sorted(f for shard in shards for f in shard.files) == [f"c/{n}" for n in names]


def test_a_bundle_of_the_same_name_with_other_files_changes_none(registry: Registry) -> None:
    registry.register(_shards(_files("a", "b")))
    registry.register(_shards(_files("a", "c")))  # as another process listed at the same time
    assert registry.shard("c/a%+1").files == ["c/a", "c/b"]
    registry.register(_shards(_files("a", "b", "c"), registry))
    assert _contents(registry.all().values()) == {"c/a%+1": ["c/a", "c/b"], "c/c": ["c/c"]}
