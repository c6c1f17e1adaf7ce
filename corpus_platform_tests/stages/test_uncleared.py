"""Tests of which shards may be left out: missing ones stop the corpus unless they are named."""

import shutil
from pathlib import Path

import pytest

from corpus_platform.errors import Uncleared
from corpus_platform.planner import INGEST, survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import current_path, publish_release
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.stages.uncleared import included_shards
from corpus_platform_tests.small import SHARDS, register, write_small_corpus

FIRST, SECOND, GONE = SHARDS
ALLOWED = "checks: {allow_missing: ['2026-44/*'], max_uncleared_share: 0.5}"


def _project(config: Path, more: str = "") -> Project:
    if more:
        config.write_text(config.read_text() + more + "\n")
    return open_project(load_settings(config))


def _source(project: Project) -> Path:
    return Path(project.shard(GONE).members[0].location)


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """A corpus of which two shards are signed; the source of the third one is gone."""
    config = write_small_corpus(tmp_path)
    project = _project(config)
    register(project)
    _source(project).unlink()
    with pytest.raises(Uncleared):
        fetch_shard(project, GONE)
    for shard in (FIRST, SECOND):
        fetch_shard(project, shard)
        clean_documents(project, shard)
        sign_documents(project, shard)
    return config


def _refused(project: Project) -> Uncleared:
    with pytest.raises(Uncleared) as caught:
        cluster_documents(project)
    return caught.value


def test_a_missing_shard_stops_the_clusters_with_its_name_and_reason(partial: Path) -> None:
    project = _project(partial, "checks: {max_uncleared_share: 0.5}")
    refusal = _refused(project)
    assert (refusal.asset, refusal.partition, refusal.gate) == ("dedup_clusters", None, "missing")
    assert f"1 shards are missing: {GONE}: raw_shards[{GONE}]: source_present: " in refusal.reason
    assert "is not there any more" in refusal.reason
    assert "checks.allow_missing" in refusal.reason
    blocked = {(b.asset, b.partition, b.gate) for b in survey(project).blocked}
    assert blocked == {
        ("raw_shards", GONE, "source_present"),
        ("dedup_clusters", None, "missing"),
    }


def test_a_shard_that_was_never_fetched_is_missing(tmp_path: Path) -> None:
    project = _project(write_small_corpus(tmp_path))
    register(project)
    reason = _refused(project).reason
    assert reason.startswith(f"3 shards are missing: {FIRST}: not fetched yet; {SECOND}: not ")


def test_a_missing_shard_that_is_named_is_left_out_and_nothing_waits_for_it(partial: Path) -> None:
    project = _project(partial, ALLOWED)
    found = survey(project)
    assert found.blocked == []
    assert not [d for d in found.due if d.partition == GONE]
    for asset in (*INGEST, "packed_bins"):
        state = found.of(asset, GONE)
        assert (state.state, state.gate) == ("missing", None)
        assert "checks.allow_missing names its shard" in state.reason
    cluster_documents(project)
    train_tokenizer(project)
    for shard in (FIRST, SECOND):
        pack_shard(project, shard)
    release = publish_release(project)
    assert [f.gate for f in release.findings if f.blocks] == []
    assert release.artifact.folder.name in current_path(project).read_text()
    after = survey(_project(partial))
    assert (after.due, after.blocked) == ([], [])


def test_a_named_shard_that_comes_after_all_is_taken_in(partial: Path) -> None:
    project = _project(partial, ALLOWED)
    cluster_documents(project)
    write_small_corpus(partial.parent / "again")
    shutil.copyfile(
        partial.parent / "again/source/crawl=2026-44/part-00000.parquet", _source(project)
    )
    fetch_shard(project, GONE)
    found = survey(_project(partial))
    assert ("cleaned_documents", GONE) in [(d.asset, d.partition) for d in found.due]
    assert found.of("dedup_clusters").due


def test_named_shards_count_in_the_share_that_may_be_left_out(partial: Path) -> None:
    project = _project(partial, "checks: {allow_missing: ['2026-44/*']}")
    refusal = _refused(project)
    assert refusal.gate == "uncleared"
    assert "1 of 3 shards are not cleared (0.333, limit 0.1)" in refusal.reason


def test_a_pattern_that_names_another_shard_is_no_help(partial: Path) -> None:
    project = _project(partial, "checks: {allow_missing: ['2026-40/*'], max_uncleared_share: 0.5}")
    assert _refused(project).gate == "missing"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_damaged_copy_without_its_source_is_a_missing_shard(
    finished: Path, *, allowed: bool
) -> None:
    project = _project(finished, ALLOWED if allowed else "checks: {max_uncleared_share: 0.5}")
    register(project)
    artifact = project.artifact("raw_shards", GONE)
    assert artifact is not None
    artifact.path("part-00000.parquet").write_bytes(b"damaged")
    for path in finished.parent.glob("source/crawl=2026-44/*"):
        path.unlink()
    found = survey(_project(finished))
    if allowed:
        assert included_shards(project).shards == (FIRST, SECOND)
        assert found.blocked == []
        assert found.of("raw_shards", GONE).state == "missing"
    else:
        assert {b.gate for b in found.blocked} == {"source_present", "missing"}


def test_a_shard_that_is_refused_for_what_it_holds_is_not_missing(partial: Path) -> None:
    project = _project(partial, ALLOWED)
    path = Path(project.shard(SECOND).members[0].location)
    path.write_bytes(b"other bytes")
    with pytest.raises(Uncleared) as caught:
        included_shards(open_project(project.settings))
    assert caught.value.gate == "uncleared"
    assert "source_unchanged" in caught.value.reason
