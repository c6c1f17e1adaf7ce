"""Tests of the verdicts: per shard what the table says, published only where it changed."""

import shutil
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.document import VERDICTS
from corpus_platform.errors import Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.dedup_verdicts import latest_clusters, latest_path, verdict_contents
from corpus_platform.stages.project import Project
from corpus_platform_tests.small import SHARDS


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def test_a_verdict_says_row_kept_and_split_as_the_table_does(project: Project) -> None:
    table = pl.read_parquet(latest_clusters(project).path("clusters.parquet"))
    for shard in SHARDS:
        path = project.present("dedup_verdicts", shard).path("verdict.parquet")
        assert pq.read_schema(path).equals(VERDICTS)
        wanted = table.filter(pl.col("shard") == shard).select("row", "kept", "split")
        assert pl.read_parquet(path).equals(wanted)


def test_a_clusters_run_that_decides_the_same_publishes_no_verdict_again(
    project: Project, finished: Path
) -> None:
    before = verdict_contents(project)
    files = {s: project.present("dedup_verdicts", s).manifest_path.stat().st_mtime_ns for s in SHARDS}  # fmt: skip
    with finished.open("a", encoding="utf-8") as file:
        file.write("dedup: {threshold: 0.81}\n")
    again = open_project(load_settings(finished))
    assert cluster_documents(again).made
    assert verdict_contents(again) == before
    assert {s: again.present("dedup_verdicts", s).manifest_path.stat().st_mtime_ns for s in SHARDS} == files  # fmt: skip


def test_only_the_shards_whose_verdict_changed_get_another(
    project: Project, finished: Path
) -> None:
    before, old = verdict_contents(project), _kept(project)
    with finished.open("a", encoding="utf-8") as file:
        file.write("dedup: {threshold: 0.97}\n")
    again = open_project(load_settings(finished))
    cluster_documents(again)
    after, new = verdict_contents(again), _kept(again)
    for shard in SHARDS:
        assert (after[shard] != before[shard]) is (old[shard] != new[shard])
    assert old != new


def _kept(project: Project) -> dict[str, list]:
    """Return what the table in force says of each shard."""
    table = pl.read_parquet(latest_clusters(project).path("clusters.parquet"))
    columns = ("row", "kept", "split")
    return {s: table.filter(pl.col("shard") == s).select(columns).rows() for s in SHARDS}


def test_the_clusters_of_other_settings_give_no_verdict(project: Project, finished: Path) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("split: {seed: 1}\n")
    text = finished.read_text(encoding="utf-8").replace("split: {validation: 0.02}\n", "")
    finished.write_text(text, encoding="utf-8")
    with pytest.raises(Uncleared, match=r"dedup_clusters: current: .*settings changed"):
        open_project(load_settings(finished)).require("dedup_verdicts", SHARDS[0])


def test_before_the_first_clusters_there_are_none(project: Project) -> None:
    latest_path(project).unlink()
    assert verdict_contents(project) == {}
    with pytest.raises(Uncleared, match="dedup_clusters: current: never made"):
        project.require("dedup_verdicts", SHARDS[0])


@pytest.mark.parametrize("said", [b"", b"{", b"[1]", b"null", b'{"key": 7}', b"\xff"])
def test_a_pointer_that_says_nothing_counts_as_none_and_is_written_anew(
    project: Project, said: bytes
) -> None:
    whole = latest_path(project).read_bytes()
    latest_path(project).write_bytes(said)
    assert verdict_contents(project) == {}
    assert not cluster_documents(open_project(project.settings)).made
    assert latest_path(project).read_bytes() == whole


def test_a_verdict_that_is_gone_is_published_again_with_the_same_content(
    project: Project,
) -> None:
    before, clusters = verdict_contents(project), latest_clusters(project).manifest_path
    written = clusters.stat().st_mtime_ns
    shutil.rmtree(project.store.folder("dedup_verdicts", SHARDS[1]))
    with pytest.raises(Uncleared, match="its verdict is missing; materialize dedup_clusters"):
        project.require("dedup_verdicts", SHARDS[1])
    assert not cluster_documents(open_project(project.settings)).made
    assert verdict_contents(open_project(project.settings)) == before
    assert clusters.stat().st_mtime_ns == written  # cut from the stored table
