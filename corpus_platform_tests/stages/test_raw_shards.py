"""Tests of the raw shards: unchanged bytes, their recorded hashes, and who may change them."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_platform.config import Fields
from corpus_platform.errors import SettingsError, StorageError, Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import members, source_lock
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.members import member_names
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source, fetch_shard
from corpus_platform.stages.source_lock import lock_path, write_lock
from corpus_platform.storage.registry import Member, Shard
from corpus_platform_tests.small import SHARDS, register, write_small_corpus

FIRST = SHARDS[0]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small corpus whose shards are registered, and nothing more."""
    project = open_project(load_settings(write_small_corpus(tmp_path)))
    register(project)
    return project


def _source(project: Project) -> Path:
    return Path(project.shard(FIRST).members[0].location)


def _again(project: Project) -> Project:
    return open_project(project.settings)


def test_a_shard_is_the_bytes_of_its_source_with_their_hash_and_size(project: Project) -> None:
    data = _source(project).read_bytes()
    report = fetch_shard(project, FIRST)
    assert report.made
    assert report.artifact.path("part-00000.jsonl.zst").read_bytes() == data
    sha256 = hashlib.sha256(data).hexdigest()
    member = {"name": "part-00000.jsonl.zst", "bytes": len(data), "sha256": sha256}
    verified = {"length": 1}
    whole = {"members": [member], "bytes": len(data), "_verified": verified}
    assert report.artifact.manifest.ledger == whole
    assert dict(report.artifact.numbers) == {
        "files": 1,
        "bytes": len(data),
        "files_differing": 0,
        "sizes_differing": 0,
        "verified/nothing": 0,
        "verified/length": 1,  # of a local file, whose size did not change while it was read
        "verified/sha256": 0,
    }


def test_files_in_the_store_are_called_as_their_sources() -> None:
    locations = ["s3://b/c/a?1.jsonl.gz", "s3://b/c/a?2.jsonl.gz", "https://h/a?sig=x", "/c/a?3"]
    shards = [Shard("c/a", (Member(location),), Fields()) for location in locations]
    names = ["a%3F1.jsonl.gz", "a%3F2.jsonl.gz", "a", "a%3F3"]
    assert [member_names(shard) for shard in shards] == [[name] for name in names]


def test_a_second_call_does_nothing(project: Project) -> None:
    first = fetch_shard(project, FIRST)
    before = first.artifact.manifest_path.stat().st_mtime_ns
    again = fetch_shard(_again(project), FIRST)
    assert again.made is False
    assert again.artifact.manifest_path.stat().st_mtime_ns == before


def test_progress_ends_at_the_bytes_of_the_source(project: Project) -> None:
    seen: list[tuple[int, int | None]] = []
    fetch_shard(project, FIRST, progress=lambda done, total: seen.append((done, total)))
    size = _source(project).stat().st_size
    assert seen[-1] == (size, size)


def test_a_damaged_copy_is_fetched_again(project: Project) -> None:
    path = fetch_shard(project, FIRST).artifact.path("part-00000.jsonl.zst")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert fetch_shard(_again(project), FIRST).made
    assert path.read_bytes() == data


def test_a_source_that_changed_is_refused_with_both_hashes(project: Project) -> None:
    before = hashlib.sha256(_source(project).read_bytes()).hexdigest()
    fetch_shard(project, FIRST)
    _source(project).write_bytes(b"other bytes")
    now = hashlib.sha256(b"other bytes").hexdigest()
    with pytest.raises(Uncleared) as refusal:
        fetch_shard(_again(project), FIRST)
    assert refusal.value.gate == "source_unchanged"
    assert before in refusal.value.reason
    assert now in refusal.value.reason
    assert f"corpus lock --accept {FIRST}" in refusal.value.reason


def test_accepted_bytes_are_a_new_generation_beside_the_old_one(project: Project) -> None:
    old = fetch_shard(project, FIRST).artifact
    _source(project).write_bytes(b"other bytes")
    accept_source(_again(project), FIRST)
    new = fetch_shard(_again(project), FIRST)
    assert new.made
    assert new.artifact.folder != old.folder
    assert new.artifact.path("part-00000.jsonl.zst").read_bytes() == b"other bytes"
    assert old.path("part-00000.jsonl.zst").exists()


def test_a_source_that_is_not_there_is_refused_in_words(project: Project) -> None:
    _source(project).unlink()
    with pytest.raises(Uncleared, match=r"source_present: .* is not there any more"):
        fetch_shard(project, FIRST)


def test_a_failure_that_cannot_be_noted_is_told_all_the_same(project: Project) -> None:
    _source(project).unlink()
    (project.settings.storage_path / "failures").write_bytes(b"")  # no note fits, as on a full disk
    with pytest.raises(Uncleared, match=r"source_present: .* is not there any more"):
        fetch_shard(project, FIRST)


def test_a_source_that_is_a_device_or_a_pipe_is_refused_and_not_read(project: Project) -> None:
    source = _source(project)
    source.unlink()
    source.symlink_to("/dev/zero")
    with pytest.raises(Uncleared, match=r"source_present: .*: a pipe or a device; list files"):
        fetch_shard(project, FIRST)
    source.unlink()
    os.mkfifo(source)
    with pytest.raises(Uncleared, match=r"source_present: .*: a pipe or a device; list files"):
        fetch_shard(project, FIRST)


def test_a_source_that_is_written_to_while_it_is_read_is_not_taken(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = members.copy_hashed

    def copy_and_touch(source: Path, target: Path, **rest) -> tuple[int, str]:
        found = real(source, target, **rest)
        os.utime(source, ns=(5, 5))
        return found

    monkeypatch.setattr(members, "copy_hashed", copy_and_touch)
    with pytest.raises(StorageError, match="changed while it was read; run again"):
        fetch_shard(project, FIRST)
    assert project.artifact("raw_shards", FIRST) is None


def test_a_lock_pins_the_hashes_of_all_stored_shards(project: Project) -> None:
    for shard in SHARDS:
        fetch_shard(project, shard)
    assert write_lock(project, "0" * 64) == 3
    whole = json.loads(lock_path(project).read_bytes())
    assert list(whole["shards"]) == list(SHARDS)
    assert (
        whole["shards"][FIRST][0]["sha256"]
        == hashlib.sha256(_source(project).read_bytes()).hexdigest()
    )


def test_a_shard_with_other_bytes_than_locked_is_refused(project: Project) -> None:
    fetch_shard(project, FIRST)
    write_lock(project, "0" * 64)
    lock = lock_path(project)
    whole = json.loads(lock.read_bytes())
    whole["shards"][FIRST][0]["sha256"] = "0" * 64
    lock.write_text(json.dumps(whole | {"format": 1}), encoding="utf-8")  # 2 has its own hash
    with pytest.raises(Uncleared) as refusal:
        fetch_shard(_again(project), FIRST)
    assert refusal.value.gate == "lock"
    accept_source(_again(project), FIRST)
    assert FIRST not in json.loads(lock.read_bytes())["shards"]


def test_a_lock_that_is_none_is_an_error_that_says_the_way_out(project: Project) -> None:
    for text in ("{", "[" * 100_000):
        lock_path(project).write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError, match=r"not a lock file: .*anew with: corpus lock"):
            fetch_shard(project, FIRST)


def test_accepted_bytes_make_the_content_that_a_fresh_build_of_them_makes(
    project: Project, tmp_path: Path
) -> None:
    fetch_shard(project, FIRST)
    source = _source(project)
    source.write_bytes(source.read_bytes() + b"\n")
    accept_source(_again(project), FIRST)
    accepted = fetch_shard(_again(project), FIRST).artifact.content
    fresh = _again(project).settings.model_copy(update={"storage": str(tmp_path / "fresh")})
    anew = open_project(fresh, shards={FIRST: replace(project.shard(FIRST), generation=0)})
    assert fetch_shard(anew, FIRST).artifact.content == accepted


def test_a_lock_is_parsed_once_until_it_changes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in SHARDS:
        fetch_shard(project, shard)
    write_lock(project, "0" * 64)
    parsed: list[object] = []
    loads = json.loads

    def watched(data: bytes | str) -> object:
        found = loads(data)
        if "shards" in found:
            parsed.append(found)
        return found

    monkeypatch.setattr(source_lock.json, "loads", watched)
    project.registry.shards()
    parsed.clear()
    for _ in range(3):
        for shard in SHARDS:
            project.require("raw_shards", shard)
    assert len(parsed) == 1
    lock_path(project).write_text('{"format": 1, "shards": {}}', encoding="utf-8")
    project.require("raw_shards", FIRST)
    assert len(parsed) == 2


def test_a_source_that_cannot_be_read_is_a_fault_of_storage_that_another_try_may_heal(
    project: Project,
) -> None:
    _source(project).unlink()
    _source(project).mkdir()  # reading fails, as from a disk that does
    with pytest.raises(StorageError, match=r"Is a directory.*; run again"):
        fetch_shard(project, FIRST)
