"""Tests of `corpus tokenizer`: what it shows, and a new one in place of the frozen one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.planner import survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import tokenizer as stage
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.retraining import retrain
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage import lease
from corpus_platform_tests.small import SHARDS, run_chain, write_small_corpus

pytestmark = pytest.mark.xdist_group("tokenizing")  # the changed corpus is made once


def _corpus(config: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["tokenizer", *arguments, "--config", str(config)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def _opened(config: Path) -> Project:
    return open_project(load_settings(config))


@pytest.fixture(scope="module")
def changed_once(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the finished corpus after other rules: all is current, by the old tokenizer."""
    folder = tmp_path_factory.mktemp("changed") / "corpus"
    shutil.copytree(finished_once, folder)
    with (folder / "corpus.yaml").open("a", encoding="utf-8") as file:
        file.write("clean: {set: {too_short.min_chars: 900}}\n")
    run_chain(_opened(folder / "corpus.yaml"))
    return folder


@pytest.fixture
def changed(changed_once: Path, tmp_path: Path) -> Path:
    """The settings file of a copy of it."""
    shutil.copytree(changed_once, tmp_path / "changed")
    return tmp_path / "changed" / "corpus.yaml"


def test_the_tokenizer_in_force_is_shown(finished: Path) -> None:
    project = _opened(finished)
    found, artifact = _corpus(finished), project.present("tokenizer", None)
    assert found.exit_code == 0
    lines = found.output.splitlines()
    assert lines[0] == f"tokenizer {artifact.path('tokenizer.json')}"
    assert lines[1] == f"sha256 {artifact.hashes()['tokenizer.json']}"
    assert lines[2] == "400 tokens (400 asked for), 11 of them special"
    assert lines[3].startswith("trained on 29")  # of the 300,000 bytes that the settings allow
    assert lines[3].endswith("; dedup has decided nothing anew since")
    assert any(line.startswith("frozen: new documents never train it again") for line in lines)
    report = json.loads(artifact.path("report.json").read_bytes())["fertility"]
    (english,) = (line.split() for line in lines if line.startswith("en "))
    assert english[1:3] == [
        str(report["en"]["documents"]),
        f"{report['en']['chars_per_token']:.2f}",
    ]


def test_the_same_is_printed_as_json(finished: Path) -> None:
    artifact = _opened(finished).present("tokenizer", None)
    whole = json.loads(_corpus(finished, "--json").output)
    assert whole["path"] == str(artifact.path("tokenizer.json"))
    assert (whole["vocab_size"], whole["training"], whole["corpus_changed"]) == (400, 0, False)
    assert set(whole["languages"]) == {"ar", "en", "hi", "ru", "zh"}
    assert whole["special_tokens"][0] == "<|endoftext|>"


def test_before_the_first_training_it_ends_with_1(tmp_path: Path) -> None:
    config = write_small_corpus(tmp_path)
    for arguments in ((), ("retrain", "--yes")):
        found = _corpus(config, *arguments)
        assert found.exit_code == 1
        assert "error: tokenizer: current: " in found.output


def test_on_an_unchanged_corpus_nothing_is_trained(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "train", _never)
    found = _corpus(finished, "retrain", "--yes")
    assert found.exit_code == 0
    assert "training again would give the same" in found.output


def test_where_nobody_can_be_asked_it_wants_yes_and_leaves_all_as_it_is(
    changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "train", _never)
    found = _corpus(changed, "retrain")
    assert found.exit_code == 2
    assert "the packs of all shards become due (3 are current now)" in found.output
    assert "add --yes" in found.output
    assert survey(_opened(changed)).due == []


def test_a_new_tokenizer_makes_packs_and_release_due_and_leaves_the_old_release_readable(
    changed: Path,
) -> None:
    project = _opened(changed)
    old = project.present("tokenizer", None)
    before = release_in_force(project)
    assert before is not None
    tokens = _first(before)
    assert "the corpus changed since" in _corpus(changed).output

    found = _corpus(changed, "retrain", "--yes")
    assert found.exit_code == 0, found.output
    assert "`corpus run` packs all shards anew" in found.output
    new = _opened(changed).present("tokenizer", None)
    assert new.hashes()["tokenizer.json"] != old.hashes()["tokenizer.json"]
    assert new.manifest.measured["trained_on"] == project.content("dedup_clusters", None)
    due = [(d.asset, d.partition) for d in survey(_opened(changed)).due]
    assert due == [*(("packed_bins", shard) for shard in SHARDS), ("shuffled_bins", None)]
    assert "input tokenizer changed" in survey(_opened(changed)).of("packed_bins", SHARDS[0]).reason

    after = run_chain(_opened(changed))
    assert survey(_opened(changed)).due == []
    assert "training number 2 of these settings" in _corpus(changed).output
    for folder, tokenizer in ((after, new), (Path(before["path"]), old)):
        copy = (folder / "tokenizer.json").read_bytes()
        assert copy == tokenizer.path("tokenizer.json").read_bytes()
    assert np.array_equal(_first(before), tokens)
    verified = CliRunner().invoke(main, ["verify", "--config", str(changed)])
    assert verified.exit_code == 0, verified.output
    target = changed.parent / "old"
    exported = CliRunner().invoke(
        main,
        ["export", before["id"], "--format", "nanogpt", "--to", str(target), "--config", str(changed)],
    )  # fmt: skip
    assert exported.exit_code == 0, exported.output


def test_the_new_one_is_as_frozen_as_the_old_one(
    changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = CliRunner()  # the settings may be named before the command too
    found = runner.invoke(main, ["tokenizer", "--config", str(changed), "retrain", "--yes"])
    assert found.exit_code == 0, found.output
    monkeypatch.setattr(stage, "train", _never)
    new = _opened(changed).present("tokenizer", None)
    shutil.rmtree(new.folder)
    assert train_tokenizer(_opened(changed)).artifact.content == new.content


def test_one_that_was_trained_and_did_not_come_into_force_is_not_taken_for_a_new_one(
    changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("corpus_platform.stages.retraining.count_training", _killed)
        with pytest.raises(KeyboardInterrupt):
            _retrain_alone(changed)
    assert survey(_opened(changed)).due == []
    assert _corpus(changed, "retrain", "--yes").exit_code == 0
    assert json.loads(_corpus(changed, "--json").output)["training"] == 2


def test_while_a_run_is_at_work_it_ends_with_3(changed: Path) -> None:
    with lease.hold(_opened(changed).store.root / "leases" / "run.lease"):
        found = _corpus(changed, "retrain", "--yes")
    assert found.exit_code == 3
    assert "nothing was trained" in found.output
    assert survey(_opened(changed)).due == []


def _first(release: dict[str, str]) -> np.ndarray:
    """Return the tokens of the first document of a release."""
    return np.array(open_token_bin(Path(release["path"]), "train-00000").document(0))


def _retrain_alone(config: Path) -> None:
    retrain(_opened(config))


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def _never(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be trained")
