"""Every gate refuses: an artifact that was published with a fault in its files is read by nobody.

Each fault is in the written files when the stage measures and publishes them. All other gates of
the asset are waived, so that it is the one gate that refuses in whatever process comes next.
"""

import datetime
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_platform import planner
from corpus_platform.errors import StageFailed, Uncleared
from corpus_platform.gates import GATES
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import CHAIN, open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import current_path, publish_release, release_in_force
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform_tests.faults import (
    FAULTS,
    Fault,
    cut,
    leave_out_first_shard,
    plant,
    plant_in_verdicts,
)
from corpus_platform_tests.small import SHARDS, register, write_shard

FIRST = SHARDS[0]
MAKE: dict[str, Callable[[Project], Report]] = {
    "raw_shards": lambda p: fetch_shard(p, FIRST),
    "cleaned_documents": lambda p: clean_documents(p, FIRST),
    "minhash_signatures": lambda p: sign_documents(p, FIRST),
    "dedup_clusters": cluster_documents,
    "tokenizer": train_tokenizer,
    "packed_bins": lambda p: pack_shard(p, FIRST),
    "shuffled_bins": publish_release,
}
NEXT: dict[str, Callable[[Project], Report]] = {
    "raw_shards": MAKE["cleaned_documents"],
    "cleaned_documents": MAKE["minhash_signatures"],
    "minhash_signatures": MAKE["dedup_clusters"],
    "dedup_clusters": MAKE["packed_bins"],
    "tokenizer": MAKE["packed_bins"],
    "packed_bins": MAKE["shuffled_bins"],
}


def _partition(asset: str) -> str | None:
    return FIRST if CHAIN[asset].per_shard else None


def _opened(config: Path) -> Project:
    return open_project(load_settings(config))


def _remade(config: Path, asset: str, patch: pytest.MonkeyPatch) -> Report:
    """Make an artifact anew, as its stage is patched, and end the patches."""
    project = _opened(config)
    shutil.rmtree(project.store.folder(asset, _partition(asset)))
    report = MAKE[asset](project)
    patch.undo()
    return report


def _waive(config: Path, asset: str, gates: set[str]) -> None:
    where = _partition(asset)
    partition = f"partition: {where}, " if where else ""
    until = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=2)
    rows = [f"- {{gate: {g}, {partition}reason: a test, expires: {until}}}" for g in sorted(gates)]
    with config.open("a", encoding="utf-8") as file:
        file.write("\n".join(["waivers:", *rows]) + "\n")


def _lose_tokenizer(config: Path) -> None:
    """Remove the tokenizer and its kept copy, so that it would have to be trained."""
    store = _opened(config).store
    for folder in (store.folder("tokenizer", None), store.root / "frozen"):
        shutil.rmtree(folder, ignore_errors=True)


ONE_EACH = list({(f.asset, f.gate): f for f in reversed(FAULTS) if f.asset in NEXT}.values())[::-1]
OTHERS = [f for f in FAULTS if f.asset in NEXT and f not in ONE_EACH]


@pytest.mark.parametrize("fault", ONE_EACH, ids=lambda f: f"{f.asset}-{f.gate}")
def test_what_comes_next_refuses_a_published_fault(
    fault: Fault, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, fault.asset, fault.plant)
    report = _remade(finished, fault.asset, monkeypatch)
    assert report.made
    assert fault.gate in {f.gate for f in report.findings if f.blocks}
    others = {gate.name for gate in GATES[fault.asset]} - {fault.gate}
    _waive(finished, fault.asset, others)
    with pytest.raises(Uncleared) as refusal:
        NEXT[fault.asset](_opened(finished))
    where = _partition(fault.asset)
    name = f"{fault.asset}[{where}]" if where else fault.asset
    assert f"{name}: {fault.gate}: " in str(refusal.value)


@pytest.mark.parametrize("fault", OTHERS, ids=lambda f: f"{f.asset}-{f.gate}")
def test_every_other_fault_that_a_gate_is_for_turns_it_red(
    fault: Fault, finished_once: Path, tmp_path: Path
) -> None:
    """The files are measured as the stage that writes them does, and nothing is published."""
    config = finished_once / "corpus.yaml"
    project = open_project(load_settings(config), read_only=True)
    where = _partition(fault.asset)
    artifact = project.present(fault.asset, where)
    folder = tmp_path / artifact.folder.name
    shutil.copytree(artifact.folder, folder)
    fault.plant(folder)
    numbers = project.measure(fault.asset, where, folder, artifact.manifest.ledger)
    assert fault.gate in {f.gate for f in project.findings(fault.asset, where, numbers) if f.blocks}
    assert [f for f in project.findings_of(fault.asset, where, artifact) if f.blocks] == []


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.asset == "shuffled_bins"], ids=lambda f: f.gate
)
def test_a_release_with_a_fault_never_becomes_current(
    fault: Fault, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes after a release but its being current."""
    plant(monkeypatch, fault.asset, fault.plant)
    _waive(finished, fault.asset, {gate.name for gate in GATES[fault.asset]} - {fault.gate})
    current_path(_opened(finished)).unlink()
    report = _remade(finished, fault.asset, monkeypatch)
    assert report.made
    assert [f.gate for f in report.findings if f.blocks] == [fault.gate]
    again = publish_release(_opened(finished))
    assert not again.made
    assert release_in_force(_opened(finished)) is None
    state = planner.survey(_opened(finished)).of("shuffled_bins")
    assert (state.state, state.gate) == ("blocked", fault.gate)


def test_verdicts_that_differ_from_their_table_are_not_packed(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_in_verdicts(monkeypatch)
    shutil.rmtree(_opened(finished).store.folder("dedup_verdicts", None))
    report = _remade(finished, "dedup_clusters", monkeypatch)
    assert [f.gate for f in report.findings if f.blocks] == ["verdicts"]
    for refused in (pack_shard, lambda p, s: train_tokenizer(p)):
        _lose_tokenizer(finished)
        with pytest.raises(Uncleared, match="dedup_clusters: verdicts: 3 verdicts differ"):
            refused(_opened(finished), FIRST)


def test_a_tokenizer_is_not_trained_on_clusters_that_a_gate_refuses(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = next(f for f in FAULTS if f.gate == "twins")
    plant(monkeypatch, fault.asset, fault.plant)
    _remade(finished, fault.asset, monkeypatch)
    _lose_tokenizer(finished)
    with pytest.raises(Uncleared, match="dedup_clusters: twins: "):
        train_tokenizer(_opened(finished))


def test_a_refusal_holds_in_another_process(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = next(f for f in FAULTS if f.gate == "ledger")
    plant(monkeypatch, fault.asset, fault.plant)
    _remade(finished, fault.asset, monkeypatch)
    program = (
        "import sys; from pathlib import Path;"
        "from corpus_platform.settings_file import load_settings;"
        "from corpus_platform.stages.chain import open_project;"
        "from corpus_platform.stages.minhash_signatures import sign_documents;"
        "sign_documents(open_project(load_settings(Path(sys.argv[1]))), sys.argv[2])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(finished), FIRST],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert f"Uncleared: cleaned_documents[{FIRST}]: ledger: 1 records" in ended.stderr


def test_a_shard_left_out_keeps_the_release_from_becoming_current(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_first_shard(finished, monkeypatch)
    project = _opened(finished)
    before = release_in_force(project)
    clusters = cluster_documents(project)
    assert clusters.artifact.manifest.ledger["excluded"] == [FIRST]
    reasons = {FIRST: "minhash_signatures: coverage"}
    assert clusters.artifact.manifest.measured["excluded"] == reasons
    with pytest.raises(Uncleared, match=f"the clusters leave {FIRST} out: minhash_signatures: cov"):
        pack_shard(project, FIRST)
    for shard in SHARDS[1:]:
        pack_shard(project, shard)
    report = publish_release(project)
    assert [f.gate for f in report.findings if f.blocks] == ["whole"]
    manifest = report.artifact.manifest
    assert (manifest.ledger["excluded"], manifest.measured["excluded"]) == ([FIRST], reasons)
    assert release_in_force(_opened(finished)) == before
    _waive(finished, "shuffled_bins", {"whole"})
    publish_release(_opened(finished))
    current = release_in_force(_opened(finished))
    assert current is not None
    assert current["id"] == report.artifact.folder.name


def test_another_reason_to_leave_a_shard_out_makes_nothing_due(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_first_shard(finished, monkeypatch)
    project = _opened(finished)
    cluster_documents(project)
    for shard in SHARDS[1:]:
        pack_shard(project, shard)
    publish_release(project)
    cut(project.present("minhash_signatures", FIRST).path("signatures.parquet"))
    again = _opened(finished)
    refusal = again.refusal(["minhash_signatures"], FIRST)
    assert refusal is not None
    assert refusal.gate == "intact"  # and no more `coverage`
    assert not cluster_documents(again).made
    assert not publish_release(again).made


def test_shards_left_out_by_clusters_and_release_count_together(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_first_shard(finished, monkeypatch)
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("share: 0.4", "share: 0.6"), encoding="utf-8")
    project = _opened(finished)
    cluster_documents(project)
    for shard in SHARDS[1:]:
        pack_shard(project, shard)
    cut(project.present("packed_bins", SHARDS[1]).path("train.bin"))
    # Of the two shards that the clusters took in one is refused: 0.5; of all three two are out.
    with pytest.raises(Uncleared, match=r"uncleared: 2 of 3 shards .*\(0.667, limit 0.6\)"):
        publish_release(_opened(finished))


def test_a_lowered_limit_on_shards_left_out_refuses_the_clusters_made_under_the_old_one(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_first_shard(finished, monkeypatch)
    cluster_documents(_opened(finished))
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("checks: {", "checks: {uncleared: refuse, "), encoding="utf-8")
    with pytest.raises(Uncleared, match="dedup_clusters: uncleared: "):
        pack_shard(_opened(finished), SHARDS[1])


def test_a_shard_that_cannot_be_read_to_its_end_is_refused(finished: Path) -> None:
    source = finished.parent / "source" / "crawl=2026-44" / "part-00001.jsonl.gz"
    write_shard(source, [{"id": str(i), "text": f"{i} words and words " * 30} for i in range(200)])
    cut(source)
    project = _opened(finished)
    key = "2026-44/part-00001.jsonl.gz"
    register(project)
    fetch_shard(project, key)
    with pytest.raises(Uncleared, match="readable"):
        clean_documents(project, key)
    with pytest.raises(Uncleared, match=rf"cleaned_documents\[{key}\]: readable: "):
        sign_documents(_opened(finished), key)


@pytest.mark.parametrize(
    ("asset", "name"),
    [
        ("cleaned_documents", "documents.parquet"),
        ("cleaned_documents", "quarantine.parquet"),
        ("minhash_signatures", "signatures.parquet"),
        ("dedup_clusters", "clusters.parquet"),
        ("tokenizer", "tokenizer.json"),
        ("packed_bins", "train.bin"),
        ("packed_bins", "train.json"),
        ("packed_bins", "documents.parquet"),
        ("shuffled_bins", "val-00000.index"),
    ],
)
def test_a_written_file_that_cannot_be_read_again_fails_its_stage_and_is_not_published(
    asset: str, name: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, asset, lambda folder: cut(folder / name))
    project = _opened(finished)
    shutil.rmtree(project.store.folder(asset, _partition(asset)))
    with pytest.raises(StageFailed):
        MAKE[asset](project)
    assert project.artifact(asset, _partition(asset)) is None
    assert list(project.store.folder(asset, _partition(asset)).glob("*/manifest.json")) == []
