"""Tests of the clusters: a row per document, twins that are kept, and counts that add up."""

import re
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.document import CLUSTERS, EDGES
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact
from corpus_platform_tests.small import SHARDS


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _clusters(project: Project) -> Artifact:
    found = project.artifact("dedup_clusters", None)
    assert found is not None
    return found


def _table(project: Project) -> pl.DataFrame:
    return pl.read_parquet(_clusters(project).path("clusters.parquet"))


def test_a_second_call_does_nothing(project: Project) -> None:
    assert cluster_documents(project).made is False


def test_the_tables_have_the_schemas_of_the_design(project: Project) -> None:
    folder = _clusters(project)
    assert pq.read_schema(folder.path("clusters.parquet")).equals(CLUSTERS)
    assert pq.read_schema(folder.path("edges.parquet")).equals(EDGES)


def test_rows_stand_in_key_order_one_for_each_cleaned_document(project: Project) -> None:
    wanted = []
    for shard in SHARDS:
        cleaned = project.artifact("cleaned_documents", shard)
        assert cleaned is not None
        rows = pq.read_table(cleaned.path("documents.parquet"))["row"].to_pylist()
        wanted += [(shard, row) for row in rows]
    assert _table(project).select("shard", "row").rows() == wanted


def test_the_counts_add_up(project: Project) -> None:
    ledger, table = _clusters(project).manifest.ledger, _table(project)
    assert ledger["documents"] == len(table) == 277
    assert ledger["kept"] + ledger["exact_copies"] + ledger["near_copies"] == 277
    assert ledger["train"] + ledger["validation"] == ledger["kept"]
    assert (ledger["shards"], ledger["excluded"]) == (3, [])
    assert list(ledger["verdicts"]) == list(SHARDS)


def test_copies_of_the_second_crawl_name_their_twins_in_the_first(project: Project) -> None:
    again = _table(project).filter(pl.col("id").str.starts_with("again-"))
    dropped = again.filter(~pl.col("kept"))
    assert len(dropped) >= 15  # of ten exact and ten changed ones, as far as the rules keep them
    own = dropped.filter(pl.col("twin_id") == pl.col("id").str.strip_prefix("again-"))
    assert own["twin_shard"].unique().to_list() == [SHARDS[0]]
    assert dropped.filter(pl.col("kind") == "exact")["similarity"].unique().to_list() == [1.0]
    assert all(s >= 0.8 for s in dropped["similarity"])
    assert dropped["split"].null_count() == len(dropped)


def test_a_kept_document_has_a_split_and_no_twin(project: Project) -> None:
    kept = _table(project).filter("kept")
    for column in ("kind", "twin_shard", "twin_row", "twin_id", "similarity"):
        assert kept[column].null_count() == len(kept)
    assert set(kept["split"].unique().to_list()) == {"train", "validation"}


def test_comparing_all_pairs_the_slow_way_keeps_the_same_documents(project: Project) -> None:
    kept: list[set[tuple[str, ...]]] = []
    found = []
    for shard in SHARDS:
        texts = pl.read_parquet(
            project.present("cleaned_documents", shard).path("documents.parquet")
        )
        for text in texts["text"]:
            words = re.findall(r"\w+", text.lower())
            shingles = set(zip(*(words[i:] for i in range(5)), strict=False))
            found.append(all(len(shingles & k) < 0.8 * len(shingles | k) for k in kept))
            if found[-1]:
                kept.append(shingles)
    assert _table(project)["kept"].to_list() == found
    assert len(kept) == 241


def test_edges_are_pairs_at_or_above_the_threshold(project: Project) -> None:
    edges = pl.read_parquet(_clusters(project).path("edges.parquet"))
    assert len(edges) == _clusters(project).manifest.ledger["edges"] > 0
    assert all(s >= 0.8 for s in edges["similarity"])


def test_another_threshold_keeps_more(project: Project, finished: Path) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("dedup: {threshold: 1}\n")
    report = cluster_documents(open_project(load_settings(finished)))
    assert report.made
    before, after = _clusters(project).manifest.ledger, report.artifact.manifest.ledger
    assert after["near_copies"] < before["near_copies"]
    assert after["kept"] > before["kept"]


def test_nothing_of_the_work_is_left_in_scratch(project: Project) -> None:
    assert not list((project.store.root / "scratch").rglob("*.*"))
