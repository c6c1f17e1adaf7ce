"""The jobs that make no product, as real runs on a real instance."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs import housekeeping
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform_tests.instances import QUIET, in_memory
from corpus_platform_tests.small import SHARDS, register


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with in_memory() as made:
        yield made


def _project(config: Path) -> Project:
    return open_project(load_settings(config))


def _run(
    instance: dg.DagsterInstance, config: Path, job: str, partition: str | None = None
) -> dg.ExecuteInProcessResult:
    return (
        build_definitions(config)
        .resolve_job_def(job)
        .execute_in_process(
            instance=instance, partition_key=partition, run_config=QUIET, raise_on_error=False
        )
    )


def _numbers(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    (output,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    return {name: m.value for name, m in output.step_output_data.metadata.items()}


def _failure(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, dg.MetadataValue]]:
    (failure,) = result.get_step_failure_events()
    given = failure.step_failure_data.user_failure_data
    assert given is not None
    return str(given.description), dict(given.metadata)


def _logged(
    instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult, level: int
) -> list[str]:
    return [e.user_message for e in instance.all_logs(result.run_id) if e.level == level]


def test_a_sound_corpus_is_verified(finished: Path, instance: dg.DagsterInstance) -> None:
    result = _run(instance, finished, "verify_corpus")
    assert result.success
    # Three shards in five assets, and clusters, tokenizer and release.
    assert _numbers(result) == {"generations": 18, "faults": 0}


def test_what_is_damaged_is_named_counted_and_listed(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    project = _project(finished)
    damaged = []
    for shard in SHARDS:
        for asset, name in (
            ("cleaned_documents", "documents.parquet"),
            ("minhash_signatures", "signatures.parquet"),
        ):
            artifact = project.artifact(asset, shard)
            assert artifact is not None
            damaged.append(artifact.path(name))
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    result = _run(instance, finished, "verify_corpus")
    assert not result.success
    words, metadata = _failure(result)
    assert words.startswith(f"6 faults: cleaned_documents[{SHARDS[0]}]: {damaged[0]}: ")
    assert "; and 3 more; `corpus run` makes damaged products again" in words
    assert metadata["faults"].value == 6
    table = metadata["table"]
    assert isinstance(table, dg.TableMetadataValue)
    listed = [(r.data["asset"], r.data["partition"]) for r in table.records]
    each = ("cleaned_documents", "minhash_signatures")
    assert listed == [(asset, shard) for asset in each for shard in SHARDS]
    assert str(damaged[0]) in str(table.records[0].data["reason"])


def test_at_most_50_faults_are_listed_and_all_are_counted(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    home = _project(finished).store.folder("cleaned_documents", SHARDS[0])
    for number in range(60):
        (home / f"{number:016x}").mkdir()
    words, metadata = _failure(_run(instance, finished, "verify_corpus"))
    assert words.startswith("60 faults: ")
    table = metadata["table"]
    assert isinstance(table, dg.TableMetadataValue)
    assert len(table.records) == 50


def test_all_listed_shards_are_registered(finished: Path, instance: dg.DagsterInstance) -> None:
    (finished.parent / "data" / "registry.json").unlink()
    result = _run(instance, finished, "register_shards")
    assert result.success
    assert _numbers(result) == {"new": 3, "gone": 0, "restored": 0}
    assert instance.get_dynamic_partitions(SHARDS_NAME) == list(SHARDS)
    assert list(_project(finished).shards()) == list(SHARDS)
    assert _numbers(_run(instance, finished, "register_shards"))["new"] == 0


def test_a_warning_names_shards_that_are_listed_no_more_and_keys_that_were_deleted(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    instance.add_dynamic_partitions(SHARDS_NAME, [SHARDS[0], SHARDS[2]])  # without the second
    register(_project(finished))
    crawl, name = SHARDS[2].split("/")
    (finished.parent / "source" / f"crawl={crawl}" / name).unlink()
    result = _run(instance, finished, "register_shards")
    assert result.success
    assert _numbers(result) == {"new": 0, "gone": 1, "restored": 1}
    gone, restored = _logged(instance, result, level=30)
    assert gone.startswith(f"{SHARDS[2]}: no source lists them now; they stay registered")
    assert restored.startswith(f"{SHARDS[1]}: registered shards whose partition keys Dagster")
    assert set(instance.get_dynamic_partitions(SHARDS_NAME)) == set(SHARDS)


def test_sources_without_a_shard_fail_in_words(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'none/{crawl}/*'}]\n", encoding="utf-8")
    words, _ = _failure(_run(instance, config, "register_shards"))
    assert "there is no shard: no file matches" in words


def test_the_history_is_pruned_of_what_is_older_than_the_settings_say(
    finished: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("schedule: {keep_history_days: 7}\n")
    for _ in range(2):
        assert _run(instance, finished, "register_shards").success
    assert _run(instance, finished, "publish_release").success
    now = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr(housekeeping, "_now", lambda: now + datetime.timedelta(days=6))
    assert _numbers(_run(instance, finished, "prune_history")) == {"removed": 0, "kept": 0}
    monkeypatch.setattr(housekeeping, "_now", lambda: now + datetime.timedelta(days=8))
    # Both registrations and the run just before; the release is the newest that there is.
    assert _numbers(_run(instance, finished, "prune_history")) == {"removed": 3, "kept": 1}


def test_pruning_is_on_from_the_start_on_sundays_in_the_time_zone_of_the_settings(
    tmp_path: Path,
) -> None:
    config = tmp_path / "corpus.yaml"
    text = "sources: [{glob: 'a/{crawl}/*'}]\nschedule: {timezone: Europe/Berlin}\n"
    config.write_text(text, encoding="utf-8")
    schedule = build_definitions(config).resolve_schedule_def("prune_history_weekly")
    assert schedule.job_name == "prune_history"
    assert schedule.cron_schedule == "30 4 * * 0"
    assert schedule.execution_timezone == "Europe/Berlin"
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING


def test_none_of_them_has_anything_to_do_with_partitions(finished: Path) -> None:
    definitions = build_definitions(finished)
    for job in ("verify_corpus", "register_shards", "prune_history"):
        assert definitions.resolve_job_def(job).partitions_def is None
