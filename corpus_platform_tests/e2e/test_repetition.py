"""A run with nothing to do, and what a changed setting makes due."""

import json

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import SHARDS, write_shard

PER_SHARD = {
    (asset, shard)
    for asset in ("cleaned_documents", "minhash_signatures", "packed_bins")
    for shard in SHARDS
}


def test_a_second_run_executes_nothing_reads_no_shard_and_says_so(made: Corpus) -> None:
    before, runs = made.products(), len(made.dagster_runs())

    second, result = made.run()
    assert second.code == 0
    assert "nothing was due: everything is current" in second.printed
    assert result["outcome"] == "complete"
    assert len(made.dagster_runs()) == runs
    assert made.products() == before

    # Without the catalog a run hashes every file once: what it reads more is what this one did not.
    for file in made.data.glob("catalog/*"):
        file.unlink()
    hashing, _ = made.run()
    assert "nothing was due: everything is current" in hashing.printed
    files = [made.data / name for name in before] + list(made.folder.glob("source/*/*"))
    everything = sum(path.stat().st_size for path in files)
    shard = min(path.stat().st_size for path in made.folder.glob("source/*/*"))
    assert hashing.read_chars - second.read_chars > everything - shard / 2


@pytest.mark.slow
def test_a_second_run_reads_far_less_than_one_large_shard(made: Corpus) -> None:
    small, _ = made.run()
    # 48 MB of a field that only travels along: cheap to clean, and dear to read.
    records = [
        {
            "id": f"{i}",
            "text": f"Page {i}. " + "This page has words enough. " * 20,
            "extra": "x" * 1_000_000,
        }
        for i in range(48)
    ]
    write_shard(made.folder / "source/crawl=2026-44/part-00001.jsonl", records)
    made.set(clean={"preset": ["too_short"]})
    first, _ = made.run()
    assert first.code == 0, first.printed
    assert first.read_chars - small.read_chars > 48_000_000
    second, _ = made.run()
    assert second.read_chars - small.read_chars < 1_000_000
    assert "nothing was due" in second.printed


def test_a_threshold_of_cleaning_makes_exactly_what_depends_on_it_due(made: Corpus) -> None:
    before = made.products()
    made.set(clean={"set": {"too_short.min_chars": 300}})
    plan = made.plan()
    corpus_wide = {("dedup_clusters", None), ("shuffled_bins", None)}
    assert {(e["asset"], e["partition"]) for e in plan} == PER_SHARD | corpus_wide
    reasons = {(e["asset"], e["partition"]): e["reason"] for e in plan}
    assert (
        reasons["cleaned_documents", SHARDS[0]]
        == "setting rules.too_short.min_chars changed from 200 to 300"
    )
    assert all(reasons.values())
    assert made.products() == before  # planning writes nothing
    made.set(clean=None)
    assert made.plan() == []


@pytest.mark.slow
def test_a_threshold_set_back_puts_the_old_generations_in_force_and_makes_nothing(
    made: Corpus,
) -> None:
    before = made.products()
    made.set(clean={"set": {"too_short.min_chars": 300}})
    first_release = current_release(made)
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["release"]["id"] != first_release
    assert outputs(before).items() <= outputs(made.products()).items()  # old generations stay

    made.set(clean=None)
    runs = made.dagster_runs()
    assert all("put in force" in e["reason"] or "after " in e["reason"] for e in made.plan())
    both = outputs(made.products())
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["release"]["id"] == current_release(made) == first_release
    assert made.products() == both | before  # only pointers moved, nothing was made
    assert len(made.dagster_runs()) <= len(runs) + 2
    assert made.plan() == []


def outputs(products: dict[str, str]) -> dict[str, str]:
    """Return all but the pointers to what is in force."""
    return {n: v for n, v in products.items() if not n.endswith(("current.json", "latest.json"))}


def current_release(corpus: Corpus) -> str:
    """Return the id of the release in force."""
    return json.loads((corpus.data / "releases/current.json").read_bytes())["id"]


@pytest.mark.slow
def test_a_limit_makes_nothing_due_and_is_in_force_at_once_until_it_is_waived(made: Corpus) -> None:
    before, runs = made.products(), len(made.dagster_runs())
    # 5 of 127 documents of each shard of the first crawl repeat lines; none of the second does.
    made.set(checks={"min_records": 1, "max_drop_share": {"dup_lines": 0.0}})
    assert made.plan() == []

    ended, result = made.run()
    assert ended.code == 1, ended.printed
    assert result["outcome"] == "blocked"
    refused = [b for b in result["blocked"] if b["asset"] == "cleaned_documents"]
    assert {b["gate"] for b in refused} == {"drop_rate_dup_lines"}
    for entry in refused:
        assert f"blocked: cleaned_documents[{entry['partition']}]" in ended.printed
        assert "limit 0.0" in entry["reason"]

    waivers = [
        {"gate": e["gate"], "partition": e["partition"], "reason": "known", "expires": "2999-12-31"}
        for e in refused
    ]
    made.set(waivers=waivers)
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert made.products() == before
    assert len(made.dagster_runs()) == runs
