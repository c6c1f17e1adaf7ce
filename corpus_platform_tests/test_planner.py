"""Tests of the planner: how everything stands and why, and that what is due is what a run makes."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform.planner import ALL_SHARDS, INGEST, Survey, survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import CHAIN, open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import accept_source, fetch_shard
from corpus_platform.stages.shuffled_bins import current_path, publish_release
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.registry import Member
from corpus_platform_tests.faults import FAULTS, plant
from corpus_platform_tests.small import SHARDS, register, write_small_corpus

FIRST, SECOND, THIRD = SHARDS
PACKS = [("packed_bins", shard) for shard in SHARDS]
EVERYTHING = [
    *((asset, shard) for shard in SHARDS for asset in INGEST),
    ("dedup_clusters", None),
    ("tokenizer", None),
    *PACKS,
    ("shuffled_bins", None),
]


def _project(config: Path, more: str = "") -> Project:
    if more:
        with config.open("a", encoding="utf-8") as file:
            file.write(f"{more}\n")
    return open_project(load_settings(config))


def _due(found: Survey) -> list[tuple[str, str | None]]:
    return [(d.asset, d.partition) for d in found.due]


def _reason(found: Survey, asset: str, partition: str | None = None) -> str:
    return found.of(asset, partition).reason


def _made(project: Project) -> list[tuple[str, str | None]]:
    """Run every stage of the chain; return what was made anew."""
    return [(r.asset, r.partition) for r in _run(project) if r.made]


def _run(project: Project) -> Iterator[Report]:
    for shard in project.shards():
        yield fetch_shard(project, shard)
        yield clean_documents(project, shard)
        yield sign_documents(project, shard)
    yield cluster_documents(project)
    yield train_tokenizer(project)
    for shard in project.shards():
        yield pack_shard(project, shard)
    yield publish_release(project)


def _replace_source(finished: Path) -> None:
    """Have the third shard's source hold other documents from now on."""
    write_small_corpus(finished.parent)
    source = finished.parent / "source"
    shutil.copyfile(source / "crawl=2026-40" / "part-00001.jsonl.gz", source / "crawl=2026-44" / "part-00000.parquet")  # fmt: skip


def test_of_a_new_corpus_everything_is_due_and_a_run_makes_it(
    tmp_path: Path, finished_once: Path
) -> None:
    project = _project(write_small_corpus(tmp_path))
    register(project)
    found = survey(project)
    assert _due(found) == EVERYTHING
    assert {s.state for s in found.states} == {"missing"}
    assert _reason(found, "raw_shards", FIRST) == "never made"
    assert _reason(found, "cleaned_documents", FIRST) == f"after raw_shards[{FIRST}], which is due"
    assert [s.asset for s in found.states if not s.waits] == ["raw_shards"] * 3
    assert _made(project) == EVERYTHING
    # Another chain over the same sources agrees in every content.
    other = open_project(load_settings(finished_once / "corpus.yaml"), read_only=True)
    for asset, partition in EVERYTHING:
        assert project.content(asset, partition) == other.content(asset, partition)


def test_of_a_finished_corpus_nothing_is_due_and_a_run_makes_nothing(finished: Path) -> None:
    found = survey(_project(finished))
    assert found.due == []
    assert found.blocked == []
    assert {s.state for s in found.states} == {"current"}
    assert all(s.manifest and Path(s.manifest).is_file() for s in found.states)
    assert _made(_project(finished)) == []


AFTER_CLUSTERS = [("dedup_clusters", None), *PACKS, ("shuffled_bins", None)]


@pytest.mark.parametrize(
    ("more", "planned"),
    [
        (
            "clean: {set: {too_short.min_chars: 900}}",
            [e for e in EVERYTHING if e[0] not in ("raw_shards", "tokenizer")],
        ),
        ("dedup: {bands: 32, rows: 4}", [*((INGEST[2], s) for s in SHARDS), *AFTER_CLUSTERS]),
        ("dedup: {threshold: 0.95}", AFTER_CLUSTERS),
        ("shuffle: {seed: 1}", [("shuffled_bins", None)]),
        ("pack: {sequence_length: 77}", []),
        ("checks: {max_drop_share: {char_repeat: 0.09}}", []),
        ("release: {keep: 9}", []),
        ("schedule: {cron: '1 1 * * *'}", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_changed_setting_makes_due_what_depends_on_it_and_no_more(
    more: str, planned: list[tuple[str, str | None]], finished: Path
) -> None:
    project = _project(finished, more)
    found = survey(project)
    assert _due(found) == planned
    made = set(_made(project))
    assert made <= set(planned)
    assert made >= {(s.asset, s.partition) for s in found.states if s.due and not s.waits}
    assert survey(project).due == []


def test_what_waits_for_verdicts_that_stay_as_they_are_is_not_made(finished: Path) -> None:
    project = _project(finished, "dedup: {threshold: 0.81}")
    assert _due(survey(project)) == [("dedup_clusters", None), *PACKS, ("shuffled_bins", None)]
    assert _made(project) == [("dedup_clusters", None)]
    assert survey(project).due == []


def test_a_new_tokenizer_is_due_only_when_its_settings_change(finished: Path) -> None:
    project = _project(finished)
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("vocab_size: 400", "vocab_size: 420"), encoding="utf-8")
    project = _project(finished)
    found = survey(project)
    wanted = [("tokenizer", None), *PACKS, ("shuffled_bins", None)]
    assert _due(found) == wanted
    assert _reason(found, "tokenizer") == "setting vocab_size changed from 400 to 420"
    assert _made(project) == wanted


def test_the_reason_names_setting_and_both_values(finished: Path) -> None:
    found = survey(_project(finished, "clean: {set: {too_short.min_chars: 300}}"))
    state = found.of("cleaned_documents", FIRST)
    assert state.reason == "setting rules.too_short.min_chars changed from 200 to 300"
    assert (state.state, state.due, state.waits) == ("stale", True, False)
    waiting = found.of("minhash_signatures", FIRST)
    assert (waiting.state, waiting.due, waiting.waits) == ("stale", True, True)


def test_the_reason_names_an_input_that_changed(finished: Path) -> None:
    project = _project(finished, "clean: {set: {too_short.min_chars: 900}}")
    clean_documents(project, FIRST)
    found = survey(project)
    changed = _reason(found, "minhash_signatures", FIRST)
    assert changed.startswith("input cleaned_documents changed from ")
    assert found.of("cleaned_documents", FIRST).state == "current"


def test_the_reason_names_a_stage_that_changed(finished: Path) -> None:
    newer = dataclasses.replace(CHAIN["minhash_signatures"], version=3)
    project = Project(load_settings(finished), {**CHAIN, "minhash_signatures": newer})
    found = survey(project)
    assert _reason(found, "minhash_signatures", SECOND) == ("the stage changed from version 2 to 3")
    assert _due(found)[:3] == [("minhash_signatures", shard) for shard in SHARDS]


def test_a_damaged_file_is_due_again_and_named(finished: Path) -> None:
    artifact = _project(finished).artifact("cleaned_documents", FIRST)
    assert artifact is not None
    path = artifact.path("documents.parquet")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    project = _project(finished)
    state = survey(project).of("cleaned_documents", FIRST)
    assert (state.state, state.due) == ("stale", True)
    assert state.reason.startswith("damaged: documents.parquet: sha256 ")
    assert _made(project) == [("cleaned_documents", FIRST)]
    assert survey(project).due == []


@pytest.mark.parametrize("name", ["documents.parquet", "manifest.json"])
def test_a_file_that_is_gone_is_made_again_to_the_same_content(name: str, finished: Path) -> None:
    project = _project(finished)
    before = project.artifact("cleaned_documents", SECOND)
    assert before is not None
    content = before.content
    before.path(name).unlink()
    assert ("cleaned_documents", SECOND) in _due(survey(_project(finished)))
    project = _project(finished)
    assert _made(project) == [("cleaned_documents", SECOND)]
    assert project.content("cleaned_documents", SECOND) == content


def test_a_refused_shard_is_blocked_by_its_gate_and_what_comes_after_by_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = next(f for f in FAULTS if f.gate == "exact_keys")
    project = _project(finished)
    shutil.rmtree(project.store.folder("minhash_signatures", FIRST))
    with monkeypatch.context() as patch:
        plant(patch, "minhash_signatures", fault.plant)
        sign_documents(project, FIRST)
    found = survey(project)
    root = found.of("minhash_signatures", FIRST)
    assert (root.state, root.gate, root.due) == ("blocked", "exact_keys", False)
    assert root.manifest is not None
    after = found.of("packed_bins", FIRST)
    assert (after.state, after.gate, after.due) == ("blocked", None, False)
    assert after.reason.startswith(f"after minhash_signatures[{FIRST}], which is blocked: ")
    clusters = found.of("dedup_clusters")
    assert (clusters.state, clusters.gate) == ("blocked", "uncleared")
    assert not clusters.reason.startswith("dedup_clusters")  # shown beside it
    assert [(b.asset, b.partition, b.gate) for b in found.blocked] == [
        ("minhash_signatures", FIRST, "exact_keys"),
        ("dedup_clusters", None, "uncleared"),
    ]
    assert found.due == []


def test_other_shards_go_on_without_a_refused_one_where_the_settings_allow_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = next(f for f in FAULTS if f.gate == "exact_keys")
    project = _project(finished, "checks: {max_uncleared_share: 0.5}")
    shutil.rmtree(project.store.folder("minhash_signatures", FIRST))
    with monkeypatch.context() as patch:
        plant(patch, "minhash_signatures", fault.plant)
        sign_documents(project, FIRST)
    assert _due(survey(project)) == [("dedup_clusters", None), ("shuffled_bins", None)]
    cluster_documents(project)
    for shard in SHARDS[1:]:
        pack_shard(project, shard)
    publish_release(project)
    found = survey(project)
    assert found.due == []
    assert [(b.asset, b.partition, b.gate) for b in found.blocked] == [
        ("minhash_signatures", FIRST, "exact_keys"),
        ("shuffled_bins", None, "whole"),
    ]


def test_a_source_that_changed_blocks_its_shard_until_it_is_accepted(finished: Path) -> None:
    _replace_source(finished)
    register(_project(finished))
    project = _project(finished)
    found = survey(project)
    root = found.of("raw_shards", THIRD)
    assert (root.state, root.gate) == ("blocked", "source_unchanged")
    assert root.reason.count("sha256") == 1
    assert "recorded is " in root.reason
    assert found.of("raw_shards", FIRST).state == "current"
    accept_source(project, THIRD)
    found = survey(project)
    assert _reason(found, "raw_shards", THIRD) == "setting generation changed from 0 to 1"
    assert ("raw_shards", THIRD) in _due(found)


def test_a_source_that_is_gone_is_no_matter_while_the_stored_copy_is_whole(
    finished: Path,
) -> None:
    register(_project(finished))
    shutil.rmtree(finished.parent / "source")
    project = _project(finished)
    assert survey(project).due == []
    shutil.rmtree(project.store.folder("raw_shards", FIRST))
    root = survey(project).of("raw_shards", FIRST)
    assert (root.state, root.gate) == ("blocked", "source_present")
    assert "is not there any more" in root.reason


def test_a_release_that_is_not_in_force_is_due(finished: Path) -> None:
    project = _project(finished)
    current_path(project).unlink()
    found = survey(project)
    assert _due(found) == [("shuffled_bins", None)]
    assert publish_release(project).made is False
    assert survey(project).due == []


def test_a_limit_in_the_settings_is_in_force_at_once(finished: Path) -> None:
    found = survey(_project(finished, "checks: {max_drop_share: {char_repeat: 0.01}}"))
    blocked = found.blocked[0]
    assert (blocked.asset, blocked.partition, blocked.gate) == (
        "cleaned_documents",
        FIRST,
        "drop_rate_char_repeat",
    )
    assert "limit 0.01" in blocked.reason


def test_a_warning_stands_beside_what_is_current(finished: Path) -> None:
    more = "checks: {min_records: 1000, max_drop_share: {char_repeat: 0.01}}"
    state = survey(_project(finished, more)).of("cleaned_documents", FIRST)
    assert state.state == "current"
    assert state.reason.startswith("drop_rate_char_repeat: dropped/char_repeat 0.03")


def test_a_survey_reads_and_writes_nothing(finished: Path) -> None:
    storage = finished.parent / "data"
    shutil.rmtree(storage / "catalog")
    before = sorted((p, p.stat().st_mtime_ns) for p in storage.rglob("*"))
    survey(open_project(load_settings(finished), read_only=True))
    assert sorted((p, p.stat().st_mtime_ns) for p in storage.rglob("*")) == before


def test_no_shard_at_all_is_a_refusal_in_words(tmp_path: Path) -> None:
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: '{crawl}/*'}]", encoding="utf-8")
    found = survey(_project(tmp_path / "corpus.yaml"))
    assert [(b.asset, b.gate) for b in found.blocked] == [("dedup_clusters", "uncleared")]
    assert "no shard is registered" in found.blocked[0].reason


def test_every_asset_has_a_state(finished: Path) -> None:
    named = {s.asset for s in survey(_project(finished)).states}
    assert named == {*INGEST, *ALL_SHARDS, "packed_bins"}
    assert named == set(CHAIN) - {"dedup_verdicts"}


def test_another_version_that_s3_lists_blocks_a_whole_copy_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    project = _project(write_small_corpus(tmp_path))
    register(project)
    fetch_shard(project, FIRST)
    # From now on the file lies in S3, which nobody asks: the listing alone tells.
    name = Path(project.shard(FIRST).members[0].location).name
    for version in ("v1", "v2"):
        member = Member(f"s3://bucket/{name}", version=version)
        project.registry.register([dataclasses.replace(project.shard(FIRST), members=(member,))])
    found = survey(_project(tmp_path / "corpus.yaml"))
    state = found.of("raw_shards", FIRST)
    assert (state.state, state.gate) == ("blocked", "source_unchanged")
    assert f"{name}: the source lists version v2, recorded is v1" in state.reason
    accept_source(_project(tmp_path / "corpus.yaml"), FIRST)
    state = survey(_project(tmp_path / "corpus.yaml")).of("raw_shards", FIRST)
    assert (state.state, state.due) == ("stale", True)
