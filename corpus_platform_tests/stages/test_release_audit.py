"""Tests of the release's audit: each document that is missing, foreign or changed is counted."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import publish_release, release_in_force


@pytest.fixture
def windows(finished: Path) -> Project:
    """The finished small corpus with another release, of windows."""
    with finished.open("a", encoding="utf-8") as file:
        file.write("shuffle: {unit: windows, window_tokens: 100}\n")
    project = open_project(load_settings(finished))
    publish_release(project)
    return project


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _alter(project: Project, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    path = project.present("shuffled_bins", None).path("documents.parquet")
    schema = pq.read_schema(path)
    pq.write_table(change(pl.read_parquet(path)).to_arrow().cast(schema), path)


def _numbers(project: Project) -> dict[str, float]:
    found = project.audit("shuffled_bins", None)
    faults = ("documents_differing", "leaked", "files_differing", "tokens_unaccounted")
    return {name: found[name] for name in faults if found[name]}


def test_a_sound_release_has_no_faults(project: Project) -> None:
    assert _numbers(project) == {}
    assert project.audit("shuffled_bins", None)["documents"] == 241


def test_two_documents_that_change_places_in_the_list_are_four_that_differ(
    project: Project,
) -> None:
    """Each is missing under its own name, and foreign under the other's."""
    place = pl.int_range(pl.len())
    other = pl.when(place == 0).then(1).when(place == 1).then(0).otherwise(place)
    _alter(project, lambda rows: rows.with_columns(pl.col("shard", "row", "id").gather(other)))
    assert _numbers(project) == {"documents_differing": 4}


def test_a_document_of_an_unknown_shard_is_foreign_and_its_own_is_missing(
    project: Project,
) -> None:
    shard = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("2026-40/none"))
    _alter(project, lambda rows: rows.with_columns(shard=shard.otherwise(pl.col("shard"))))
    assert _numbers(project) == {"documents_differing": 2}


def test_a_document_listed_in_a_file_that_is_not_there_is_counted(project: Project) -> None:
    def more(rows: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([rows, rows.head(1).with_columns(file=pl.lit("train-00009.bin"))])

    _alter(project, more)
    assert _numbers(project) == {"documents_differing": 1}


def test_a_release_all_of_whose_documents_are_of_unknown_shards_is_audited_to_the_end(
    project: Project,
) -> None:
    """Each is foreign and missing, and of none of those that are drawn there is a text."""
    _alter(project, lambda rows: rows.with_columns(shard=pl.col("shard") + "x"))
    found = project.audit("shuffled_bins", None)
    assert (found["documents_differing"], found["leaked"]) == (2 * 241, 0)
    assert 8 <= found["undecodable"] <= 10


def test_of_documents_in_a_file_that_is_not_there_no_text_is_found(project: Project) -> None:
    _alter(project, lambda rows: rows.with_columns(file=pl.lit("train-00009.bin")))
    assert 8 <= project.audit("shuffled_bins", None)["undecodable"] <= 10


def test_documents_that_are_listed_as_their_neighbours_are_not_their_texts(
    project: Project,
) -> None:
    assert project.audit("shuffled_bins", None)["undecodable"] == 0
    _alter(
        project,
        lambda rows: rows.with_columns(pl.col("shard", "row", "id").shift().backward_fill()),
    )
    assert 8 <= project.audit("shuffled_bins", None)["undecodable"] <= 10


def test_windows_that_cut_documents_anywhere_have_no_faults_and_become_current(
    windows: Project,
) -> None:
    artifact = windows.require("shuffled_bins", None)
    pieces = pl.read_parquet(artifact.path("documents.parquet"))
    assert (pieces["offset"] > 0).any()
    assert _numbers(windows) == {}
    assert windows.audit("shuffled_bins", None)["documents"] == 241
    assert (release_in_force(windows) or {})["path"] == str(artifact.folder)


def test_a_piece_in_a_window_that_is_listed_as_of_another_document_is_counted(
    windows: Project,
) -> None:
    """It is missing under its own name, and foreign under the other's."""
    second = pl.when(pl.int_range(pl.len()) == 1)
    _alter(windows, lambda rows: rows.with_columns(row=second.then(7777).otherwise("row")))
    assert _numbers(windows) == {"documents_differing": 2}
