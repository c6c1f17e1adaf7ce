"""Shards that cannot be read, or hardly, next to good ones: named, left out, and never in silence."""

import json
import shutil
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import SHARDS, documents, write_shard

CUT, JUNK, BAD_LINES = (
    "2026-44/part-00001.jsonl.zst",
    "2026-44/part-00002.jsonl",
    "2026-44/part-00003.jsonl",
)
BAD = {CUT, JUNK, BAD_LINES}


def source(corpus: Corpus, shard: str) -> Path:
    """Return where the file of a shard lies."""
    crawl, name = shard.split("/")
    return corpus.folder / f"source/crawl={crawl}/{name}"


def write_bad_shards(corpus: Corpus) -> None:
    """Add a shard that is cut, one of 400 lines of junk, and one of whose 120 lines 3 are no JSON."""
    whole = source(corpus, SHARDS[0]).read_bytes()
    source(corpus, CUT).write_bytes(whole[: len(whole) // 2])
    source(corpus, JUNK).write_bytes((bytes(range(128, 256)) + b"\n") * 400)
    lines = [json.dumps(d, ensure_ascii=False) for d in documents()[:117]]
    lines[50:50] = ["{ no JSON"] * 3
    source(corpus, BAD_LINES).write_text("\n".join(lines) + "\n", encoding="utf-8")


def blocked(
    result: dict[str, list[dict[str, str]]],
) -> dict[tuple[str, str | None], dict[str, str]]:
    """Return the entries of `blocked` by asset and partition."""
    return {(b["asset"], b["partition"]): b for b in result["blocked"]}


@pytest.mark.slow
def test_bad_shards_are_named_and_too_many_of_them_stop_the_clusters(fresh: Corpus) -> None:
    write_bad_shards(fresh)
    ended, result = fresh.run()
    assert ended.code == 1, ended.printed
    assert result["outcome"] == "blocked"
    assert "Traceback" not in ended.printed
    found = blocked(result)
    assert {(k, b["gate"]) for k, b in found.items()} == {
        (("cleaned_documents", CUT), "readable"),
        (("cleaned_documents", JUNK), "quarantined"),
        (("cleaned_documents", BAD_LINES), "quarantined"),
        (("dedup_clusters", None), "uncleared"),
    }
    half = source(fresh, CUT).stat().st_size
    assert f"{half}" in found["cleaned_documents", CUT]["reason"]  # the offset where it ends
    assert "0.0250 of 120 lines" in found["cleaned_documents", BAD_LINES]["reason"]
    for shard in BAD:
        assert f"blocked: cleaned_documents[{shard}]: " in ended.printed
        assert shard in found["dedup_clusters", None]["reason"]
    assert (
        "3 of 6 shards are not cleared (0.500, limit 0.1)"
        in found["dedup_clusters", None]["reason"]
    )
    assert result["release"] is None
    assert result["crawls"]["2026-44"]["quarantined"] == {
        "invalid_json": 3,
        "invalid_utf8": 400,
    }

    # With leave to go without them the others are packed, and a release is made that says so.
    fresh.set(checks={"max_uncleared_share": 0.5})
    ended, result = fresh.run()
    assert ended.code == 1, ended.printed
    assert result["release"] is None
    assert "no release is in force" in ended.printed
    found = blocked(result)
    assert {k[0] for k in found} == {"cleaned_documents", "shuffled_bins"}
    assert found["shuffled_bins", None]["gate"] == "whole"
    assert "3 shards are left out" in found["shuffled_bins", None]["reason"]
    (release,) = fresh.generations("releases")
    ledger = json.loads((release / "manifest.json").read_bytes())["ledger"]
    assert ledger["shards"] == list(SHARDS)
    assert set(ledger["excluded"]) == BAD
    assert fresh.plan() == []

    fresh.set(waivers=[{"gate": "whole", "reason": "known", "expires": "2999-12-31"}])
    ended, result = fresh.run()
    assert ended.code == 1  # the shards are still blocked
    assert result["release"]["id"] == release.name
    assert {b["asset"] for b in result["blocked"]} == {"cleaned_documents"}


@pytest.mark.slow
def test_a_bad_shard_that_comes_later_is_left_out_of_a_release_that_says_so(
    made: Corpus,
) -> None:
    current = (made.data / "releases/current.json").read_bytes()
    write_shard(source(made, "2026-44/part-00001.jsonl.gz"), documents()[40:50])
    cut = source(made, "2026-44/part-00001.jsonl.gz")
    cut.write_bytes(cut.read_bytes()[:-30])
    made.set(checks={"max_uncleared_share": 0.25})
    ended, result = made.run()
    assert ended.code == 1, ended.printed
    found = blocked(result)
    assert found["cleaned_documents", "2026-44/part-00001.jsonl.gz"]["gate"] == "readable"
    assert found["shuffled_bins", None]["gate"] == "whole"
    assert (made.data / "releases/current.json").read_bytes() == current


@pytest.mark.slow
def test_a_repaired_shard_is_taken_in_when_its_bytes_are_accepted(made: Corpus) -> None:
    shard = "2026-44/part-00001.jsonl.gz"
    write_shard(source(made, shard), documents()[40:50])
    whole = source(made, shard).read_bytes()
    source(made, shard).write_bytes(whole[:-30])
    ended, _ = made.run()
    assert ended.code == 1, ended.printed
    source(made, shard).write_bytes(whole)
    ended, result = made.run()
    assert ended.code == 1, ended.printed  # other bytes than those seen first
    assert blocked(result)["raw_shards", shard]["gate"] == "source_unchanged"
    assert made.do("lock", "--accept", shard).code == 0
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["crawls"]["2026-44"]["shards"] == 2


@pytest.mark.slow
def test_a_source_that_vanishes_before_it_was_fetched_is_named(fresh: Corpus) -> None:
    write_bad_shards(fresh)
    fresh.run()  # registers all
    shutil.rmtree(fresh.data / "raw_shards")
    source(fresh, SHARDS[0]).unlink()
    ended, result = fresh.run()
    assert ended.code == 1, ended.printed
    assert blocked(result)["raw_shards", SHARDS[0]]["gate"] == "source_present"
    assert str(source(fresh, SHARDS[0])) in ended.printed


def test_no_source_at_all_is_an_error_in_words(fresh: Corpus) -> None:
    shutil.rmtree(fresh.folder / "source")
    ended, _ = fresh.run()
    assert ended.code == 2
    assert f"no file matches {fresh.folder}/source/" in ended.printed
    assert "Traceback" not in ended.printed
