"""What-if answers are those of a real run with the setting."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from corpus_platform.cli import main
from corpus_platform.dedup.clusters import Keep
from corpus_platform.errors import Uncleared, UsageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.whatif import decide_again
from corpus_platform_tests.stages.near_copies import (
    add_shards,
    changed,
    cluster,
    clusters,
    new_corpus,
    prose,
    signed_copy,
)

SHARDS = {
    "2026-40/a": [prose(1), *(changed(prose(1), seed, seed) for seed in range(1, 6)), prose(2)],
    "2026-44/b": [prose(2), *(changed(prose(2), seed, seed) for seed in range(1, 6)), prose(3)],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The corpus after a run at 0.6; nobody changes it."""
    options = "dedup: {bands: 32, rows: 4, threshold: 0.6}\n"
    project = new_corpus(tmp_path_factory.mktemp("run"), SHARDS, options)
    cluster(project)
    return project


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The corpus after a run with the settings that dedup has by itself; nobody changes it."""
    project = new_corpus(tmp_path_factory.mktemp("usual"), SHARDS)
    cluster(project)
    return project


@pytest.mark.parametrize("threshold", [0.6, 0.75, 0.85, 0.95, 1.0])
@pytest.mark.parametrize("keep", ["first_seen", "one_per_cluster"])
def test_another_threshold_and_policy_keep_what_a_real_run_keeps(
    threshold: float, keep: Keep, run: Project, tmp_path: Path
) -> None:
    found = decide_again(run, threshold=threshold, keep=keep)
    options = f"dedup: {{bands: 32, rows: 4, threshold: {threshold}, keep: {keep}}}\n"
    real = cluster(signed_copy(run, tmp_path / "again", options))
    assert real.artifact.manifest.measured["effort"]["pairs_known"] == 0
    table, ledger = clusters(real), real.artifact.manifest.ledger
    assert found.kept.tolist() == table["kept"].to_list()
    counts = found.counts[None]
    assert (counts.kept, counts.exact_copies, counts.near_copies, counts.largest_cluster) == (
        ledger["kept"],
        ledger["exact_copies"],
        ledger["near_copies"],
        ledger["largest_cluster"],
    )
    assert counts.documents == sum(found.counts[c].documents for c in ("2026-40", "2026-44")) == 14


def test_a_threshold_below_that_of_the_run_cannot_be_answered(usual: Project) -> None:
    with pytest.raises(UsageError, match=r"threshold 0\.7: .* from 0\.8 on"):
        decide_again(usual, threshold=0.7)


def test_without_verification_there_is_nothing_to_decide_by(tmp_path: Path) -> None:
    project = new_corpus(tmp_path, SHARDS, "dedup: {verify: none}\n")
    cluster(project)
    with pytest.raises(UsageError, match="never measured"):
        decide_again(project, threshold=0.9)


def test_an_answer_goes_by_the_order_of_the_crawls(tmp_path: Path) -> None:
    """A crawl comes before one with a longer name; a manifest sorts "2026-40-b/" before "2026-40/"."""
    shards = {"2026-40/a": [prose(1), prose(2)], "2026-40-b/a": [prose(1), changed(prose(2), 1)]}
    project = new_corpus(tmp_path, shards)
    table = clusters(cluster(project))
    assert table["kept"].to_list() == [True, True, False, False]
    found = decide_again(project, threshold=0.81)
    assert found.kept.tolist() == [True, True, False, False]
    assert (found.counts["2026-40"].kept, found.counts["2026-40-b"].kept) == (2, 0)


def test_a_shard_that_was_signed_again_is_to_be_clustered_first(tmp_path: Path) -> None:
    cluster(new_corpus(tmp_path, {"2026-40/a": [prose(1)], "2026-44/b": [prose(2)]}))
    config = tmp_path / "corpus.yaml"
    config.write_text(config.read_text() + "dedup: {width: 4}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"2026-40/a\.jsonl was signed again .* run first"):
        decide_again(add_shards(tmp_path, {}), threshold=0.9)


def test_before_the_first_clusters_there_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(Uncleared, match="never made"):
        decide_again(new_corpus(tmp_path, SHARDS), threshold=0.9)


def test_the_command_shows_both_side_by_side(usual: Project) -> None:
    config = ["--config", str(usual.settings.base / "corpus.yaml")]
    shown = CliRunner().invoke(main, ["whatif", "dedup", *config, "--threshold", "1.0"])
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()]
    documents = next(row for row in rows if row[:2] == ["all", "documents"])
    assert documents == ["all", "documents", "14", "14"]
    found = CliRunner().invoke(main, ["whatif", "dedup", *config, "--threshold", "1.0", "--json"])
    then = json.loads(found.stdout)["then"]
    assert (then["threshold"], then["keep"]) == (1.0, "first_seen")
    assert then["all"]["near_copies"] == 0
    assert then["all"]["exact_copies"] == 1
    assert then["crawls"]["2026-44"]["kept"] == 6


def test_the_command_wants_something_to_be_different(usual: Project) -> None:
    config = ["--config", str(usual.settings.base / "corpus.yaml")]
    asked = CliRunner().invoke(main, ["whatif", "dedup", *config])
    assert asked.exit_code == 2
    assert "Name --threshold or --keep" in asked.stderr


@pytest.mark.parametrize("changed_setting", ["priority: ['*/b*']", "prefer: longest"])
def test_another_order_of_documents_than_that_of_the_run_cannot_be_answered(
    changed_setting: str, tmp_path: Path
) -> None:
    cluster(new_corpus(tmp_path, SHARDS))
    project = new_corpus(tmp_path, SHARDS, f"dedup: {{{changed_setting}}}\n")
    with pytest.raises(UsageError, match=changed_setting.partition(":")[0]):
        decide_again(project, threshold=0.9)
