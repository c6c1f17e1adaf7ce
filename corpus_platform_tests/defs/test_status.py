"""The asset `corpus_status` tells what stands, on a real instance over the small corpus."""

import json
import time
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.resources import Corpus, load_corpus
from corpus_platform.defs.status import report_status, status_metadata
from corpus_platform.planner import State, Survey
from corpus_platform_tests.instances import QUIET
from corpus_platform_tests.small import SHARDS

KEY = dg.AssetKey("corpus_status")
STAGES = (
    "raw_shards",
    "cleaned_documents",
    "minhash_signatures",
    "dedup_clusters",
    "tokenizer",
    "packed_bins",
    "shuffled_bins",
)
STATES = ("current", "stale", "missing", "blocked")
# Two of the three shards have 100 documents and more, from which on limits on shares apply.
STRICT = "checks: {max_drop_share: {char_repeat: 0.0001}}\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """A corpus of which nothing is there; surveys of it are written out."""
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'a/{crawl}/*'}]\n", encoding="utf-8")
    return load_corpus(config)


def _run(
    instance: dg.DagsterInstance,
    config: Path,
    job: str,
    partition: str | None = None,
    *,
    alone: bool = False,
) -> dg.ExecuteInProcessResult:
    return (
        build_definitions(config)
        .resolve_job_def(job)
        .execute_in_process(
            instance=instance,
            partition_key=partition,
            asset_selection=[KEY] if alone else None,
            run_config=QUIET,
            raise_on_error=False,
        )
    )


def _numbers(metadata: object) -> dict[str, int]:
    assert isinstance(metadata, dict)
    plain = {name: getattr(value, "value", value) for name, value in metadata.items()}
    return {name: value for name, value in plain.items() if isinstance(value, int)}


def _told(instance: dg.DagsterInstance) -> list[dg.EventLogEntry]:
    records = instance.fetch_materializations(KEY, limit=100, ascending=True).records
    return [record.event_log_entry for record in records]


def _metadata(entry: dg.EventLogEntry) -> dict[str, dg.MetadataValue]:
    assert entry.asset_materialization is not None
    return dict(entry.asset_materialization.metadata)


def _counts(**others: int) -> dict[str, int]:
    zeros = {f"{asset}/{state}": 0 for asset in STAGES for state in STATES}
    return zeros | {name.replace("__", "/"): count for name, count in others.items()}


def test_of_a_finished_corpus_all_is_current_and_the_zeros_are_there(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    assert _run(instance, finished, "publish_release", alone=True).success
    (entry,) = _told(instance)
    metadata = _metadata(entry)
    assert _numbers(metadata) == _counts(
        raw_shards__current=3,
        cleaned_documents__current=3,
        minhash_signatures__current=3,
        dedup_clusters__current=1,
        tokenizer__current=1,
        packed_bins__current=3,
        shuffled_bins__current=1,
    ) | {"shards": 3, "uncleared_shards": 0, "due": 0, "blocked": 0}
    assert metadata["uncleared"].value == "No gate refuses anything."
    assert "| packed_bins | 3 | 0 | 0 | 0 |" in str(metadata["states"].value)
    assert not (finished.parent / "data" / "uncleared.json").exists()


def test_a_job_tells_it_last_also_when_a_check_failed_that_leaves_the_partition_green(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write(STRICT)
    result = _run(instance, finished, "ingest_shard", SHARDS[0])
    assert not result.success
    steps = [e.step_key for e in result.all_events if e.event_type_value == "STEP_START"]
    assert steps[-2:] == ["cleaned_documents_gates", "corpus_status"]
    partition = instance.get_latest_materialization_event(dg.AssetKey("cleaned_documents"))
    assert partition is not None  # green
    (entry,) = _told(instance)
    assert entry.asset_materialization is not None
    assert entry.asset_materialization.partition is None
    metadata = _metadata(entry)
    assert _numbers(metadata)["cleaned_documents/blocked"] >= 1
    assert _numbers(metadata)["uncleared_shards"] >= 1
    row = f"| {SHARDS[0]} | cleaned\\_documents: drop\\_rate\\_char\\_repeat |"
    assert row in str(metadata["uncleared"].value)
    since = json.loads((finished.parent / "data" / "uncleared.json").read_text())["since"]
    assert SHARDS[0] in since


def test_a_job_leaves_it_out_while_the_last_look_is_fresh_and_a_person_always_gets_it(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    corpus = load_corpus(finished)
    looked = {"at": time.time(), "seconds": 60.0, "version": ""}
    Memory(instance, corpus.name).set("status", looked)
    result = _run(instance, finished, "pack_shard", SHARDS[0])
    assert result.success  # the step was started, and yielded nothing
    assert _told(instance) == []
    said = [e.user_message for e in instance.all_logs(result.run_id)]
    assert any("left out: it was refreshed" in words for words in said)
    assert _run(instance, finished, "pack_shard", SHARDS[0], alone=True).success
    assert len(_told(instance)) == 1


def test_a_job_looks_again_when_the_last_look_is_older_than_20_times_what_it_took(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    memory = Memory(instance, load_corpus(finished).name)
    memory.set("status", {"at": time.time() - 61, "seconds": 3.0, "version": ""})
    assert _run(instance, finished, "pack_shard", SHARDS[0]).success
    assert len(_told(instance)) == 1
    last = memory.get("status")
    assert time.time() - last["at"] < 60
    assert 0 < last["seconds"] < 3


def test_a_look_in_the_future_hides_nothing(finished: Path, instance: dg.DagsterInstance) -> None:
    memory = Memory(instance, load_corpus(finished).name)
    memory.set("status", {"at": time.time() + 1e6, "seconds": 3.0, "version": ""})
    assert _run(instance, finished, "pack_shard", SHARDS[0]).success
    assert len(_told(instance)) == 1


def test_a_corpus_that_cannot_be_looked_at_fails_the_step_in_words(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    (finished.parent / "data" / "registry.json").write_text("{", encoding="utf-8")
    result = _run(instance, finished, "publish_release", alone=True)
    (failure,) = result.get_step_failure_events()
    given = failure.step_failure_data.user_failure_data
    assert given is not None
    assert "registry.json: not a registry" in str(given.description)


def _state(shard: str | None, asset: str, *, gate: str | None = None, reason: str = "") -> State:
    return State(asset, shard, "blocked" if gate else "current", reason, gate=gate)


def test_rows_go_by_the_chain_then_by_key_and_end_after_50(corpus: Corpus) -> None:
    keys = [f"a/{i:02}" for i in range(60)]
    survey = Survey(
        [
            *(_state(key, "raw_shards", gate="sha256") for key in keys[50:]),
            *(_state(key, "cleaned_documents", gate="ledger") for key in keys[:50]),
            _state(None, "dedup_clusters", gate="uncleared_share"),
        ]
    )
    metadata = status_metadata(corpus, survey)
    assert (metadata["uncleared_shards"], metadata["blocked"]) == (60, 61)
    assert isinstance(metadata["uncleared"], dg.MarkdownMetadataValue)
    lines = str(metadata["uncleared"].value).split("\n")
    shown = [line.split(" | ")[0].removeprefix("| ") for line in lines[2:52]]
    assert shown == [*keys[50:], *keys[:40]]
    assert lines[52:] == ["", "11 more: `corpus status` lists all."]


def test_what_a_reason_quotes_of_a_shard_is_text(corpus: Corpus) -> None:
    reason = "line 3: <script>alert(1)</script> | `x`\n| a | " + "long " * 100
    survey = Survey([_state("a/|x", "cleaned_documents", gate="readable", reason=reason)])
    value = status_metadata(corpus, survey)["uncleared"]
    assert isinstance(value, dg.MarkdownMetadataValue)
    heading, rule, row = str(value.value).split("\n")
    assert (heading.count("|"), rule.count("|")) == (5, 5)
    start = r"| a/\|x | cleaned\_documents: readable | line 3: &lt;script&gt;alert\(1\)&lt;/scr"
    assert row.startswith(start)
    assert len(row) < 500


def test_a_row_says_since_when_and_how_long(corpus: Corpus) -> None:
    path = corpus.settings.storage_path / "uncleared.json"
    path.parent.mkdir(parents=True)
    three_days_ago = time.time() - 3 * 86400 - 60
    path.write_text(json.dumps({"since": {"a/1": three_days_ago}}))
    survey = Survey([_state("a/1", "raw_shards", gate="sha256")])
    value = status_metadata(corpus, survey)["uncleared"]
    assert isinstance(value, dg.MarkdownMetadataValue)
    day = time.strftime("%Y-%m-%d", time.gmtime(three_days_ago))
    assert f"| {day} " in str(value.value)
    assert r"UTC \(3 days\) |" in str(value.value)


def test_a_survey_is_reported_only_when_something_differs(
    corpus: Corpus, instance: dg.DagsterInstance
) -> None:
    sound = Survey([_state("a/1", "raw_shards")])
    refused = Survey([_state("a/1", "raw_shards", gate="sha256", reason="as found")])
    otherwise = Survey([_state("a/1", "raw_shards", gate="sha256", reason="otherwise")])
    for survey in (sound, sound, refused, refused, otherwise, sound):
        report_status(instance, corpus, survey)
    blocked = [_numbers(_metadata(entry))["blocked"] for entry in _told(instance)]
    assert blocked == [0, 1, 1, 0]
    tags = [e.asset_materialization.tags for e in _told(instance) if e.asset_materialization]
    versions = [(t or {})["dagster/data_version"] for t in tags]
    assert versions[0] == versions[3]
    assert len(set(versions)) == 3


def test_a_survey_is_reported_again_where_asked_for_or_when_the_history_is_gone(
    corpus: Corpus, instance: dg.DagsterInstance
) -> None:
    sound = Survey([_state("a/1", "raw_shards")])
    report_status(instance, corpus, sound)
    report_status(instance, corpus, sound, always=True)
    assert len(_told(instance)) == 2
    instance.wipe_assets([KEY])
    report_status(instance, corpus, sound)
    assert len(_told(instance)) == 1


def test_a_survey_just_reported_spares_the_next_job_its_own(
    finished: Path, instance: dg.DagsterInstance
) -> None:
    corpus = load_corpus(finished)
    memory = Memory(instance, corpus.name)
    memory.set("status", {"at": 0.0, "seconds": 30.0, "version": "of another day"})
    report_status(instance, corpus, Survey([]))
    assert _run(instance, finished, "pack_shard", SHARDS[0]).success
    assert len(_told(instance)) == 1
