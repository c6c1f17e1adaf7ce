"""Tests of pins: by name or id, each name once, and gone with --remove even where the release is."""

import json
import shutil
from pathlib import Path

import pytest

from corpus_platform.errors import UsageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_pins import (
    pin_release,
    pins_path,
    read_pins,
    unpin_release,
)
from corpus_platform_tests.stages.releases import empty_project, write_release


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with no release that anybody pinned."""
    return empty_project(tmp_path / "p")


def test_a_pin_stands_in_a_file_beside_the_releases(project: Project) -> None:
    release = write_release(project, {"train-00000": [[5]]})
    assert read_pins(project) == {}
    assert pin_release(project, release[:12], "gpt-1") == ("gpt-1", release)
    assert pins_path(project).parent == project.store.folder("shuffled_bins", None)
    assert json.loads(pins_path(project).read_bytes()) == {"format": 1, "pins": {"gpt-1": release}}


def test_without_a_name_the_id_is_the_name_and_twice_is_once(project: Project) -> None:
    release = write_release(project, {"train-00000": [[5]]})
    for _ in range(2):
        assert pin_release(project, release) == (release, release)
    assert read_pins(project) == {release: release}


def test_a_name_is_on_one_release_only(project: Project) -> None:
    one, two = (write_release(project, {"train-00000": [[i]]}) for i in (5, 6))
    pin_release(project, one, "gpt-1")
    with pytest.raises(UsageError, match=f"pin 'gpt-1' is on release {one}; take it away first"):
        pin_release(project, two, "gpt-1")
    assert read_pins(project) == {"gpt-1": one}


def test_one_pin_of_a_release_or_all_of_them_are_taken_away(project: Project) -> None:
    one, two = (write_release(project, {"train-00000": [[i]]}) for i in (5, 6))
    for release, name in ((one, "a"), (one, "b"), (one, "c"), (two, "d")):
        pin_release(project, release, name)
    assert unpin_release(project, one, "b") == [("b", one)]
    assert unpin_release(project, one) == [("a", one), ("c", one)]
    assert read_pins(project) == {"d": two}


def test_the_pin_of_a_release_that_is_gone_can_be_taken_away(project: Project) -> None:
    release = write_release(project, {"train-00000": [[5]]})
    pin_release(project, release)
    shutil.rmtree(project.store.folder("shuffled_bins", None) / release)
    assert unpin_release(project, release[:8]) == [(release, release)]


@pytest.mark.parametrize("release", ["", "ffff", "../x"])
def test_what_is_not_pinned_cannot_be_taken_away(release: str, project: Project) -> None:
    made = write_release(project, {"train-00000": [[5]]})
    pin_release(project, made, "gpt-1")
    with pytest.raises(UsageError, match=rf"no pin of release '{release}': pinned are {made} \(gpt-1\)"):  # fmt: skip
        unpin_release(project, release)


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "a/b", "x" * 101, "a\n"])
def test_a_name_is_plain(name: str, project: Project) -> None:
    release = write_release(project, {"train-00000": [[5]]})
    with pytest.raises(UsageError, match="--name"):
        pin_release(project, release, name)
