"""What settings of dedup do to whole corpora, and what its gates see when something is wrong."""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from corpus_platform.dedup.bands import BucketPairs
from corpus_platform.dedup.signing import Signed, Signer
from corpus_platform.engines import local
from corpus_platform.errors import SettingsError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import comparing, estimating, pair_join
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Report
from corpus_platform_tests.stages.near_copies import (
    add_shards,
    changed,
    cluster,
    clusters,
    files,
    new_corpus,
    prose,
    signed_copy,
)

A, B = "2026-40/a", "2026-40/b"


def _kept(report: Report) -> list[str]:
    return clusters(report).filter("kept")["id"].to_list()


def _failed(report: Report) -> list[str]:
    return [f.gate for f in report.findings if f.blocks]


# priority and longest first


def test_copies_are_dropped_from_the_source_of_lower_priority(tmp_path: Path) -> None:
    shards = {A: [prose(1), prose(2), prose(3)], B: [changed(prose(1), 1), prose(2), prose(4)]}
    project = new_corpus(tmp_path / "1", shards)
    plain = cluster(project)
    other = cluster(signed_copy(project, tmp_path / "2", "dedup: {priority: ['*/b*']}\n"))
    assert _kept(plain) == [f"{A}#0", f"{A}#1", f"{A}#2", f"{B}#2"]
    assert _kept(other) == [f"{A}#2", f"{B}#0", f"{B}#1", f"{B}#2"]
    assert not _failed(other)
    dropped = clusters(other).filter(~pl.col("kept"))
    assert dropped["twin_id"].to_list() == [f"{B}#0", f"{B}#1"]


def test_the_first_pattern_that_matches_gives_the_priority(tmp_path: Path) -> None:
    shards = {A: [prose(1)], B: [prose(1)], "2026-40/c": [prose(1)]}
    options = "dedup: {priority: ['*/c*', '*/b*', '*']}\n"
    assert _kept(cluster(new_corpus(tmp_path, shards, options))) == ["2026-40/c#0"]


def test_a_pattern_that_no_shard_matches_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = "dedup: {priority: [b, '*/b*']}\n"
    list_shards(new_corpus(tmp_path, {A: [prose(1)], B: [prose(1)]}, options))
    said = {r.getMessage() for r in caplog.records if "priority" in r.getMessage()}
    words = "matches no shard; it has to match all of CRAWL/FILE, like '2026-40/*'"
    assert said == {f"dedup.priority: 'b' {words}"}


def test_the_longest_of_similar_documents_stays(tmp_path: Path) -> None:
    texts = [prose(1), f"{prose(1)} and some more", prose(2), f"{prose(1)} and"]
    options = "dedup: {prefer: longest}\n"
    report = cluster(new_corpus(tmp_path, {A: texts[:2], B: texts[2:]}, options))
    assert _kept(report) == [f"{A}#1", f"{B}#0"]
    assert not _failed(report)


def test_of_equal_length_and_priority_the_older_one_stays(tmp_path: Path) -> None:
    texts = {B: [prose(1), prose(1)], "2026-44/a": [prose(1)]}
    report = cluster(new_corpus(tmp_path, texts, "dedup: {prefer: longest}\n"))
    assert _kept(report) == [f"{B}#0"]


def test_growing_gives_the_same_bytes_under_priority_and_longest_first(tmp_path: Path) -> None:
    options = "dedup: {prefer: longest, priority: ['*/b*']}\nsplit: {validation: 0.4}\n"
    shards = {
        A: [prose(1), prose(2), f"{prose(3)} more"],
        B: [changed(prose(1), 1), prose(3), f"{prose(2)} more"],
    }
    whole = cluster(new_corpus(tmp_path / "whole", shards, options))
    cluster(new_corpus(tmp_path / "grown", {A: shards[A]}, options))
    assert files(cluster(add_shards(tmp_path / "grown", {B: shards[B]}))) == files(whole)
    assert _kept(whole) == [f"{B}#0", f"{B}#1", f"{B}#2"]


# exact keys


@pytest.mark.parametrize(("exact", "kinds"), [("folded", [None, "exact"]), ("raw", [None, "near"])])
def test_raw_exact_keys_tell_case_and_white_space_apart(
    exact: str, kinds: list[str | None], tmp_path: Path
) -> None:
    texts = [prose(1), prose(1).upper().replace(" ", "\n  ")]
    report = cluster(new_corpus(tmp_path, {A: texts}, f"dedup: {{exact: {exact}}}\n"))
    assert clusters(report)["kind"].to_list() == kinds
    assert clusters(report)["similarity"].to_list() == [None, 1.0]  # shingles are folded always
    assert not _failed(report)


# verification


def test_without_exact_verification_estimates_decide_and_are_what_is_stored(
    tmp_path: Path,
) -> None:
    texts = [prose(1), changed(prose(1), 1), prose(2)]
    options = "dedup: {verify: signature}\n"
    report = cluster(new_corpus(tmp_path, {A: texts}, options))
    row = clusters(report).row(1, named=True)
    edge = pl.read_parquet(report.artifact.path("edges.parquet")).row(0, named=True)
    assert row["kind"] == "near"
    assert row["similarity"] == edge["similarity"] == edge["agreeing"] / 128
    assert report.artifact.manifest.measured["effort"]["texts"] == 0
    assert not _failed(report)


def test_unverified_every_candidate_is_a_near_copy(tmp_path: Path) -> None:
    bands = "bands: 128, rows: 1"
    texts = [prose(1), changed(prose(1), 1, words=12), prose(2)]
    project = new_corpus(tmp_path / "1", {A: texts}, f"dedup: {{{bands}}}\n")
    judged = cluster(project)
    taken = cluster(signed_copy(project, tmp_path / "2", f"dedup: {{{bands}, verify: none}}\n"))
    assert _kept(judged) == [f"{A}#0", f"{A}#1", f"{A}#2"]
    assert _kept(taken) == [f"{A}#0", f"{A}#2"]
    assert not _failed(taken)


@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
def test_both_schemes_find_the_copies(scheme: str, tmp_path: Path) -> None:
    texts = [prose(1), changed(prose(1), 1), prose(2), prose(1)]
    report = cluster(new_corpus(tmp_path, {A: texts}, f"dedup: {{scheme: {scheme}}}\n"))
    assert clusters(report)["kind"].to_list() == [None, "near", None, "exact"]
    assert not _failed(report)


def test_bands_of_auto_are_those_of_the_curve(tmp_path: Path) -> None:
    report = cluster(
        new_corpus(tmp_path, {A: [prose(1)]}, "dedup: {bands: auto, threshold: 0.6}\n")
    )
    signed = report.artifact.manifest.inputs
    assert list(signed) == [f"minhash_signatures[{A}.jsonl]"]
    project = add_shards(tmp_path, {})
    settings = project.present("minhash_signatures", f"{A}.jsonl").manifest.settings
    # 1 - (1 - 0.6^4)^32 = 0.988; with 16 bands of 8 it is 0.237.
    assert (settings["bands"], settings["rows"]) == (32, 4)


def test_a_banding_that_finds_nothing_is_refused_when_settings_load(tmp_path: Path) -> None:
    (tmp_path / "corpus.yaml").write_text(
        "sources: [{glob: 'x/{crawl}/*'}]\ndedup: {permutations: 780, bands: 13, rows: 60}\n"
    )
    with pytest.raises(SettingsError, match=r"bands = 13, rows = 60 finds only 0\.00002"):
        load_settings(tmp_path / "corpus.yaml")


# the cap


def test_a_cap_that_bites_is_reported(tmp_path: Path) -> None:
    """Ten texts that differ in one word each, all alike at 0.85 and more: one bucket at least."""
    texts = [changed(prose(1), seed) for seed in range(10)]
    report = cluster(new_corpus(tmp_path, {A: texts}, "dedup: {bucket_cap: 2}\n"))
    assert report.artifact.manifest.ledger["capped_buckets"] > 0
    assert report.artifact.numbers["capped_buckets"] > 0
    assert _kept(report)[0] == f"{A}#0"
    assert not _failed(report)


def test_a_bucket_of_the_cap_and_one_is_not_capped(tmp_path: Path) -> None:
    """The canary lies in the bucket of the first document, and counts for nothing."""
    texts = [changed(prose(1), seed) for seed in range(3)]
    report = cluster(new_corpus(tmp_path, {A: texts}, "dedup: {bucket_cap: 2}\n"))
    assert report.artifact.manifest.ledger["capped_buckets"] == 0


# shapes that went wrong elsewhere


def test_a_chain_of_sixty_keeps_more_than_its_ends(tmp_path: Path) -> None:
    """J(i, i + 1) = 0.92, the first and the last have nothing in common."""
    words = [f"w{i:04d}" for i in range(1000)]
    chain = [" ".join(words[4 * i : 4 * i + 100]) for i in range(60)]
    options = "dedup: {bands: 32, rows: 4}\nsplit: {validation: 0}\n"
    table = clusters(cluster(new_corpus(tmp_path, {A: chain}, options)))
    # 96 shingles of 100 words: a neighbour has 92 / 100, two steps 88 / 104 = 0.85, three 0.78.
    assert [i for i, kept in enumerate(table["kept"]) if kept] == list(range(0, 60, 3))
    assert table["cluster_size"].to_list() == [60] * 60
    assert set(table["similarity"].drop_nulls()) == {92 / 100, 88 / 104}


def test_743_pages_of_one_template_all_stay(tmp_path: Path) -> None:
    """40 % of each page is the template, as in chats that begin with the same instructions."""
    template = prose(0, 80)
    pages = [f"{template} {prose(1000 + page, 120)}" for page in range(743)]
    report = cluster(new_corpus(tmp_path, {A: pages}))
    assert clusters(report)["kept"].sum() == 743
    assert not _failed(report)


def test_fifty_copies_of_three_words_leave_one(tmp_path: Path) -> None:
    report = cluster(new_corpus(tmp_path, {A: ["only three words"] * 50 + ["three other words"]}))
    assert _kept(report) == [f"{A}#0", f"{A}#50"]


# measured again from what was written


def test_clusters_of_crawls_whose_names_begin_alike_measure_the_same_again(tmp_path: Path) -> None:
    """A crawl comes before one with a longer name; a manifest sorts "2026-40-b/" before "2026-40/"."""
    project = new_corpus(tmp_path, {A: [prose(1)], "2026-40-b/a": [prose(1)]})
    report = cluster(project)
    assert clusters(report)["kind"].to_list() == [None, "exact"]
    again = project.audit("dedup_clusters", None)
    assert (again["wrong_copies"], again["bad_verdicts"]) == (0, 0)
    assert again == report.artifact.numbers


def test_verdicts_of_empty_shards_between_others_are_those_of_the_table(tmp_path: Path) -> None:
    shards = {"2026-40/0": [], A: [prose(1), prose(2)], B: [], "2026-44/a": [prose(2)]}
    report = cluster(new_corpus(tmp_path, shards))
    assert _kept(report) == [f"{A}#0", f"{A}#1"]
    assert report.artifact.numbers["bad_verdicts"] == 0
    assert not _failed(report)


# canaries


def _without_band(band: int) -> Callable[[pair_join._Piece], pair_join._Joined]:
    join = pair_join._join

    def skipping(piece: pair_join._Piece) -> pair_join._Joined:
        if piece.section != band:
            return join(piece)
        for suffix in (".pairs", ".searched"):
            piece.target.with_suffix(suffix).write_bytes(b"")
        return pair_join._Joined(0, 0, 0)

    return skipping


@pytest.mark.parametrize("band", [0, 15])
def test_a_band_that_is_not_searched_turns_the_canaries_red(
    band: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_join, "_join", _without_band(band))
    report = cluster(new_corpus(tmp_path, {A: [prose(1), changed(prose(1), 1)]}))
    assert _failed(report) == ["canaries"]
    assert "16 of 17" in next(f.reason for f in report.findings if f.gate == "canaries")


def test_texts_that_are_never_found_similar_turn_the_canaries_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_alike(*_: object) -> np.ndarray:
        return np.zeros(1)

    project = new_corpus(tmp_path, {A: [prose(1), prose(2)]})
    monkeypatch.setattr(comparing, "compare_sets", nothing_alike)
    assert _failed(cluster(project)) == ["canaries"]


def test_canaries_are_in_no_table(tmp_path: Path) -> None:
    report = cluster(new_corpus(tmp_path, {A: [prose(1), prose(2)]}))
    assert len(clusters(report)) == 2
    assert clusters(report)["cluster_size"].to_list() == [1, 1]
    for name in ("edges.parquet", "compared.parquet", "leaks.parquet"):
        assert len(pl.read_parquet(report.artifact.path(name))) == 0
    ledger = report.artifact.manifest.ledger
    assert (ledger["canaries"], ledger["canaries_found"]) == (17, 17)


def test_a_corpus_of_nothing_needs_no_canary(tmp_path: Path) -> None:
    report = cluster(new_corpus(tmp_path, {A: []}))
    assert len(clusters(report)) == 0
    assert not _failed(report)


# signatures that are wrong


def test_a_faulty_hash_turns_the_estimates_red_and_nothing_reads_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values of a signature come from one permutation: its estimate is 0 or 1."""
    sign = Signer.sign

    def faulty(signer: Signer, texts: Sequence[str]) -> Signed:
        signed = sign(signer, texts)
        signed.signatures[:] = signed.signatures[:, :1]
        return signed

    monkeypatch.setattr(Signer, "sign", faulty)
    project = new_corpus(tmp_path, {A: [prose(seed) for seed in range(20)]})
    findings = project.findings_of(
        "minhash_signatures", f"{A}.jsonl", project.present("minhash_signatures", f"{A}.jsonl")
    )
    assert "estimates" in [f.gate for f in findings if f.blocks]


# leaks into validation


def test_similar_pairs_across_the_split_are_listed(tmp_path: Path) -> None:
    """At 0.97 nothing goes; of pairs alike at 0.9 with one side held out all are listed."""
    texts = [t for s in range(20) for t in (prose(s), changed(prose(s), s))]
    options = "dedup: {threshold: 0.97}\nsplit: {validation: 0.5}\n"
    report = cluster(new_corpus(tmp_path, {A: texts}, options))
    split = dict(clusters(report).select("row", "split").iter_rows())
    across = {s for s in range(20) if split[2 * s] != split[2 * s + 1]}
    assert len(across) > 3
    leaks = pl.read_parquet(report.artifact.path("leaks.parquet"))
    assert {min(a, b) // 2 for a, b in leaks.select("row", "train_row").iter_rows()} == across
    assert {split[row] for row in leaks["row"]} == {"validation"}
    assert {split[row] for row in leaks["train_row"]} == {"train"}
    assert all(similarity > 0.8 for similarity in leaks["similarity"])
    assert leaks["similarity"].is_sorted(descending=True)
    assert not _failed(report)


def test_a_pair_above_the_threshold_across_the_split_is_a_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that misses all candidates drops nothing, and the search for leaks finds them."""
    join = pair_join.bucket_pairs

    def missing(
        hashes: np.ndarray, numbers: np.ndarray, **options: Any
    ) -> BucketPairs:  # Any: passed on
        return join(hashes, numbers, **options)._replace(codes=np.empty(0, np.uint64))

    monkeypatch.setattr(pair_join, "bucket_pairs", missing)
    words = [f"w{i:03d}" for i in range(400)]
    texts = [" ".join(words[20 * i : 20 * i + 300]) for i in range(5)]
    report = cluster(new_corpus(tmp_path, {A: texts}, "split: {validation: 0.5}\n"))
    split = clusters(report)["split"].to_list()
    neighbours = sum(a != b for a, b in itertools.pairwise(split))
    assert neighbours > 0
    assert _failed(report) == ["canaries", "leaks"]
    leaks = pl.read_parquet(report.artifact.path("leaks.parquet"))
    similar = leaks.filter(pl.col("similarity") >= 0.8)["similarity"].to_list()
    assert similar == [276 / 316] * neighbours  # 300 words are 296 shingles
    assert report.artifact.numbers["leaks"] == neighbours


def test_the_document_that_is_held_out_in_any_case_is_searched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpus_platform.stages import deciding

    texts = [t for s in range(6) for t in (prose(s), changed(prose(s), s))]
    options = "dedup: {threshold: 0.97}\nsplit: {validation: 0.0000001}\n"
    project = new_corpus(tmp_path / "1", {A: texts}, options)
    usual = cluster(project)
    monkeypatch.setattr(deciding, "LIKELY_HELD_OUT", 0)  # not foreseen: it is searched afterwards
    again = cluster(signed_copy(project, tmp_path / "2"))
    assert files(again) == files(usual)
    assert len(pl.read_parquet(usual.artifact.path("leaks.parquet"))) == 1


def test_what_the_first_search_found_stays_when_another_document_is_searched_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpus_platform.stages import deciding

    texts = [t for s in range(20) for t in (prose(s), changed(prose(s), s))]
    shards = {"2026-39/old": [prose(99)], A: texts}
    options = "dedup: {threshold: 0.97}\nsplit: {validation: 0.3}\n"
    project = new_corpus(tmp_path / "1", shards, options)
    usual = cluster(project)
    monkeypatch.setattr(deciding, "LIKELY_HELD_OUT", 0)
    again = cluster(signed_copy(project, tmp_path / "2"))
    searched = [r.artifact.manifest.measured["effort"]["band_bytes"] for r in (usual, again)]
    assert searched[1] == 2 * searched[0]
    assert len(pl.read_parquet(usual.artifact.path("leaks.parquet"))) > 3
    assert files(again) == files(usual)


@pytest.mark.parametrize("verify", ["exact", "signature"])
def test_a_leak_below_one_half_is_a_leak_where_the_threshold_is_lower(
    verify: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*given: Any, **options: Any) -> BucketPairs:  # Any: passed on
        return join(*given, **options)._replace(codes=np.empty(0, np.uint64))

    join = pair_join.bucket_pairs
    monkeypatch.setattr(pair_join, "bucket_pairs", missing)
    words = [f"w{i:03d}" for i in range(400)]
    texts = [" ".join(words[100 * i : 100 * i + 225]) for i in range(2)]  # 121 of 321 shingles
    dedup = f"dedup: {{threshold: 0.3, bands: 64, rows: 2, verify: {verify}}}\n"
    report = cluster(new_corpus(tmp_path, {A: texts}, dedup + "split: {validation: 0.0000001}\n"))
    assert _failed(report) == ["canaries", "leaks"]
    similarity = pl.read_parquet(report.artifact.path("leaks.parquet"))["similarity"].to_list()
    assert similarity == pytest.approx([121 / 321], abs=1e-9 if verify == "exact" else 0.1)


# the same bytes whatever the workers


def test_the_tables_do_not_depend_on_workers_or_on_how_the_work_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(3)
    texts = [changed(prose(chosen.randrange(9)), seed, 2) for seed in range(60)]
    shards = {f"2026-40/{i}": texts[10 * i : 10 * i + 10] for i in range(6)}
    options = "split: {validation: 0.2}\n"
    project = new_corpus(tmp_path / "1", shards, options)
    usual = files(cluster(project))
    monkeypatch.setattr(pair_join, "PIECE_ROWS", 7)
    monkeypatch.setattr(estimating, "BLOCK_VALUES", 5 * 2 * 128)
    monkeypatch.setattr(comparing, "BUCKET_BYTES", 1500)
    assert files(cluster(signed_copy(project, tmp_path / "2"))) == usual
    assert local.worth(8, 100, share=30) == 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", [8])
def test_the_tables_are_the_same_for_any_number_of_processes(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [changed(prose(seed % 40), seed, 2) for seed in range(400)]
    shards = {f"2026-40/{i}": texts[40 * i : 40 * i + 40] for i in range(10)}
    one = files(cluster(new_corpus(tmp_path / "1", shards)))
    for module in (pair_join, estimating, comparing):
        monkeypatch.setattr(module, "worth", lambda workers, work, *, share: workers)
    monkeypatch.setattr(estimating, "BLOCK_VALUES", 1000 * 2 * 128)
    monkeypatch.setattr(comparing, "BUCKET_BYTES", 10_000)
    many = new_corpus(tmp_path / "2", shards, "").settings.base / "corpus.yaml"
    many.write_text(many.read_text().replace("workers: 1", f"workers: {workers}"))
    assert files(cluster(add_shards(tmp_path / "2", {}))) == one


def test_the_order_in_which_shards_are_registered_changes_nothing(tmp_path: Path) -> None:
    shards = {f"2026-40/{i}": [prose(i), changed(prose(i % 3), i), prose(9)] for i in range(5)}
    usual = files(cluster(new_corpus(tmp_path / "1", shards)))
    backwards = dict(reversed(shards.items()))
    folder = tmp_path / "2"
    new_corpus(folder, {})
    for key, texts in backwards.items():
        add_shards(folder, {key: texts})
    assert files(cluster(add_shards(folder, {}))) == usual
