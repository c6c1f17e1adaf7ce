"""Tests of the clusters' audit: what exact means, and edges that are held against the texts."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages import clusters_audit
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.clusters_audit import telling
from corpus_platform.stages.project import Project
from corpus_platform_tests.small import SHARDS
from corpus_platform_tests.stages.near_copies import cluster, new_corpus, prose


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _alter(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    schema = pq.read_schema(path)
    pq.write_table(change(pl.read_parquet(path)).to_arrow().cast(schema), path)


def test_exact_copies_are_the_documents_less_the_distinct_texts(project: Project) -> None:
    digests = pl.concat(
        pl.read_parquet(project.present("minhash_signatures", s).path("signatures.parquet"))
        for s in SHARDS
    )["digest"]
    numbers = project.audit("dedup_clusters", None)
    assert numbers["exact_copies"] == len(digests) - digests.n_unique() > 0
    assert numbers["wrong_copies"] == 0


def test_a_kind_that_is_turned_is_one_wrong_copy(project: Project) -> None:
    path = project.present("dedup_clusters", None).path("clusters.parquet")
    first = pl.int_range(pl.len()) == (pl.col("kind") == "near").arg_max()
    kind = pl.when(first).then(pl.lit("exact")).otherwise(pl.col("kind"))
    _alter(path, lambda rows: rows.with_columns(kind=kind))
    assert project.audit("dedup_clusters", None)["wrong_copies"] == 1


@pytest.mark.parametrize("similarity", [0.7999, 1.0001, float("nan")])
def test_every_edge_out_of_bounds_is_counted(project: Project, similarity: float) -> None:
    path = project.present("dedup_clusters", None).path("edges.parquet")
    edges = len(pl.read_parquet(path))
    assert project.audit("dedup_clusters", None)["wrong_similarities"] == 0
    _alter(path, lambda rows: rows.with_columns(similarity=pl.lit(similarity)))
    assert edges <= 50
    # Each is out of bounds, and each, all being in the sample, is not what the texts give.
    assert project.audit("dedup_clusters", None)["wrong_similarities"] == 2 * edges


def test_an_edge_between_documents_that_are_not_there_is_wrong(project: Project) -> None:
    path = project.present("dedup_clusters", None).path("edges.parquet")
    _alter(path, lambda rows: rows.head(1).with_columns(row_b=pl.lit(999_999, pl.Int64)))
    assert project.audit("dedup_clusters", None)["wrong_similarities"] == 1


def test_of_texts_that_are_too_large_together_the_first_pairs_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = cluster(new_corpus(tmp_path, {"2026-40/a": [prose(1)] * 9, "2026-40/b": [prose(2)]}))
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    rows = [("2026-40/a.jsonl", i, "2026-40/a.jsonl", 0, 1.0) for i in range(1, 9)]
    size = len(prose(1).encode())
    monkeypatch.setattr(clusters_audit, "SAMPLED_BYTES", 4 * size)
    assert clusters_audit._affordable(project, rows) == rows[:3]  # the first text counts once
    monkeypatch.setattr(clusters_audit, "SAMPLED_BYTES", 1)
    assert clusters_audit._affordable(project, rows) == rows[:1]
    folder, ledger = report.artifact.folder, report.artifact.manifest.ledger
    assert clusters_audit.measure_clusters(project, None, folder, ledger)["wrong_similarities"] == 0


def test_a_small_source_that_lost_the_most_is_told_beside_the_large_ones() -> None:
    documents = {f"large{i:02d}": 1000 for i in range(60)} | {"lost": 100, "small": 100, "tiny": 3}
    found = list(telling(documents, dict.fromkeys(documents, 0) | {"lost": 90, "tiny": 2}))
    assert found == [*(f"large{i:02d}" for i in range(40)), "lost"]
