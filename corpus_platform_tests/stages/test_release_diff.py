"""Tests of what differs between releases, held against counts of a few lines over their tables."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source
from corpus_platform.stages.release_diff import Changes, Reason, ReleaseDiff, diff_releases
from corpus_platform_tests.small import SHARDS, register, run_chain

pytestmark = pytest.mark.xdist_group("release_diff")  # the releases are made once
CHANGED = "clean: {set: {too_short.min_chars: 700}}\n"
LAST = SHARDS[2]


class Releases(NamedTuple):
    """Three releases of one corpus: short documents go, then the second crawl and other splits."""

    config: Path
    first: str
    shorter: str
    retired: str


def _published(config: Path) -> str:
    return run_chain(open_project(load_settings(config))).name


@pytest.fixture(scope="module")
def releases(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """Those releases; nobody changes them. Each comes into force, however much smaller it is."""
    folder = tmp_path_factory.mktemp("compared") / "finished"
    shutil.copytree(finished_once, folder)
    config = folder / "corpus.yaml"
    config.write_text(config.read_text() + "checks: {max_release_shrink: 1}\n")
    first = _published(config)
    config.write_text(config.read_text() + CHANGED)
    shorter = _published(config)
    config.write_text(config.read_text().replace("validation: 0.02", "validation: 0.3"))
    open_project(load_settings(config)).registry.retire(LAST)
    return Releases(config, first, shorter, _published(config))


def _project(config: Path) -> Project:
    return open_project(load_settings(config), read_only=True)


def _listed(releases: Releases, name: str) -> dict[tuple[str, int], tuple[bool, int]]:
    """Return split and tokens of each document of a release."""
    path = releases.config.parent / "data" / "releases" / name / "documents.parquet"
    rows = pl.read_parquet(path).select("shard", "row", "file", "tokens").iter_rows()
    return {(shard, row): (file.startswith("train"), tokens) for shard, row, file, tokens in rows}


def test_what_a_threshold_drops_is_removed_for_it(releases: Releases) -> None:
    old, new = (_listed(releases, name) for name in (releases.first, releases.shorter))
    found = diff_releases(_project(releases.config), releases.first[:8], releases.shorter)
    gone = old.keys() - new.keys()
    tokens = sum(old[place][1] for place in gone)
    assert len(gone) == 16
    assert found.removed == [Reason("rule", "too_short", 16, tokens)]
    assert (found.added, found.total.added_documents) == ([], 0)
    assert found.total == Changes(
        removed_documents=16,
        removed_tokens=tokens,
        kept_documents=len(new),
        kept_tokens_old=sum(new[place][1] for place in new),
        kept_tokens_new=sum(new[place][1] for place in new),
    )
    assert found.settings == {"cleaned_documents.rules.too_short.min_chars": (200, 700)}
    assert (found.old.documents, found.new.documents) == (len(old), len(new))
    assert (found.shards_added, found.shards_removed, found.repacked) == ([], [], 3)


def test_counts_by_crawl_and_language_are_those_of_the_sources(releases: Releases) -> None:
    """Languages by the ids of the corpus: pages are in the language that their id ends in."""
    found = diff_releases(_project(releases.config), releases.first, releases.shorter)
    old, new = (_listed(releases, name) for name in (releases.first, releases.shorter))
    for crawl, changes in found.crawls.items():
        own = {place for place in old if place[0].startswith(crawl)}
        assert changes.kept_documents == len(own & new.keys())
        assert changes.removed_documents == len(own - new.keys())
    assert list(found.crawls) == ["2026-40", "2026-44"]
    pages = {lang: (c.kept_documents, c.removed_documents) for lang, c in found.languages.items() if lang != "en"}  # fmt: skip
    assert pages == {"ar": (0, 1), "hi": (0, 1), "ru": (0, 1), "zh": (0, 1)}


def test_the_other_way_round_the_same_documents_are_added(releases: Releases) -> None:
    project = _project(releases.config)
    there = diff_releases(project, releases.first, releases.shorter)
    back = diff_releases(project, releases.shorter, releases.first)
    assert back.added == there.removed
    assert back.total.added_tokens == there.total.removed_tokens
    assert back.total.removed_documents == 0


def test_a_retired_shard_and_moved_splits_are_told(releases: Releases) -> None:
    old, new = (_listed(releases, name) for name in (releases.shorter, releases.retired))
    found = diff_releases(_project(releases.config), "previous", "current")
    gone = [place for place in old if place[0] == LAST]
    moved = [place for place in new if old[place][0] and not new[place][0]]
    assert len(moved) > 20
    assert found.removed == [Reason("retired", None, len(gone), sum(old[p][1] for p in gone))]
    total = found.total
    assert total.to_validation_documents == len(moved)
    assert total.to_validation_tokens == sum(new[place][1] for place in moved)
    assert (total.to_train_documents, total.added_documents) == (0, 0)
    assert found.settings == {"split.validation": (0.02, 0.3)}
    assert (found.shards_removed, found.crawls["2026-44"].kept_documents) == ([LAST], 0)


def test_of_what_comes_again_with_a_shard_it_is_told_that_the_shard_was_retired(
    releases: Releases,
) -> None:
    found = diff_releases(_project(releases.config), releases.retired, releases.shorter)
    own = [t for (shard, _), (_, t) in _listed(releases, releases.shorter).items() if shard == LAST]
    assert found.added == [Reason("retired", None, len(own), sum(own))]
    assert found.shards_added == [LAST]


def test_the_same_release_differs_in_nothing(releases: Releases) -> None:
    found = diff_releases(_project(releases.config), releases.first, releases.first)
    kept = found.total
    assert kept == Changes(
        kept_documents=kept.kept_documents,
        kept_tokens_old=kept.kept_tokens_new,
        kept_tokens_new=kept.kept_tokens_new,
    )
    assert (found.removed, found.added, found.settings) == ([], [], {})


def test_without_what_a_release_was_made_of_reasons_are_unknown(releases: Releases, tmp_path: Path) -> None:  # fmt: skip
    folder = tmp_path / "copy"
    shutil.copytree(releases.config.parent, folder)
    for asset in ("packed_bins", "cleaned_documents", "dedup_verdicts", "dedup_clusters"):
        shutil.rmtree(folder / "data" / asset)
    found = diff_releases(_project(folder / "corpus.yaml"), releases.first, releases.shorter)
    assert [(r.reason, r.documents) for r in found.removed] == [("unknown", 16)]
    assert list(found.languages) == ["unknown"]
    assert found.total.kept_documents == len(_listed(releases, releases.shorter))


def test_a_release_that_is_not_there_or_not_whole_is_refused(
    releases: Releases, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no release 'zz'"):
        diff_releases(_project(releases.config), "zz", "current")
    folder = tmp_path / "copy"
    shutil.copytree(releases.config.parent, folder)
    (folder / "data" / "releases" / releases.first / "settings.json").write_text("{}")
    with pytest.raises(StorageError, match=r"settings.json: has 2 bytes, expected"):
        diff_releases(_project(folder / "corpus.yaml"), releases.first, "current")


REPAIRED = """\
storage: data
sources: [{glob: "source/{crawl}/*"}]
tokenizer: {vocab_size: 300, sample_bytes: 30000}
split: {validation: 0}
pack: {max_document_tokens: 400}
checks: {max_quarantined_share: 1.0}
run: {workers: 1}
"""


def _repaired(folder: Path) -> ReleaseDiff:
    """Compare a release with that of its repaired shard, in which all rows moved.

    The first record is gone, the second is no JSON, the third is a near copy of one of a new
    older shard, and the fourth an exact one.
    """
    texts = [
        " ".join(f"Sentence {n * 31 + i} says {n * i * 7 + i}." for i in range(60))
        for n in range(8)
    ]
    records = [json.dumps({"id": f"d{n}", "text": text, "lang": "en"}) for n, text in enumerate(texts)]  # fmt: skip
    source = folder / "source" / "2026-40" / "b.jsonl"
    source.parent.mkdir(parents=True)
    source.write_text("\n".join(records))
    config = folder / "corpus.yaml"
    config.write_text(REPAIRED)
    first = _published(config)
    source.write_text("\n".join(["x", "{broken", *records[2:]][1:]))
    near, exact = {"id": "n", "text": texts[2] + " One more.", "lang": "en"}, {"id": "e", "text": texts[3], "lang": "en"}  # fmt: skip
    (source.parent / "a.jsonl").write_text("\n".join(map(json.dumps, (near, exact))))
    config.write_text(REPAIRED.replace("400", "300"))
    project = open_project(load_settings(config))
    register(project)
    accept_source(project, "2026-40/b.jsonl")
    return diff_releases(_project(config), first, _published(config))


def test_a_repaired_shard_is_told_record_by_record(tmp_path: Path) -> None:
    found = _repaired(tmp_path)
    reasons = {r.reason: (r.detail, r.documents) for r in found.removed}
    assert reasons == {
        "quarantined": ("invalid_json", 1),  # in the row of the record that is gone
        "not_in_source": (None, 1),
        "near_copy": ("2026-40", 1),
        "exact_copy": ("2026-40", 1),
    }
    total = found.total
    assert (total.kept_documents, total.added_documents) == (4, 2)
    assert found.added == [Reason("no_shard", None, 2, 600)]
    assert (total.resized_documents, total.recut_documents) == (4, 4)
    assert total.kept_tokens_new == 4 * 300
    assert found.settings == {"packed_bins.max_document_tokens": (400, 300)}
    assert found.shards_added == ["2026-40/a.jsonl"]
