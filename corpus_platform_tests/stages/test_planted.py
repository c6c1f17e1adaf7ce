"""Documents with planted copies of measured similarity, through the stages: what is found is true.

Whether two documents should be found is said by `pairs.parquet`, whose values were measured without
hashes; what belongs together at all by `truth.parquet`. No pair across its clusters has more than 0.3.
"""

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.small import register

pytestmark = pytest.mark.xdist_group("planted")  # each way of cutting is clustered once

THRESHOLD = 0.8
# As the page of the planted documents cuts words: a few rare characters fall on another side.
NEAR = {"auto": 1e-3, "char": 1e-9}
COLUMN = {"auto": "jaccard_word5", "char": "jaccard_char5"}


class Planted(NamedTuple):
    """The tables of a run over the planted documents, by their ids."""

    kind: str
    clusters: pl.DataFrame
    edges: pl.DataFrame  # id_a, id_b, similarity
    pairs: pl.DataFrame  # id_a, id_b, true: both ways round
    cluster_of: dict[str, str]


@pytest.fixture(scope="module", params=["auto", "char"])
def planted(
    request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Planted:
    kind, source = request.param, shared / "corpus" / "planted"
    folder = _clustered(tmp_path_factory.mktemp(f"planted-{kind}"), source, kind)
    clusters = pl.read_parquet(folder / "clusters.parquet")
    truth = pl.read_parquet(source / "truth.parquet").select("doc_id", "cluster_id")
    pairs = pl.read_parquet(source / "pairs.parquet").select("id_a", "id_b", true=COLUMN[kind])
    turned = pairs.select(id_a="id_b", id_b="id_a", true="true")
    edges = _edges(pl.read_parquet(folder / "edges.parquet"), clusters)
    return Planted(kind, clusters, edges, pl.concat([pairs, turned]), dict(truth.iter_rows()))


def _clustered(folder: Path, source: Path, kind: str) -> Path:
    config = folder / "corpus.yaml"
    config.write_text(
        f"sources: [{{glob: '{source}/*.jsonl.gz', crawl: planted}}]\nclean: {{preset: none}}\n"
        f"dedup: {{shingle: {kind}}}\nrun: {{workers: 1}}\n"
    )
    project = open_project(load_settings(config))
    for shard in register(project):
        fetch_shard(project, shard)
        clean_documents(project, shard)
        sign_documents(project, shard)
    return cluster_documents(project).artifact.folder


def _edges(edges: pl.DataFrame, clusters: pl.DataFrame) -> pl.DataFrame:
    ids = clusters.select("shard", "row", "id")
    for side in ("a", "b"):
        named = ids.rename({"shard": f"shard_{side}", "row": f"row_{side}", "id": f"id_{side}"})
        edges = edges.join(named, on=[f"shard_{side}", f"row_{side}"])
    return edges.select("id_a", "id_b", "similarity")


def test_every_document_is_judged(planted: Planted) -> None:
    assert set(planted.clusters["id"]) == set(planted.cluster_of)
    assert len(planted.clusters) == 990


def test_no_pair_joins_two_planted_clusters(planted: Planted) -> None:
    joined = [(a, b) for a, b, _ in planted.edges.iter_rows()]
    assert [p for p in joined if planted.cluster_of[p[0]] != planted.cluster_of[p[1]]] == []
    of_ours: dict[int, set[str]] = {}
    for document, cluster in planted.clusters.select("id", "cluster").iter_rows():
        of_ours.setdefault(cluster, set()).add(planted.cluster_of[document])
    assert [members for members in of_ours.values() if len(members) > 1] == []


def test_all_that_is_found_is_as_similar_as_was_measured(planted: Planted) -> None:
    found = planted.edges.join(planted.pairs, on=["id_a", "id_b"], how="left")
    assert found["true"].null_count() == 0
    assert found["similarity"].min() >= THRESHOLD  # ty: ignore
    assert (found["similarity"] - found["true"]).abs().max() < NEAR[planted.kind]  # ty: ignore


def test_every_dropped_document_has_a_kept_twin_that_is_truly_similar(planted: Planted) -> None:
    dropped = planted.clusters.filter(~pl.col("kept"))
    twins = dropped.join(
        planted.pairs, left_on=["id", "twin_id"], right_on=["id_a", "id_b"], how="left"
    )
    kept = set(planted.clusters.filter("kept")["id"])
    assert set(dropped["twin_id"]) <= kept
    assert twins["true"].null_count() == 0
    assert twins["true"].min() >= THRESHOLD - NEAR[planted.kind]  # ty: ignore
    assert (twins["similarity"] - twins["true"]).abs().max() < NEAR[planted.kind]  # ty: ignore


def test_nearly_all_pairs_at_the_threshold_are_found(planted: Planted) -> None:
    copies = set(planted.clusters.filter(pl.col("kind") == "exact")["id"])
    wanted = {
        (a, b)
        for a, b, true in planted.pairs.iter_rows()
        if true >= THRESHOLD + NEAR[planted.kind] and a < b and not {a, b} & copies
    }
    found = {(min(a, b), max(a, b)) for a, b, _ in planted.edges.iter_rows()}
    assert len(wanted) > 200
    assert (
        len(wanted & found) / len(wanted) > 0.947
    )  # of pairs exactly at 0.8: the others find more


def test_exact_copies_are_the_texts_of_one_normal_form(planted: Planted, shared: Path) -> None:
    pairs = pl.read_parquet(shared / "corpus" / "planted" / "pairs.parquet")
    same = pairs.filter("same_normal_form")
    dropped = set(planted.clusters.filter(pl.col("kind") == "exact")["id"])
    groups: dict[str, set[str]] = {}
    for a, b in same.select("id_a", "id_b").iter_rows():
        joined = groups.get(a, {a}) | groups.get(b, {b})
        groups.update(dict.fromkeys(joined, joined))
    assert {len(g - dropped) for g in groups.values()} == {1}
    assert len(dropped) == sum(len(g) - 1 for g in {frozenset(g) for g in groups.values()})
