"""Globs name shards: which files, which crawl, which key."""

import os
from pathlib import Path

import pytest

from corpus_platform.config import Fields, SourceSettings
from corpus_platform.errors import SettingsError
from corpus_platform.storage.registry import Member, Shard
from corpus_platform.storage.sources import discover, discover_some


def _make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def _keys(folder: Path, **source: object) -> list[str]:
    return [s.key for s in discover([SourceSettings.model_validate(source)], folder)]


def test_the_crawl_of_a_glob_and_the_file_name_make_the_key(tmp_path: Path) -> None:
    _make(tmp_path, "in/crawl=2026-44/b.jsonl", "in/crawl=2026-40/a.parquet", "in/other/c.jsonl")
    assert _keys(tmp_path, glob="in/crawl={crawl}/*") == ["2026-40/a.parquet", "2026-44/b.jsonl"]


def test_files_of_one_name_in_different_folders_are_different_shards(tmp_path: Path) -> None:
    _make(tmp_path, "c1/x/part.jsonl", "c1/y/part.jsonl")
    assert _keys(tmp_path, glob="{crawl}/**/*.jsonl") == ["c1/x/part.jsonl", "c1/y/part.jsonl"]


def test_alternatives_and_classes_choose_files(tmp_path: Path) -> None:
    _make(tmp_path, "a-1.gz", "a-2.gz", "a-3.gz", "b-1.zst", "c-1.gz")
    assert _keys(tmp_path, glob="{a,b}-[12].*", crawl="x") == ["x/a-1.gz", "x/a-2.gz", "x/b-1.zst"]


@pytest.mark.parametrize("pattern", ["*.wet.gz", "**/p1.wet.gz", "c/p1.*", "p1.wet.gz"])
def test_an_excluded_file_is_left_out_however_it_is_named(tmp_path: Path, pattern: str) -> None:
    _make(tmp_path, "in/c/p1.wet.gz", "in/c/p2.gz")
    assert _keys(tmp_path, glob="in/{crawl}/*", exclude=[pattern]) == ["c/p2.gz"]


def test_hidden_and_unfinished_files_are_no_shards(tmp_path: Path) -> None:
    _make(tmp_path, "c/.a.jsonl.part", "c/a.jsonl")
    os.symlink(tmp_path / "nowhere", tmp_path / "c/dangling.jsonl")
    os.mkfifo(tmp_path / "c/pipe.jsonl")
    assert _keys(tmp_path, glob="{crawl}/*") == ["c/a.jsonl"]


def test_names_that_dagster_refuses_are_escaped_without_collision(tmp_path: Path) -> None:
    _make(tmp_path, "c/a\tb", "c/a%09b", "c/x...y")
    assert _keys(tmp_path, glob="{crawl}/*") == ["c/a%09b", "c/a%2509b", "c/x%2E..y"]


def test_a_name_that_is_not_utf8_becomes_a_key_that_is(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c/\xff.jsonl")).write_bytes(b"")
    assert _keys(tmp_path, glob="{crawl}/*") == ["c/%FF.jsonl"]


def test_one_key_claimed_by_two_files_is_refused(tmp_path: Path) -> None:
    _make(tmp_path, "one/c/a.jsonl", "two/c/a.jsonl")
    sources = [SourceSettings(glob=f"{f}/{{crawl}}/*") for f in ("one", "two")]
    with pytest.raises(SettingsError, match=r"both shard 'c/a\.jsonl'"):
        discover(sources, tmp_path)


def test_a_file_listed_twice_is_one_shard(tmp_path: Path) -> None:
    _make(tmp_path, "c/a.jsonl")
    sources = [SourceSettings(glob="{crawl}/*"), SourceSettings(glob="{crawl}/a*")]
    assert [s.key for s in discover(sources, tmp_path)] == ["c/a.jsonl"]


def test_a_crawl_that_is_linked_from_another_disk_is_listed(tmp_path: Path) -> None:
    _make(tmp_path, "disk/a.jsonl", "disk/deep/b.jsonl", "in/c1/x.jsonl")
    os.symlink(tmp_path / "disk", tmp_path / "in/c2")
    found = _keys(tmp_path, glob="in/{crawl}/**/*.jsonl")
    assert found == ["c1/x.jsonl", "c2/a.jsonl", "c2/deep/b.jsonl"]


def test_two_links_to_one_folder_are_two_crawls(tmp_path: Path) -> None:
    _make(tmp_path, "disk/a.jsonl")
    (tmp_path / "in").mkdir()
    for crawl in ("c1", "c2"):
        os.symlink(tmp_path / "disk", tmp_path / "in" / crawl)
    assert _keys(tmp_path, glob="in/{crawl}/*") == ["c1/a.jsonl", "c2/a.jsonl"]


def test_a_link_back_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    _make(tmp_path, "c/a.jsonl", "c/deep/b.jsonl")
    os.symlink(tmp_path / "c", tmp_path / "c/deep/up")
    os.symlink(tmp_path / "c/self", tmp_path / "c/self")
    assert _keys(tmp_path, glob="{crawl}/**/*.jsonl") == ["c/a.jsonl", "c/deep/b.jsonl"]


def test_a_glob_and_a_link_that_lead_nowhere_are_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _make(tmp_path, "c/a.jsonl")
    os.symlink(tmp_path / "unmounted", tmp_path / "c/linked")
    sources = [SourceSettings(glob="{crawl}/*"), SourceSettings(glob="{crawl}/*.gz")]
    assert [s.key for s in discover(sources, tmp_path)] == ["c/a.jsonl"]
    said = [r.getMessage() for r in caplog.records]
    assert f"sources: {tmp_path}/c/linked is a link to nothing, and is left out" in said
    assert f"sources: {tmp_path}/{{crawl}}/*.gz lists no file" in said


def test_no_shard_at_all_is_an_error_that_names_the_globs(tmp_path: Path) -> None:
    sources = [SourceSettings(glob="in/{crawl}/*"), SourceSettings(glob="x/*", crawl="c")]
    with pytest.raises(SettingsError, match=f"no file matches {tmp_path}/in/{{crawl}}/\\*, {tmp_path}/x/\\*;"):  # fmt: skip
        discover_some(sources, tmp_path, registered={})
    assert discover_some(sources, tmp_path, registered={"c/a": Shard("c/a", (), Fields())}) == []


def test_small_local_files_are_joined_and_named_by_the_first(tmp_path: Path) -> None:
    _make(tmp_path, "c/a.jsonl", "c/b.jsonl", "c/d/e.jsonl")
    source = SourceSettings(glob="{crawl}/**/*.jsonl", bundle_bytes=1000)
    (shard,) = discover([source], tmp_path)
    assert shard.key == "c/a.jsonl%+2"
    assert [m.name for m in shard.members] == ["a.jsonl", "b.jsonl", "d/e.jsonl"]


def test_one_key_claimed_by_two_files_is_refused_though_they_are_in_bundles(tmp_path: Path) -> None:
    _make(tmp_path, "one/c/a", "one/c/b", "two/c/a", "two/c/c", "two/c/d")
    sources = [SourceSettings(glob=f"{f}/{{crawl}}/*", bundle_bytes=1000) for f in ("one", "two")]
    with pytest.raises(SettingsError, match="are both shard 'c/a'"):
        discover(sources, tmp_path)


def test_a_sidecar_is_no_shard_and_its_file_knows_it(tmp_path: Path) -> None:
    _make(tmp_path, "c/a.jsonl", "c/a.jsonl.sha256", "c/b.sha256")
    found = discover([SourceSettings(glob="{crawl}/*")], tmp_path)
    assert [(s.key, s.members[0].sidecar) for s in found] == [
        ("c/a.jsonl", f"{tmp_path}/c/a.jsonl.sha256"),
        ("c/b.sha256", None),
    ]


def test_a_limit_takes_the_first_files_in_order(tmp_path: Path) -> None:
    _make(tmp_path, "c2/a", "c1/b", "c1/a")
    assert _keys(tmp_path, glob="{crawl}/*", limit=2) == ["c1/a", "c1/b"]


def test_a_listing_that_lies_here_names_files_beside_it(tmp_path: Path) -> None:
    _make(tmp_path, "in/x/a.jsonl", "in/x/b.jsonl")
    (tmp_path / "in/list.txt").write_text("x/a.jsonl\nx/b.jsonl\n")
    found = discover([SourceSettings(listing="in/list.txt", crawl="c", exclude=("b.*",))], tmp_path)
    assert [(s.key, s.members[0].location) for s in found] == [
        ("c/x/a.jsonl", f"{tmp_path}/in/x/a.jsonl")
    ]


def test_a_crawl_that_dagster_takes_for_no_key_is_refused(tmp_path: Path) -> None:
    _make(tmp_path, "in/2026...40/a.jsonl")
    with pytest.raises(SettingsError, match=r"'2026\.\.\.40' is no name of a crawl"):
        discover([SourceSettings(glob="in/{crawl}/*")], tmp_path)


def test_urls_that_differ_in_a_query_alone_are_not_one_shard(tmp_path: Path) -> None:
    for number in (1, 2):
        entry = f'[{{"url": "https://h/get?file={number}", "name": "a"}}]'
        (tmp_path / f"{number}.json").write_text(entry)
    sources = [SourceSettings(listing=f"{n}.json", crawl="c") for n in (1, 2)]
    with pytest.raises(SettingsError, match="are both shard 'c/a'"):
        discover(sources, tmp_path)


def test_a_url_that_was_signed_twice_is_one_shard(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(f"https://h/a?X-Amz-Signature={number}")
    sources = [SourceSettings(listing=f"{n}.txt", crawl="c") for n in (1, 2)]
    assert [shard.key for shard in discover(sources, tmp_path)] == ["c/a"]


def test_what_is_registered_is_listed_beyond_a_limit_too(tmp_path: Path) -> None:
    _make(tmp_path, "c1/a", "c1/b", "c1/c")
    registered = {"c1/c": Shard("c1/c", (Member("/moved/c"),), Fields())}
    source = SourceSettings(glob="{crawl}/*", limit=1)
    found = discover([source], tmp_path, registered=registered)
    assert [s.key for s in found] == ["c1/a", "c1/c"]
    assert found[1].members[0].location == str(tmp_path / "c1/c")
