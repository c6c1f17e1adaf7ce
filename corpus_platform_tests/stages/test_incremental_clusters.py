"""Clusters of a growing corpus: what an append gives and costs, beside a corpus made at once."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus_platform.stages.dedup_verdicts import verdict_contents
from corpus_platform_tests.stages.near_copies import (
    add_shards,
    changed,
    cluster,
    clusters,
    files,
    new_corpus,
    prose,
    sign_new,
    signed_copy,
)

OLD = {
    "2026-40/a": [prose(1), prose(2), changed(prose(1), 5), prose(3), prose(2)],
    "2026-40/b": [prose(4), changed(prose(2), 6), prose(3), changed(prose(4), 7, 12)],
}
NEW = {"2026-44/c": [prose(9), changed(prose(9), 8), prose(4), changed(prose(1), 9)]}
LATE = {"2026-40/aa": [changed(prose(4), 10), prose(9), prose(3)]}


@pytest.mark.parametrize("keep", ["first_seen", "one_per_cluster"])
@pytest.mark.parametrize("more", [NEW, LATE], ids=["append", "late"])
def test_a_shard_that_is_added_gives_the_bytes_of_a_corpus_made_at_once(
    more: dict[str, list[str]], keep: str, tmp_path: Path
) -> None:
    options = f"dedup: {{keep: {keep}}}\nsplit: {{validation: 0.3}}\n"
    whole = cluster(new_corpus(tmp_path / "whole", OLD | more, options))
    cluster(new_corpus(tmp_path / "grown", OLD, options))
    grown = cluster(add_shards(tmp_path / "grown", more))
    assert files(grown) == files(whole)
    assert grown.artifact.content == whole.artifact.content
    assert not [f for f in grown.findings if not f.passed]


def test_a_shard_that_is_retired_gives_the_bytes_of_a_corpus_without_it(tmp_path: Path) -> None:
    few = cluster(new_corpus(tmp_path / "few", OLD))
    more = new_corpus(tmp_path / "more", OLD | LATE | NEW)
    cluster(more)
    for shard in (*LATE, *NEW):
        more.registry.retire(f"{shard}.jsonl")
    assert files(cluster(more)) == files(few)


def test_an_append_changes_the_verdict_of_no_old_shard(tmp_path: Path) -> None:
    project = new_corpus(tmp_path, OLD)
    cluster(project)
    before = verdict_contents(project)
    project = add_shards(tmp_path, NEW)
    cluster(project)
    assert {s: c for s, c in verdict_contents(project).items() if s in before} == before


def test_a_late_shard_changes_only_the_verdicts_of_shards_with_its_copies(tmp_path: Path) -> None:
    shards = OLD | NEW | {"2026-44/d": [prose(77), prose(78)]}
    project = new_corpus(tmp_path, shards, "split: {validation: 0}\n")
    cluster(project)
    before = verdict_contents(project)
    project = add_shards(tmp_path, {"2026-40/aa": [prose(9)]})
    cluster(project)
    after = verdict_contents(project)
    assert {shard for shard in before if before[shard] != after[shard]} == {"2026-44/c.jsonl"}


def test_the_work_of_an_append_does_not_depend_on_the_number_of_old_shards(tmp_path: Path) -> None:
    new = {"2026-44/new": [prose(1), changed(prose(2), 5), prose(999)]}
    effort = {}
    for count in (2, 12):
        old = {
            f"2026-40/{shard:03d}": [prose(i), changed(prose(i), 7 * i + 1), prose(1000 + i)]
            for shard in range(count)
            for i in [shard + 1]
        }
        folder = tmp_path / str(count)
        project = new_corpus(folder, old)
        cluster(project)
        assert sign_new(project) == 0
        report = cluster(add_shards(folder, new))
        effort[count] = report.artifact.manifest.measured["effort"]
        documents = 3 * count + 3
        assert effort[count]["band_bytes"] == 12 * 16 * documents
    # The two old texts that the new ones copy, their near-copies, the new one; and the canary.
    assert effort[2]["texts"] == effort[12]["texts"] <= 2 + 2 + 1 + 1
    assert effort[2]["signatures"] == effort[12]["signatures"] > 0
    assert effort[12]["pairs_known"] >= 5 * effort[2]["pairs_known"] > 0


@pytest.mark.slow
def test_the_work_of_an_append_is_the_same_with_10_and_with_100_shards(tmp_path: Path) -> None:
    new = {"2026-44/new": [changed(prose(i), 5) for i in range(1, 9)]}
    effort = {}
    for count in (10, 100):
        old = {
            f"2026-40/{shard:03d}": [prose(shard + 1), changed(prose(shard + 1), 7 * shard + 1)]
            + [prose(10_000 + 100 * shard + i) for i in range(20)]
            for shard in range(count)
        }
        folder = tmp_path / str(count)
        cluster(new_corpus(folder, old))
        effort[count] = cluster(add_shards(folder, new)).artifact.manifest.measured["effort"]
        assert effort[count]["band_bytes"] <= 12 * 16 * (22 * count + 8)
    assert effort[10]["texts"] == effort[100]["texts"]
    assert effort[10]["signatures"] == effort[100]["signatures"]


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seeds=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=2, max_size=3),
    keep=st.sampled_from(["first_seen", "one_per_cluster"]),
    cap=st.sampled_from([1, 2, 64]),
    late=st.booleans(),
)
def test_growing_in_any_order_gives_the_bytes_of_a_corpus_made_at_once(
    seeds: list[list[int]],
    keep: str,
    cap: int,
    late: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Seeds from 7 on are changed texts of those before: near-copies in all shards."""
    folder = tmp_path_factory.mktemp("grow")
    texts = [[prose(s) if s < 7 else changed(prose(s - 6), s) for s in some] for some in seeds]
    shards = {f"2026-40/{i}": some for i, some in enumerate(texts)}
    options = f"dedup: {{keep: {keep}, bucket_cap: {cap}}}\n"
    whole = cluster(new_corpus(folder / "whole", shards, options))
    first, *rest = sorted(shards, reverse=late)
    project = new_corpus(folder / "grown", {first: shards[first]}, options)
    cluster(project)
    for shard in rest:
        report = cluster(add_shards(folder / "grown", {shard: shards[shard]}))
    assert files(report) == files(whole)


def test_what_an_earlier_run_knew_under_other_signatures_is_not_used(tmp_path: Path) -> None:
    cluster(new_corpus(tmp_path / "a", OLD, "dedup: {shingle: char}\n"))
    report = cluster(new_corpus(tmp_path / "a", OLD, "dedup: {shingle: word}\n"))
    assert report.artifact.manifest.measured["effort"]["pairs_known"] == 0
    assert files(report) == files(
        cluster(new_corpus(tmp_path / "b", OLD, "dedup: {shingle: word}\n"))
    )


def test_what_a_run_with_another_threshold_knew_is_used(tmp_path: Path) -> None:
    cluster(new_corpus(tmp_path / "a", OLD))
    report = cluster(new_corpus(tmp_path / "a", OLD, "dedup: {threshold: 0.95}\n"))
    effort = report.artifact.manifest.measured["effort"]
    assert effort["pairs_known"] > 0
    assert effort["texts"] == 1  # that of the canary
    assert clusters(report)["kind"].to_list().count("near") == 0


@pytest.mark.parametrize("before", ["signature", "none"])
def test_estimates_of_an_earlier_run_do_not_stand_for_similarities_of_texts(
    before: str, tmp_path: Path
) -> None:
    shards = OLD | {"2026-40/z": [changed(prose(i), 11, 2) for i in range(1, 5)]}
    project = new_corpus(tmp_path / "a", shards, f"dedup: {{verify: {before}}}\n")
    cluster(project)
    unknown = signed_copy(project, tmp_path / "b", "")
    report = cluster(new_corpus(tmp_path / "a", shards))
    assert files(report) == files(cluster(unknown))
    effort = report.artifact.manifest.measured["effort"]
    assert (effort["pairs_known"] > 0, effort["signatures"]) == (True, 0)
    assert not [f for f in report.findings if not f.passed]
