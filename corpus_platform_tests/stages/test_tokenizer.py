"""Tests of the tokenizer stage: trained once on kept training documents, then frozen."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from corpus_platform.errors import Uncleared
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.loader.opening import open_release
from corpus_platform.planner import survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform_tests.small import (
    SHARDS,
    documents,
    register,
    run_chain,
    write_shard,
    write_small_corpus,
)

DIGITS = "0123456789"


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _retrained(project: Project) -> Project:
    shutil.rmtree(project.store.folder("tokenizer", None))
    shutil.rmtree(project.store.root / "frozen")  # else it would come back instead
    again = open_project(project.settings)
    assert train_tokenizer(again).made
    return again


def test_a_second_call_does_nothing(project: Project) -> None:
    assert train_tokenizer(project).made is False


def test_it_has_the_vocabulary_asked_for_with_the_special_tokens_first(project: Project) -> None:
    path = project.present("tokenizer", None).path("tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    assert tokenizer.get_vocab_size() == 400
    assert [tokenizer.id_to_token(i) for i in range(11)] == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *(f"<|reserved_{i}|>" for i in range(8)),
    ]


def test_the_ledger_says_what_it_was_trained_on(project: Project) -> None:
    artifact = project.present("tokenizer", None)
    ledger = artifact.manifest.ledger
    assert (ledger["vocab_size"], ledger["vocab_size_asked"]) == (400, 400)
    assert 0 < ledger["sample_bytes"] <= 300_000
    assert 0 < ledger["sample_documents"] <= 231
    assert artifact.manifest.measured["trained_on"] == project.content("dedup_clusters", None)
    assert artifact.manifest.inputs == {}


def test_the_report_tells_people_of_every_language(project: Project) -> None:
    report = json.loads(project.present("tokenizer", None).path("report.json").read_bytes())
    assert set(report["fertility"]) == {"ar", "en", "hi", "ru", "zh"}
    assert report["fertility"]["en"]["documents"] > 200
    assert report["round_trip_failures"] == 0


def test_training_again_gives_the_same_bytes(project: Project) -> None:
    before = project.present("tokenizer", None).path("tokenizer.json").read_bytes()
    again = _retrained(project)
    assert again.present("tokenizer", None).path("tokenizer.json").read_bytes() == before


def test_a_small_corpus_yields_a_smaller_vocabulary_than_asked_and_says_so(
    finished: Path,
) -> None:
    text = finished.read_text(encoding="utf-8")
    finished.write_text(
        text.replace(
            "vocab_size: 400, sample_bytes: 300000", "vocab_size: 9000, sample_bytes: 3000"
        ),
        encoding="utf-8",
    )
    report = train_tokenizer(open_project(load_settings(finished)))
    ledger = report.artifact.manifest.ledger
    assert ledger["sample_bytes"] <= 3000
    assert 267 < ledger["vocab_size"] < 9000
    assert ledger["vocab_size_asked"] == 9000
    assert not any(f.blocks for f in report.findings)
    found = next(f for f in report.findings if f.gate == "vocabulary")
    assert found.warns
    assert f"trained on {ledger['sample_bytes']:,} bytes in" in found.reason
    assert "(tokenizer.sample_bytes: 3,000)" in found.reason
    state = survey(open_project(load_settings(finished))).of("tokenizer")
    assert state.state == "current"
    assert state.reason.startswith("vocabulary: ")


def test_new_documents_never_train_it_again(project: Project, finished: Path) -> None:
    before = project.content("tokenizer", None)
    with finished.open("a", encoding="utf-8") as file:
        file.write("clean: {set: {too_short.min_chars: 900}}\n")
    again = open_project(load_settings(finished))
    assert train_tokenizer(again).made is False
    assert again.content("tokenizer", None) == before


def test_a_choice_that_was_not_there_before_leaves_the_key_as_it_is(project: Project) -> None:
    assert set(project.expected("tokenizer", None).settings) == {
        "algorithm",
        "vocab_size",
        "sample_bytes",
        "seed",
        "special_tokens",
    }


def test_digits_taken_singly_go_through_packs_release_loader_and_export(finished: Path) -> None:
    before = open_project(load_settings(finished)).present("tokenizer", None)
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("vocab_size: 400", "vocab_size: 400, digits: singly"))
    project = open_project(load_settings(finished))
    assert "setting digits is new" in survey(project).of("tokenizer").reason
    folder = run_chain(project)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert project.present("tokenizer", None).content != before.content
    assert [tokenizer.decode([i]) for i in tokenizer.encode("12345").ids] == [*"12345"]
    assert all(f.passed for f in project.findings_of("tokenizer", None, project.present("tokenizer", None)))  # fmt: skip
    release = release_in_force(project)
    assert release is not None
    assert Path(release["path"]) == folder
    loaded = open_release(folder, expect_tokenizer=folder / "tokenizer.json", verify="sha256")
    assert loaded.vocab_size == 400
    tokens = open_token_bin(folder, "train-00000")
    spelled = {i: tokenizer.decode([i]) for i in set(tokens.tokens.tolist())}
    assert any(any(c in DIGITS for c in text) for text in spelled.values())
    assert [t for t in spelled.values() if any(c in DIGITS for c in t) and len(t) > 1] == []
    report = export_release(project, "current", "nanogpt", ExportOptions())  # fmt: skip
    assert (Path(report.where) / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()  # fmt: skip


def test_without_clusters_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    project = open_project(load_settings(write_small_corpus(tmp_path)))
    register(project)
    fetch_shard(project, SHARDS[0])
    with pytest.raises(Uncleared, match="missing: 2 shards are missing"):
        train_tokenizer(project)


def test_a_lost_tokenizer_comes_back_as_it_was_whatever_the_corpus_is_now(project: Project) -> None:
    before = project.present("tokenizer", None)
    content = before.content
    shutil.rmtree(before.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpus_platform.stages.tokenizer.train", _never)
        assert train_tokenizer(project).artifact.content == content


def test_a_lost_tokenizer_with_a_damaged_copy_is_refused_and_not_trained_anew(
    project: Project,
) -> None:
    shutil.rmtree(project.present("tokenizer", None).folder)
    kept = next(project.store.root.glob("frozen/*/tokenizer.json"))
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(Uncleared) as refusal:
        train_tokenizer(project)
    assert refusal.value.gate == "frozen"
    assert str(kept) in refusal.value.reason


def _never(*_: object, **__: object) -> None:
    raise AssertionError("a frozen tokenizer is not trained again")


def test_one_document_alone_is_held_out_and_the_way_out_works(tmp_path: Path) -> None:
    config = tmp_path / "corpus.yaml"
    lines = (
        "sources: [{glob: 'in/{crawl}/*'}]\nclean: {preset: none}\ntokenizer: {vocab_size: 300}\n"
    )
    config.write_text(lines)
    write_shard(tmp_path / "in" / "2026-40" / "a.jsonl", documents()[5:6])
    with pytest.raises(Uncleared, match=r"no document is kept for training.*split\.validation 0"):
        run_chain(open_project(load_settings(config)))
    config.write_text(f"{lines}split: {{validation: 0}}\n")
    assert open_release(run_chain(open_project(load_settings(config)))).documents == 1
