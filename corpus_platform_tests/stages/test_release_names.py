"""Tests of the names of releases: ids, beginnings, `current` and `previous`."""

import os
from pathlib import Path

import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import name_release
from corpus_platform.stages.shuffled_bins import current_path
from corpus_platform.storage.pointer import move_pointer
from corpus_platform_tests.stages.releases import empty_project, write_release


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project without a release."""
    return empty_project(tmp_path / "p")


def _made(project: Project, *, token: int, at: int) -> str:
    """Publish a release of one token whose manifest was written at a time."""
    name = write_release(project, {"train-00000": [[token]]})
    manifest = project.store.generation("shuffled_bins", None, name) / "manifest.json"
    os.utime(manifest, (at, at))
    return name


def _put_in_force(project: Project, name: str) -> None:
    move_pointer(current_path(project), {"id": name, "content": ""})


def test_a_release_has_its_id_its_beginning_and_names_for_its_turn(project: Project) -> None:
    first, second, third = (_made(project, token=t, at=1000 * t) for t in (1, 2, 3))
    for name in (first, second, third):
        assert name_release(project, name).id == name_release(project, name[:12]).id == name
    _put_in_force(project, second)  # a third one was made, and blocked
    assert name_release(project, "current").id == second
    assert name_release(project, "previous").id == first
    _put_in_force(project, first)  # settings were taken back
    assert name_release(project, "previous").id == third


def test_what_is_no_release_is_refused_with_those_that_are_there(project: Project) -> None:
    for name in ("current", "previous", "", "ab"):
        with pytest.raises(UsageError, match="corpus run"):
            name_release(project, name)
    made = _made(project, token=1, at=1000)
    for name in ("", "../x", "current.json", "ffff\0"):
        with pytest.raises(UsageError, match=f"there are {made}"):
            name_release(project, name)
    _put_in_force(project, made)
    with pytest.raises(UsageError, match=f"no release before {made}, the only one"):
        name_release(project, "previous")


def test_a_file_of_another_size_is_refused_when_it_is_asked_for(project: Project) -> None:
    release = name_release(project, _made(project, token=1, at=1000))
    path = release.path("documents.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"documents.parquet: has \d+ bytes, expected \d+"):
        release.path("documents.parquet")
    path.unlink()
    with pytest.raises(StorageError, match="is missing"):
        release.path("documents.parquet")
    assert release.excluded == {}


def test_a_release_in_force_without_a_sound_manifest_is_named(project: Project) -> None:
    old, new = (_made(project, token=t, at=1000 * t) for t in (1, 2))
    _put_in_force(project, new)
    (project.store.generation("shuffled_bins", None, new) / "manifest.json").write_text("{")
    for name in ("current", "previous"):
        with pytest.raises(
            StorageError, match=f"{new}/manifest.json is missing or damaged.*: {old}$"
        ):
            name_release(project, name)
