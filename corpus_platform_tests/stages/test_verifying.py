"""Tests of verification: nothing that is stored escapes it, wanted or not."""

import json
import os
from pathlib import Path

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dedup_verdicts import latest_path
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source, fetch_shard
from corpus_platform.stages.shuffled_bins import current_path
from corpus_platform.stages.verifying import Fault, verify_all
from corpus_platform.storage import artifacts
from corpus_platform_tests.small import SHARDS, register, write_small_corpus

FIRST = SHARDS[0]
NAME = "part-00000.jsonl.zst"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small corpus of which the raw shards are there."""
    project = open_project(load_settings(write_small_corpus(tmp_path)))
    for shard in register(project):
        fetch_shard(project, shard)
    return project


def _verify(project: Project) -> tuple[int, list[Fault]]:
    return verify_all(open_project(project.settings), progress=lambda done, total: None)


def _flip(path: Path) -> None:
    """Change a byte so that nothing but the hash tells."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_of_a_whole_corpus_every_generation_is_counted_and_nothing_found(finished: Path) -> None:
    count, faults = _verify(open_project(load_settings(finished)))
    assert faults == []
    assert count == 3 * 5 + 3  # five assets by shard; clusters, tokenizer, release


def test_an_old_generation_is_hashed_too_and_its_old_source_is_no_fault(project: Project) -> None:
    old = project.present("raw_shards", FIRST)
    Path(project.shard(FIRST).members[0].location).write_bytes(b"other bytes")
    accept_source(open_project(project.settings), FIRST)
    fetch_shard(open_project(project.settings), FIRST)
    assert _verify(project) == (4, [])
    _flip(old.path(NAME))
    (fault,) = _verify(project)[1]
    assert (fault.asset, fault.partition) == ("raw_shards", FIRST)
    assert fault.reason.startswith(f"{old.path(NAME)}: sha256 ")


def test_a_generation_without_a_sound_manifest_is_a_fault(project: Project) -> None:
    gone = project.present("raw_shards", FIRST)
    gone.manifest_path.unlink()
    edited = project.present("raw_shards", SHARDS[1])
    whole = json.loads(edited.manifest_path.read_bytes())
    whole["numbers"]["files_differing"] = 1
    edited.manifest_path.write_text(json.dumps(whole), encoding="utf-8")
    moved = project.present("raw_shards", SHARDS[2]).folder
    moved.rename(moved.with_name("0" * 16))
    count, faults = _verify(project)
    assert count == 3
    assert [(f.asset, f.partition) for f in faults] == [("raw_shards", s) for s in SHARDS]
    assert faults[0].reason.startswith(f"{gone.folder}: there is no manifest; ")
    assert "its content hash does not fit" in faults[1].reason
    assert f"its manifest is that of {moved}" in faults[2].reason


def test_an_edited_manifest_that_hides_behind_size_and_time_is_not_trusted_after(
    project: Project,
) -> None:
    path = project.present("raw_shards", FIRST).manifest_path
    status, text = path.stat(), path.read_text(encoding="utf-8")
    path.write_text(text.replace('"files_differing": 0', '"files_differing": 1'), encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert open_project(project.settings).artifact("raw_shards", FIRST) is not None
    assert len(_verify(project)[1]) == 1
    assert open_project(project.settings).artifact("raw_shards", FIRST) is None


def test_a_shard_that_the_registry_does_not_know_is_verified_under_its_name(
    project: Project,
) -> None:
    path = project.present("raw_shards", FIRST).path(NAME)
    (project.store.root / "registry.json").unlink()
    _flip(path)
    (fault,) = _verify(project)[1]
    assert (fault.asset, fault.partition) == ("raw_shards", FIRST)


def test_a_source_with_other_bytes_is_a_fault_of_its_raw_shard(project: Project) -> None:
    _flip(Path(project.shard(FIRST).members[0].location))
    (fault,) = _verify(project)[1]
    assert (fault.asset, fault.partition) == ("raw_shards", FIRST)
    assert "the source has sha256 " in fault.reason


@pytest.mark.parametrize(
    ("asset", "path_of", "field"),
    [("dedup_clusters", latest_path, "key"), ("shuffled_bins", current_path, "id")],
)
def test_a_pointer_to_nothing_is_a_fault(asset: str, path_of, field: str, project: Project) -> None:
    path = path_of(project)
    path.parent.mkdir()
    path.write_text(json.dumps({field: "0123456789abcdef" * 4}), encoding="utf-8")
    words = f"{path}: points to 0123456789abcdef, of which no whole one is there"
    assert _verify(project)[1] == [Fault(asset, None, words)]
    path.write_text("{", encoding="utf-8")
    (fault,) = _verify(project)[1]
    assert fault.reason == f"{path}: not a pointer; `corpus run` sets it anew"


def test_a_file_that_the_disk_does_not_give_back_is_a_fault_and_others_are_looked_at(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, real = project.present("raw_shards", FIRST).path(NAME), artifacts.file_sha256
    _flip(project.present("raw_shards", SHARDS[2]).path("part-00000.parquet"))

    def hash_or_fail(path: Path) -> str:
        if path == bad:
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(artifacts, "file_sha256", hash_or_fail)
    first, second = _verify(project)[1]
    assert first.reason == f"{bad}: cannot be read: [Errno 5] Input/output error"
    assert second.partition == SHARDS[2]


def test_progress_counts_files_and_sources_up_to_their_number(project: Project) -> None:
    heard: list[tuple[int, int]] = []
    verify_all(open_project(project.settings), progress=lambda *said: heard.append(said))
    assert heard == [(done, 6) for done in range(7)]
