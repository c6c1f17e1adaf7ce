"""Every gate shows as a failed asset check, measured anew from files that were altered since.

The checks run through Dagster alone.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.jobs import JOB_OF
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.errors import DamagedShard, StageFailed
from corpus_platform.gates import GATES
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import CHAIN, open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform_tests.faults import (
    FAULTS,
    WITHOUT_FILES,
    Fault,
    cut,
    drop_first_verdict,
    leave_out_first_shard,
    plant,
)
from corpus_platform_tests.instances import QUIET, in_memory
from corpus_platform_tests.small import SHARDS, register, write_shard

FIRST = SHARDS[0]
# One fault of each gate; the others of the same gate are tried without Dagster.
ONE_EACH = list({(f.asset, f.gate): f for f in reversed(FAULTS)}.values())[::-1]
# All faults are judged in test_refusals; here that a check says so, for one gate of an asset.
FIRST_OF_ASSET = {f.asset: f for f in reversed(ONE_EACH)}
# Checks are made alike for all assets, but for whether they are of one shard.
ONE_OF_EACH_KIND = ("cleaned_documents", "dedup_clusters")


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that knows the partitions of the small corpus."""
    with in_memory() as made:
        made.add_dynamic_partitions(SHARDS_NAME, list(SHARDS))
        yield made


def _folder(config: Path, asset: str) -> Path:
    project = open_project(load_settings(config))
    artifact = project.artifact(asset, _partition(asset))
    assert artifact is not None
    return artifact.folder


def _partition(asset: str) -> str | None:
    return FIRST if CHAIN[asset].per_shard else None


def _check(
    instance: dg.DagsterInstance, config: Path, asset: str, partition: str | None = None
) -> tuple[bool, dict[str, dg.AssetCheckEvaluation]]:
    """Run the checks of an asset alone; return whether the run succeeded, and what the instance knows."""
    selection = dg.AssetSelection.checks_for_assets(asset)
    job = dg.Definitions(jobs=[dg.define_asset_job("checks_alone", selection=selection)])
    whole = dg.Definitions.merge(build_definitions(config), job)
    partition = partition or _partition(asset)
    result = whole.resolve_job_def("checks_alone").execute_in_process(
        instance=instance,
        tags={"dagster/partition": partition} if partition else None,
        run_config=QUIET,
        raise_on_error=False,
    )
    records = instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    found = [r.event_log_entry.get_dagster_event().asset_check_evaluation_data for r in records]
    return result.success, {e.check_name: e for e in found}


def _reason(evaluation: dg.AssetCheckEvaluation) -> str:
    return str(evaluation.metadata["reason"].value)


@pytest.mark.parametrize("asset", [a for a, gates in GATES.items() if gates])
def test_all_checks_of_a_sound_artifact_pass(
    asset: str, finished: Path, instance: dg.DagsterInstance
) -> None:
    success, found = _check(instance, finished, asset)
    assert success
    assert list(found) == [gate.name for gate in GATES[asset]]
    assert all(e.passed and e.blocking for e in found.values())
    assert {e.partition for e in found.values()} == {_partition(asset)}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            f,
            marks=()
            if f == FIRST_OF_ASSET[f.asset] and f.asset in ONE_OF_EACH_KIND
            else pytest.mark.slow,
        )
        for f in ONE_EACH
    ],
    ids=[f"{f.asset}-{f.gate}" for f in ONE_EACH],
)
def test_a_fault_in_the_files_fails_its_check_and_the_run(
    fault: Fault, finished: Path, instance: dg.DagsterInstance
) -> None:
    fault.plant(_folder(finished, fault.asset))
    success, found = _check(instance, finished, fault.asset)
    assert not success
    assert list(found) == [gate.name for gate in GATES[fault.asset]]
    assert not found[fault.gate].passed
    assert found[fault.gate].severity == dg.AssetCheckSeverity.ERROR
    assert found[fault.gate].description == _reason(found[fault.gate]) != ""


def test_a_shard_that_cannot_be_read_to_its_end_fails_its_check(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    key = "2026-44/part-00009.jsonl.gz"
    source = finished.parent / "source" / "crawl=2026-44" / "part-00009.jsonl.gz"
    write_shard(source, [{"id": str(i), "text": f"{i} words and words " * 30} for i in range(200)])
    cut(source)
    project = open_project(load_settings(finished))
    register(project)
    instance.add_dynamic_partitions(SHARDS_NAME, [key])
    fetch_shard(project, key)
    with pytest.raises(DamagedShard):
        clean_documents(project, key)
    success, found = _check(instance, finished, "cleaned_documents", key)
    assert not success
    assert _reason(found["readable"]) == "the shard cannot be read to its end"
    assert not any(e.passed for e in found.values())


def test_shards_left_out_fail_the_checks_of_clusters_and_release(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_first_shard(finished, monkeypatch)
    project = open_project(load_settings(finished))
    cluster_documents(project)
    for shard in SHARDS[1:]:
        pack_shard(project, shard)
    publish_release(project)
    _, found = _check(instance, finished, "shuffled_bins")
    assert [name for name, e in found.items() if not e.passed] == ["whole"]
    assert _check(instance, finished, "dedup_clusters")[0]
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("share: 0.4", "share: 0.3"), encoding="utf-8")
    success, found = _check(instance, finished, "dedup_clusters")
    assert not success
    assert not found["uncleared"].passed
    assert "1 of 3 shards are not cleared (0.333, limit 0.3)" in _reason(found["uncleared"])


def test_every_gate_has_a_fault() -> None:
    planted = {(f.asset, f.gate) for f in FAULTS}
    assert planted | WITHOUT_FILES == {(a, g.name) for a, gates in GATES.items() for g in gates}


def test_an_altered_verdict_fails_the_check_of_the_clusters(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    drop_first_verdict(_folder(finished, "dedup_verdicts"))
    _, found = _check(instance, finished, "dedup_clusters")
    assert [name for name, e in found.items() if not e.passed] == ["verdicts"]


UNREADABLE = [
    ("cleaned_documents", "documents.parquet"),
    ("minhash_signatures", "signatures.parquet"),
    ("dedup_clusters", "edges.parquet"),
    ("tokenizer", "tokenizer.json"),
    ("packed_bins", "val.bin"),
    ("shuffled_bins", "train-00000.index"),
]


@pytest.mark.parametrize(("asset", "name"), UNREADABLE)
def test_a_file_that_cannot_be_read_is_told_with_its_folder(
    asset: str, name: str, finished: Path
) -> None:
    folder = _folder(finished, asset)
    cut(folder / name)
    with pytest.raises(StageFailed, match=re.escape(str(folder))):
        open_project(load_settings(finished)).audit(asset, _partition(asset))


@pytest.mark.parametrize(
    ("asset", "name"),
    [
        pytest.param(*one, marks=() if one[0] in ONE_OF_EACH_KIND else pytest.mark.slow)
        for one in UNREADABLE
    ],
)
def test_a_file_that_cannot_be_read_fails_every_check_with_the_reason(
    asset: str, name: str, finished: Path, instance: dg.DagsterInstance
) -> None:
    folder = _folder(finished, asset)
    cut(folder / name)
    success, found = _check(instance, finished, asset)
    assert not success
    assert list(found) == [gate.name for gate in GATES[asset]]
    assert not any(e.passed for e in found.values())
    reason = {_reason(e) for e in found.values()}
    assert len(reason) == 1
    assert str(folder) in reason.pop()


def test_a_file_that_is_gone_fails_every_check_with_the_reason(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    path = _folder(finished, "cleaned_documents") / "tombstones.parquet"
    path.unlink()
    _, found = _check(instance, finished, "cleaned_documents")
    assert not any(e.passed for e in found.values())
    assert "tombstones.parquet" in _reason(found["ledger"])


def test_a_missing_artifact_fails_every_check_with_the_reason(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    (_folder(finished, "minhash_signatures") / "manifest.json").unlink()
    _, found = _check(instance, finished, "minhash_signatures")
    assert {_reason(e) for e in found.values()} == {
        f"minhash_signatures[{FIRST}]: current: it is missing or stale; materialize it first"
    }


def test_a_waived_gate_warns_and_lets_the_run_go_on(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    fault = next(f for f in FAULTS if f.gate == "exact_keys")
    fault.plant(_folder(finished, "minhash_signatures"))
    with finished.open("a", encoding="utf-8") as file:
        file.write(
            f"waivers: [{{gate: exact_keys, partition: {FIRST}, reason: known, expires: 2999-01-01}}]\n"
        )
    success, found = _check(instance, finished, "minhash_signatures")
    assert success
    assert not found["exact_keys"].passed
    assert found["exact_keys"].severity == dg.AssetCheckSeverity.WARN
    assert found["exact_keys"].metadata["waived"].value == "waived until 2999-01-01: known"


def test_a_limit_that_was_changed_is_in_force_at_the_next_check(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    assert _check(instance, finished, "cleaned_documents")[0]
    with finished.open("a", encoding="utf-8") as file:
        file.write("checks: {max_drop_share: {char_repeat: 0.01}}\n")
    _, found = _check(instance, finished, "cleaned_documents")
    assert [name for name, e in found.items() if not e.passed] == ["drop_rate_char_repeat"]
    assert found["drop_rate_char_repeat"].metadata["limit"].value == pytest.approx(0.01)


def test_a_failed_check_stops_what_comes_after_it_in_the_same_run(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("clean: {set: {too_short.min_chars: 2500}}\n")
    job = build_definitions(finished).resolve_job_def("ingest_shard")
    result = job.execute_in_process(
        instance=instance, partition_key=FIRST, run_config=QUIET, raise_on_error=False
    )
    assert not result.success
    steps = {e.step_key for e in result.all_events if e.event_type_value == "STEP_START"}
    assert steps == {
        "raw_shards",
        "raw_shards_gates",
        "cleaned_documents",
        "cleaned_documents_gates",
        "corpus_status",
    }


def _of_asset(asset: str) -> Fault:
    return next(f for f in FAULTS if f.asset == asset)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            _of_asset(asset), id=asset, marks=() if asset == "packed_bins" else pytest.mark.slow
        )
        for asset in JOB_OF
    ],
)
def test_the_run_that_writes_a_faulty_file_publishes_it_fails_its_check_and_ends_there(
    fault: Fault, finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = _partition(fault.asset)
    shutil.rmtree(open_project(load_settings(finished)).store.folder(fault.asset, partition))
    plant(monkeypatch, fault.asset, fault.plant)
    job = build_definitions(finished).resolve_job_def(JOB_OF[fault.asset])
    result = job.execute_in_process(
        instance=instance, partition_key=partition, run_config=QUIET, raise_on_error=False
    )
    assert not result.success
    records = instance.get_records_for_run(result.run_id).records
    events = [r.event_log_entry.get_dagster_event() for r in records if r.event_log_entry.is_dagster_event]  # fmt: skip
    made = {e.asset_key.path[-1] for e in events if e.is_step_materialization and e.asset_key}
    red = {
        e.asset_check_evaluation_data.check_name
        for e in events
        if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
        and not e.asset_check_evaluation_data.passed
    }
    assert fault.asset in made
    assert fault.gate in red
    order = list(JOB_OF)
    after = {a for a in order[order.index(fault.asset) + 1 :] if JOB_OF[a] == job.name}
    after -= {"tokenizer"}  # frozen: it is current whatever becomes of the clusters
    assert made & after == set()
