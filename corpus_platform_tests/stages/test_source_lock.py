"""Tests of corpus.lock: what it pins, what differs from it, and what is no lock."""

import json
from pathlib import Path

import pytest

from corpus_platform.errors import SettingsError, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source, fetch_shard
from corpus_platform.stages.source_lock import (
    drop_pin,
    lock_path,
    locked_hashes,
    verify_lock,
    write_lock,
)
from corpus_platform_tests.small import register

MANIFEST, OTHER_MANIFEST = "1" * 64, "2" * 64
# Of b"a", b"bb" and b"x".
A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
BB = "3b64db95cb55c763391c707108489ae18b4112d783300de38e033b4c98c3deaf"
X = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two stored shards, locked."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c/a").write_bytes(b"a")
    (tmp_path / "c/b").write_bytes(b"bb")
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: '{crawl}/?'}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    for shard in register(project):
        fetch_shard(project, shard)
    assert write_lock(project, MANIFEST) == 2
    return project


def _differences(project: Project, manifest: str = MANIFEST) -> list[tuple[str | None, str]]:
    return verify_lock(open_project(project.settings), manifest)


def test_it_pins_files_and_the_source_manifest_and_has_its_own_hash(project: Project) -> None:
    whole = json.loads(lock_path(project).read_bytes())
    assert whole.pop("sha256") != ""
    assert whole == {
        "format": 2,
        "shards": {
            "c/a": [{"bytes": 1, "name": "a", "sha256": A}],
            "c/b": [{"bytes": 2, "name": "b", "sha256": BB}],
        },
        "source_manifest": MANIFEST,
    }
    assert locked_hashes(project, "c/a") == {"a": A}
    assert locked_hashes(project, "c/x") == {}
    assert _differences(project) == []


def test_without_a_lock_there_is_nothing_to_verify_against(project: Project) -> None:
    lock_path(project).unlink()
    with pytest.raises(UsageError, match="no lock to verify against; write it with: corpus lock"):
        _differences(project)


def test_a_stored_shard_that_is_not_locked_is_a_difference(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c/x").write_bytes(b"x")
    register(project)
    neither = "it is neither stored nor locked: first corpus run, then corpus lock"
    assert _differences(project) == [("c/x", neither)]
    fetch_shard(project, "c/x")
    assert _differences(project) == [
        ("c/x", "it is stored, and the lock does not name it; lock it: corpus lock")
    ]


def test_a_locked_shard_that_is_not_stored_is_a_difference(project: Project) -> None:
    path = next((project.settings.storage_path / "raw_shards/c/a").iterdir())
    (path / "manifest.json").unlink()
    assert _differences(project) == [
        ("c/a", "the lock names it, and no whole copy is stored; fetch it: corpus fetch")
    ]


def test_a_locked_shard_that_was_retired_is_a_difference(project: Project) -> None:
    project.registry.retire("c/a")
    assert _differences(project) == [
        ("c/a", "the lock names it, and it is retired; lock what is left: corpus lock")
    ]


def test_accepted_bytes_are_a_difference_that_names_both_hashes(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c/a").write_bytes(b"x")
    lock = lock_path(project).read_bytes()
    accept_source(open_project(project.settings), "c/a")
    fetch_shard(open_project(project.settings), "c/a")
    lock_path(project).write_bytes(lock)  # as another branch has it
    ((shard, reason),) = _differences(project)
    assert shard == "c/a"
    assert reason == f"stored is a sha256 {X}, the lock has a sha256 {A}"


def test_stored_bytes_that_rotted_are_a_difference(project: Project) -> None:
    artifact = project.artifact("raw_shards", "c/b")
    assert artifact is not None
    artifact.path("b").write_bytes(b"bx")
    ((shard, reason),) = _differences(project)
    assert shard == "c/b"
    assert f"expected {BB}" in reason


def test_another_source_manifest_is_a_difference(project: Project) -> None:
    ((shard, reason),) = _differences(project, OTHER_MANIFEST)
    assert shard is None
    assert f"has sha256 {OTHER_MANIFEST}, the lock has {MANIFEST}" in reason


def test_a_dropped_pin_pins_no_source_manifest_either(project: Project) -> None:
    drop_pin(project, "c/a")
    assert [shard for shard, _ in _differences(project)] == ["c/a", None]
    assert "pins no source manifest" in _differences(project)[1][1]


def test_a_lock_of_format_1_is_read(project: Project) -> None:
    whole = json.loads(lock_path(project).read_bytes())
    old = {"format": 1, "shards": whole["shards"]}
    lock_path(project).write_text(json.dumps(old))
    assert locked_hashes(open_project(project.settings), "c/b") == {"b": BB}
    assert [shard for shard, _ in _differences(project)] == [None]
    old["shards"]["c/b"][0]["sha256"] = X
    lock_path(project).write_text(json.dumps(old))
    assert [shard for shard, _ in _differences(project)] == ["c/b", None]


def _merged(data: str) -> str:
    line = f'    "sha256": "{A}"\n'
    assert line in data
    return data.replace(line, f"<<<<<<< ours\n{line}=======\n{line}>>>>>>> theirs\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_merged, "the marks of a merge that was not finished"),
        (lambda data: data.replace(A, X), "its sha256 is [0-9a-f]{64}, recorded in it is"),
        (lambda data: data.replace('"format": 2', '"format": 3'), "format 3 is unknown"),
        (lambda data: data.replace('"bytes"', '"size"'), "KeyError"),
        (lambda data: data[:-5], "JSONDecodeError"),
        (lambda data: "[]", "TypeError"),
        (lambda data: '{"format": 2, "shards": {"c/a": 1}}', "TypeError"),
        (lambda data: '{"format": 2, "shards": []}', "AttributeError"),
        (lambda data: "", "JSONDecodeError"),
    ],
)
def test_what_is_no_lock_says_so_and_the_way_out(project: Project, damage, words: str) -> None:
    lock_path(project).write_text(damage(lock_path(project).read_text()))
    project = open_project(project.settings)
    for look in (lambda: _differences(project), lambda: locked_hashes(project, "c/a")):
        with pytest.raises(SettingsError, match=f"not a lock file: .*{words}.*corpus lock"):
            look()
