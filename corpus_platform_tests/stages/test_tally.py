"""Tests of the tally: per crawl what became of the documents, every line adding up."""

import shutil
from pathlib import Path

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.tally import CrawlTally, tally
from corpus_platform_tests.small import SHARDS, register, write_small_corpus


def _tally(config: Path) -> dict[str, CrawlTally]:
    return tally(open_project(load_settings(config)))


def test_crawls_come_oldest_first_with_their_shards(finished: Path) -> None:
    assert [(name, crawl.shards) for name, crawl in _tally(finished).items()] == [
        ("2026-40", 2),
        ("2026-44", 1),
    ]


@pytest.mark.parametrize("crawl", ["2026-40", "2026-44"])
def test_every_line_adds_up(crawl: str, finished: Path) -> None:
    found = _tally(finished)[crawl]
    assert found.lines == found.documents + found.quarantined.total()
    assert found.documents == found.cleaned + found.dropped.total()
    assert found.cleaned == found.kept + found.exact_copies + found.near_copies
    assert found.kept == found.train_documents + found.validation_documents
    assert found.train_tokens > found.train_documents > 0


def test_the_numbers_of_the_small_corpus(finished: Path) -> None:
    old, new = _tally(finished).values()
    assert (old.lines, new.lines) == (253, 41)
    assert new.dropped["too_short"] == 1
    assert (old.exact_copies, new.exact_copies) == (0, 10)


def test_tokens_are_those_of_the_release(finished: Path) -> None:
    project = open_project(load_settings(finished))
    ledger = project.present("shuffled_bins", None).manifest.ledger
    crawls = _tally(finished).values()
    for split in ("train", "validation"):
        for what in ("documents", "tokens"):
            name = f"{split}_{what}"
            assert sum(getattr(c, name) for c in crawls) == ledger[name]


def test_the_json_form_has_the_keys_of_the_design(finished: Path) -> None:
    whole = _tally(finished)["2026-44"].to_json()
    assert list(whole) == [
        "shards",
        "lines",
        "quarantined",
        "documents",
        "dropped",
        "cleaned",
        "exact_copies",
        "near_copies",
        "kept",
        "train_documents",
        "validation_documents",
        "train_tokens",
        "validation_tokens",
    ]
    assert whole["quarantined"] == {}
    assert whole["dropped"] == {
        "too_short": 1,
        "dup_lines": 0,
        "char_repeat": 0,
        "low_alnum": 3,
        "low_lang_confidence": 0,
    }


def test_before_anything_is_made_all_counts_are_zero(tmp_path: Path) -> None:
    config = write_small_corpus(tmp_path)
    register(open_project(load_settings(config)))
    found = _tally(config)
    assert found == {"2026-40": CrawlTally(shards=2), "2026-44": CrawlTally(shards=1)}


def test_a_shard_counts_as_far_as_it_came(finished: Path) -> None:
    before = _tally(finished)["2026-40"]
    project = open_project(load_settings(finished))
    shutil.rmtree(project.store.folder("packed_bins", SHARDS[0]))
    after = _tally(finished)["2026-40"]
    assert (after.lines, after.kept) == (before.lines, before.kept)
    assert 0 < after.train_documents < before.train_documents
