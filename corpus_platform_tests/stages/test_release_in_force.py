"""Tests of what comes into force: a release that lacks documents waits for a person to say so."""

import shutil
from pathlib import Path

import pytest

from corpus_platform.planner import survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.pinned_release import find_release
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.shuffled_bins import publish_release, release_in_force
from corpus_platform_tests.once import made_once
from corpus_platform_tests.small import SHARDS

FEWER = "clean: {set: {too_short.min_chars: 1200}}"
WAIVER = "waivers: [{gate: shrunk, reason: short ones are not wanted, expires: 2999-12-31}]"


def _remade(project: Project) -> Report:
    _packed(project)
    return publish_release(project)


def _packed(project: Project) -> None:
    for shard in project.shards():
        clean_documents(project, shard)
        sign_documents(project, shard)
    cluster_documents(project)
    for shard in project.shards():
        pack_shard(project, shard)


@pytest.fixture(scope="module")
def fewer_once(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished corpus, with all but a release made of fewer documents too."""

    def make(folder: Path) -> None:
        shutil.copytree(finished_once, folder, dirs_exist_ok=True)
        _packed(_set(folder / "corpus.yaml", FEWER))
        (folder / "plain.yaml").replace(folder / "corpus.yaml")
        latest = open_project(load_settings(folder / "corpus.yaml"))
        cluster_documents(latest)  # the clusters in force are those of the release

    return made_once(tmp_path_factory.getbasetemp(), "fewer", make)


@pytest.fixture
def fewer(fewer_once: Path, tmp_path: Path) -> Path:
    """The settings file of a copy of that corpus, as it is without that change."""
    shutil.copytree(fewer_once, tmp_path / "fewer")
    return tmp_path / "fewer" / "corpus.yaml"


def _set(config: Path, *lines: str) -> Project:
    """Return the project with more settings than the small corpus has."""
    plain = config.with_name("plain.yaml")
    if not plain.exists():
        plain.write_text(config.read_text())
    config.write_text(plain.read_text() + "".join(f"{line}\n" for line in lines))
    return open_project(load_settings(config))


def _in_force(project: Project) -> str:
    found = release_in_force(project)
    assert found is not None
    return found["id"]


def _red(report: Report) -> list[str]:
    return [f.gate for f in report.findings if f.blocks]


def test_the_first_release_has_nothing_to_match(finished: Path) -> None:
    project = open_project(load_settings(finished))
    numbers = project.present("shuffled_bins", None).numbers
    assert (numbers["documents"], numbers["documents_in_force"]) == (241, 0)
    assert project.audit("shuffled_bins", None)["documents_in_force"] == 241  # it is in force now
    assert survey(project).of("shuffled_bins").state == "current"


def test_a_setting_that_drops_documents_waits_for_a_waiver_and_then_settles(fewer: Path) -> None:
    first = _in_force(open_project(load_settings(fewer)))
    project = _set(fewer, FEWER)
    report = _remade(project)
    assert _red(report) == ["shrunk"]
    assert report.artifact.numbers["documents_in_force"] == 241
    assert _in_force(project) == first
    state = survey(project).of("shuffled_bins")
    assert (state.state, state.gate, state.due) == ("blocked", "shrunk", False)
    made = report.artifact.folder.name
    assert find_release(project, made).id == made  # by name it may be read

    waived = _set(fewer, FEWER, WAIVER)
    assert survey(waived).of("shuffled_bins").due
    assert publish_release(waived).made is False
    assert _in_force(waived) == made
    assert survey(waived).of("shuffled_bins").state == "current"

    later = _set(fewer, FEWER)  # the waiver is gone, and not needed any more
    assert survey(later).of("shuffled_bins").state == "current"
    assert _red(publish_release(later)) == []

    back = open_project(load_settings(fewer.with_name("plain.yaml")))  # more documents again
    assert _red(_remade(back)) == []
    assert _in_force(back) == first
    again = _set(fewer, FEWER)  # a release that was in force once is held back like a new one
    assert _red(_remade(again)) == ["shrunk"]
    assert _in_force(again) == first


def test_a_retired_shard_is_no_loss(finished: Path) -> None:
    project = open_project(load_settings(finished))
    project.registry.retire(SHARDS[1])
    project = open_project(load_settings(finished))
    report = _remade(project)
    assert report.made
    assert _red(report) == []
    assert _in_force(project) == report.artifact.folder.name


@pytest.mark.parametrize("lost", ["folder", "documents.parquet"])
def test_a_release_in_force_that_was_deleted_holds_nothing_back(lost: str, fewer: Path) -> None:
    project = open_project(load_settings(fewer))
    folder = project.present("shuffled_bins", None).folder
    if lost == "folder":
        folder.rename(folder.with_name("elsewhere"))
    else:
        (folder / lost).unlink()
    report = _remade(_set(fewer, FEWER))
    assert _red(report) == []
    assert report.artifact.numbers["documents_in_force"] == 0


@pytest.mark.parametrize("hurt", ["zeros", "cut"])
def test_a_release_in_force_whose_table_is_damaged_is_matched_by_its_manifest(
    hurt: str, fewer: Path
) -> None:
    project = open_project(load_settings(fewer))
    release = project.present("shuffled_bins", None)
    path, documents = release.path("documents.parquet"), release.numbers["documents"]
    data = path.read_bytes()
    path.write_bytes(data[:-9] if hurt == "cut" else data[:4] + bytes(len(data) - 8) + data[-4:])
    report = _remade(_set(fewer, FEWER))
    assert _red(report) == ["shrunk"]
    assert report.artifact.numbers["documents_in_force"] == documents


def test_where_neither_table_nor_manifest_can_be_read_it_is_said_that_nothing_is_matched(
    fewer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release = open_project(load_settings(fewer)).present("shuffled_bins", None)
    for name in ("documents.parquet", "manifest.json"):
        path = release.folder / name
        path.write_bytes(path.read_bytes()[:-9])
    report = _remade(_set(fewer, FEWER))
    assert report.artifact.numbers["documents_in_force"] == 0
    said = [record.getMessage() for record in caplog.records]
    assert any(
        one.startswith("nothing is matched with the release in force: ")
        and f"{release.folder}/manifest.json" in one
        for one in said
    )
