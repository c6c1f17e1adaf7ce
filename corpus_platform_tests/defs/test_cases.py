"""Known failures of pipelines on Dagster, each tried with the real definitions.

The symptoms are those of public reports. A corpus here is three or eight small shards of real text;
what must come out is argued from what was put in, never read from our own output. That a killed
step leaves nothing behind (dagster-io/dagster#16168) is proven in `e2e/test_crashes.py`, alerts
that come once in `test_alerts.py`, discovery without a cursor in `test_nightly.py`.
"""

import hashlib
import json
import logging
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any  # values of a JSON answer

import dagster as dg
import polars as pl
import pytest
from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.registering import register
from corpus_platform.gates import GATES
from corpus_platform.planner import survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.faults import cut, plant
from corpus_platform_tests.instances import QUIET, in_folder, in_memory
from corpus_platform_tests.small import Record, documents, run_chain, write_shard

A, B, C = "2026-40/a.jsonl", "2026-40/b.jsonl", "2026-40/c.jsonl"
INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")
PER_SHARD = (*INGEST, "packed_bins")
SETTINGS = """\
storage: data
sources: [{glob: 'source/{crawl}/*'}]
tokenizer: {vocab_size: 300, sample_bytes: 50000}
split: {validation: 0.05}
run: {workers: 1}
"""
TEXTS = [d for d in documents() if d["lang"] == "en"]


pytestmark = pytest.mark.xdist_group("cases")  # each corpus is made once


@dataclass(frozen=True)
class Small:
    """A corpus in a folder, and the instance that its jobs run on."""

    config: Path
    instance: dg.DagsterInstance

    @property
    def project(self) -> Project:
        """A fresh look at it, as every process takes."""
        return open_project(load_settings(self.config))

    def source(self, shard: str) -> Path:
        return self.config.parent / "source" / shard

    def write(self, shard: str, records: Sequence[Record]) -> None:
        write_shard(self.source(shard), records)

    def add(self, settings: str) -> None:
        """Add lines to the settings."""
        with self.config.open("a", encoding="utf-8") as file:
            file.write(settings + "\n")

    def run(self, job: str, shard: str | None = None) -> dg.ExecuteInProcessResult:
        """Run a job of the definitions that the settings make now."""
        tags = {"dagster/partition": shard} if shard else None
        return _definition(self.config, self.config.read_bytes(), job).execute_in_process(
            instance=self.instance, tags=tags, run_config=QUIET, raise_on_error=False
        )

    def check(self, asset: str, shard: str) -> bool:
        """Run the checks of an asset alone, in one partition."""
        return self.run(f"checks_of_{asset}", shard).success

    def release(self) -> None:
        """Run what comes after the shards, for all that are registered."""
        assert self.run("build_corpus").success
        for shard in self.project.shards():
            self.run("pack_shard", shard)
        self.run("publish_release")

    def remake(self) -> None:
        """Make all that is due, by the stages alone: where what Dagster does is not the question."""
        run_chain(self.project)

    def made(self, asset: str) -> set[str | None]:
        """Return the partitions of an asset that Dagster has as materialized."""
        records = self.instance.fetch_materializations(dg.AssetKey(asset), limit=1000).records
        return {record.partition_key for record in records}

    def checked(self, asset: str, gate: str, shards: Iterable[str]) -> dict[str, str]:
        """Return how a check stands in each partition that it was ever run in."""
        found = self.instance.event_log_storage.get_asset_check_partition_info(
            [dg.AssetCheckKey(dg.AssetKey(asset), gate)], partition_keys=list(shards)
        )
        return {i.partition_key or "": i.latest_execution_status.value for i in found}

    def released(self) -> set[str]:
        """Return the shards that have documents in the release in force."""
        release = release_in_force(self.project)
        assert release is not None
        return set(pl.read_parquet(Path(release["path"], "documents.parquet"))["shard"])

    def command(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--config", str(self.config)])


@lru_cache(maxsize=32)
def _definition(config: Path, settings: bytes, job: str) -> dg.JobDefinition:
    del settings  # part of the cache's key
    jobs = [
        *(
            dg.define_asset_job(f"checks_of_{a}", dg.AssetSelection.checks_for_assets(a))
            for a in INGEST
        ),
        *(dg.define_asset_job(f"only_{a}", dg.AssetSelection.assets(a)) for a in PER_SHARD),
    ]
    whole = dg.Definitions.merge(build_definitions(config), dg.Definitions(jobs=jobs))
    return whole.resolve_job_def(job)


def _small(folder: Path, shards: Mapping[str, Sequence[Record]]) -> Iterator[Small]:
    config = folder / "corpus.yaml"
    config.write_text(SETTINGS, encoding="utf-8")
    with in_memory() as instance:
        found = Small(config, instance)
        for shard, records in shards.items():
            found.write(shard, records)
        register(found.project, instance)
        yield found


@pytest.fixture
def abc(tmp_path: Path) -> Iterator[Small]:
    """Shards of 12, 10 and 8 documents, no two alike; nothing was run."""
    yield from _small(tmp_path, {A: TEXTS[:12], B: TEXTS[12:22], C: TEXTS[22:30]})


def _evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {e.check_name: e for e in result.get_asset_check_evaluations()}


# A check on a partitioned asset looks at another partition, or at none:
# dagster-io/dagster#17005, #27747.


def test_checks_of_one_partition_judge_its_files_and_leave_the_others_unchecked(
    abc: Small,
) -> None:
    abc.source(A).unlink()  # nothing of them can be read without a failure
    abc.source(C).unlink()
    result = abc.run("ingest_shard", B)
    assert result.success
    for asset in INGEST:
        for gate in GATES[asset]:
            assert abc.checked(asset, gate.name, (A, B, C)) == {B: "SUCCEEDED"}
    for evaluation in result.get_asset_check_evaluations():
        assert evaluation.partition == B
        assert f"/{B}/" in str(evaluation.metadata["path"].value)
    assert "of 10 documents" in str(_evaluations(result)["kept_share"].description)
    assert {asset: abc.made(asset) for asset in INGEST} == {asset: {B} for asset in INGEST}


def test_a_check_of_one_partition_says_nothing_of_a_fault_in_another(abc: Small) -> None:
    for shard in (A, B, C):
        fetch_shard(abc.project, shard)
        assert abc.check("raw_shards", shard)
    (stored,) = (abc.config.parent / "data" / "raw_shards" / A).glob("*/a.jsonl")
    stored.write_bytes(stored.read_bytes()[:-1])
    assert abc.check("raw_shards", C)
    assert abc.checked("raw_shards", "sha256", (A, B, C)) == dict.fromkeys((A, B, C), "SUCCEEDED")
    assert not abc.check("raw_shards", A)
    expected = {A: "FAILED", B: "SUCCEEDED", C: "SUCCEEDED"}
    assert abc.checked("raw_shards", "sha256", (A, B, C)) == expected
    assert abc.check("raw_shards", B)  # the latest result of the check is a good one again
    assert abc.checked("raw_shards", "sha256", (A, B, C)) == expected


# A failing check does not stop the asset after it: dagster-io/dagster#17251.


def _pin_another_hash(small: Small, patch: pytest.MonkeyPatch) -> None:
    del patch
    pins = {B: [{"name": "b.jsonl", "bytes": 1, "sha256": "0" * 64}]}
    lock = {"format": 1, "shards": pins}
    (small.config.parent / "corpus.lock").write_text(json.dumps(lock), encoding="utf-8")


def _write_another_copy(small: Small, patch: pytest.MonkeyPatch) -> None:
    """Have the disk write other bytes of b than were read."""
    del small

    def flip(draft: Path) -> None:
        path = draft / "b.jsonl"
        if path.exists():
            path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))

    plant(patch, "raw_shards", flip)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_pin_another_hash, _write_another_copy])
def test_a_shard_with_a_wrong_hash_stops_and_the_others_go_on_to_the_release(
    fault: Callable[[Small, pytest.MonkeyPatch], None], abc: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    abc.add("checks: {max_uncleared_share: 0.5}")
    fault(abc, monkeypatch)
    assert [abc.run("ingest_shard", s).success for s in (A, B, C)] == [True, False, True]
    assert abc.made("cleaned_documents") == abc.made("minhash_signatures") == {A, C}
    assert not (abc.config.parent / "data" / "cleaned_documents" / B).exists()
    assert abc.run("build_corpus").success
    assert [abc.run("pack_shard", s).success for s in (A, B, C)] == [True, False, True]
    assert abc.made("packed_bins") == {A, C}
    assert not abc.run("publish_release").success  # made, but a shard is left out
    assert release_in_force(abc.project) is None


def test_what_comes_after_a_shard_with_a_wrong_hash_is_refused_in_a_run_of_its_own(
    abc: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_another_copy(abc, monkeypatch)
    abc.run("ingest_shard", B)
    for asset in ("cleaned_documents", "minhash_signatures", "packed_bins"):
        assert not abc.run(f"only_{asset}", B).success
        assert abc.made(asset) == set()


# The first failing check of a step hides the others: dagster-io/dagster#20659, #16235.

RULES = ("too_short", "dup_lines", "low_alnum")


def _dropped_by_three_rules() -> list[Record]:
    """Return 200 documents: 20 too short, 20 of one line 40 times, 20 of hardly a letter."""
    kept = [{"id": f"kept-{i}", "text": f"{i}. {TEXTS[i % 60]['text']}"} for i in range(140)]
    short = [{"id": f"short-{i}", "text": f"Too short {i}."} for i in range(20)]
    line = "the same line of words comes again and again\n"
    lines = [{"id": f"lines-{i}", "text": f"number {i}\n{line * 40}"} for i in range(20)]
    signs = [{"id": f"signs-{i}", "text": f"{i} " + "#-+ =*/ !? <> " * 40} for i in range(20)]
    return [*kept, *short, *lines, *signs]


@pytest.fixture(scope="module")
def three_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    yield from _small(tmp_path_factory.mktemp("rules"), {A: _dropped_by_three_rules()})


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(c, marks=() if n in (0, 3) else pytest.mark.slow)
        for n in range(4)
        for c in combinations(RULES, n)
    ],
)
def test_every_limit_that_is_exceeded_is_recorded_and_then_the_shard_is_blocked(
    failing: tuple[str, ...], three_rules: Small
) -> None:
    limits = {rule: 0.05 if rule in failing else 0.5 for rule in RULES}  # each drops a tenth
    kept = {"max_drop_share": {**limits, "char_repeat": 1.0, "low_lang_confidence": 1.0}}
    checks = json.dumps({**kept, "min_kept_share": 0.1, "min_language_kept_share": 0.0})
    three_rules.config.write_text(f"{SETTINGS}checks: {checks}\n", encoding="utf-8")
    result = three_rules.run("ingest_shard", A)
    found = {
        e.check_name: e
        for e in result.get_asset_check_evaluations()
        if e.asset_key == dg.AssetKey("cleaned_documents")
    }
    red = {f"drop_rate_{rule}" for rule in failing}
    assert {name for name, e in found.items() if not e.passed} == red
    assert list(found) == [gate.name for gate in GATES["cleaned_documents"]]
    for rule in failing:
        evaluation = found[f"drop_rate_{rule}"]
        assert evaluation.metadata["value"].value == pytest.approx(0.1)
        assert evaluation.metadata["limit"].value == pytest.approx(0.05)
        assert three_rules.checked("cleaned_documents", evaluation.check_name, [A]) == {A: "FAILED"}
    assert result.success == (not failing)
    signed = {e.step_key for e in result.all_events if e.event_type_value == "STEP_START"}
    assert ("minhash_signatures" in signed) == (not failing)


# A partition is deleted: its files and events stay, and what reads all of them reads it still, or
# breaks: dagster-io/dagster#33910, #14749.


@pytest.fixture(scope="module")
def released_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three shards of which everything is made; nobody changes it."""
    folder = tmp_path_factory.mktemp("released")
    shards = {A: TEXTS[:12], B: TEXTS[12:22], C: TEXTS[22:30]}
    for small in _small(folder, shards):
        run_chain(small.project)
        assert small.released() == {A, B, C}
    return folder


@pytest.fixture
def released(released_once: Path, tmp_path: Path) -> Iterator[Small]:
    """A copy of that corpus, with its instance."""
    with in_memory() as instance:
        yield _copy(released_once, tmp_path / "copy", instance)


def _copy(old: Path, new: Path, instance: dg.DagsterInstance) -> Small:
    found = Small(shutil.copytree(old, new) / "corpus.yaml", instance)
    register(found.project, instance)  # its sources have moved
    return found


def _files(small: Small, shard: str) -> dict[str, bytes]:
    data = small.config.parent / "data"
    return {str(p): p.read_bytes() for p in data.glob(f"*/{shard}/**/*") if p.is_file()}


@pytest.mark.slow
def test_a_retired_shard_is_in_nothing_that_is_made_after_and_its_files_stay(
    released: Small,
) -> None:
    files = _files(released, B)
    said = released.command("retire", B)
    assert (said.exit_code, f"{B}: retired" in said.output) == (0, True)
    released.release()
    assert released.released() == {A, C}
    clusters = released.project.artifact("dedup_clusters", None)
    assert clusters is not None
    assert set(pl.read_parquet(clusters.path("clusters.parquet"))["shard"]) == {A, C}
    assert (clusters.numbers["documents"], clusters.numbers["uncleared"]) == (20, 0)
    assert _files(released, B) == files != {}
    assert B in released.instance.get_dynamic_partitions(SHARDS_NAME)
    assert released.command("plan").output.startswith("nothing is due")


def test_a_retired_shard_that_comes_back_as_it_was_gives_the_release_of_before(
    released: Small,
) -> None:
    before = release_in_force(released.project)
    released.command("retire", B)
    released.remake()
    assert release_in_force(released.project) != before
    assert released.command("retire", "--undo", B).exit_code == 0
    released.remake()
    assert release_in_force(released.project) == before


def test_a_key_that_is_deleted_in_the_ui_alone_is_there_again_and_nothing_is_due(
    released: Small,
) -> None:
    released.instance.delete_dynamic_partition(SHARDS_NAME, B)
    assert released.run("build_corpus").success  # the registry is the truth, not the partitions
    found = survey(released.project)
    assert (found.due, found.blocked) == ([], [])
    listed = released.run("register_shards")
    assert listed.success
    warned = [
        str(entry.user_message)
        for entry in released.instance.all_logs(listed.run_id)
        if entry.level == logging.WARNING
    ]
    assert [w.startswith(f"{B}: registered shards whose partition keys") for w in warned] == [True]
    assert set(released.instance.get_dynamic_partitions(SHARDS_NAME)) == {A, B, C}
    assert released.released() == {A, B, C}


@pytest.mark.slow
def test_the_command_warns_of_a_key_that_was_deleted_in_the_ui(
    released_once: Path, tmp_path: Path
) -> None:
    home = {"DAGSTER_HOME": str(tmp_path / "home")}
    with in_folder(tmp_path / "home") as instance:
        released = _copy(released_once, tmp_path / "copy", instance)
        made = dg.AssetMaterialization("raw_shards", partition=B)
        instance.report_runless_asset_event(made)  # else the key may never have been there
        instance.delete_dynamic_partition(SHARDS_NAME, B)
        corpus = Corpus(released.config.parent)
        ended, result = corpus.run(environment=home)
        known = set(instance.get_dynamic_partitions(SHARDS_NAME))
    assert (ended.code, result["outcome"]) == (0, "complete"), ended.printed
    assert "warning: the partition keys of registered shards were not in Dagster" in ended.printed
    assert f"are there again: {B}; to take a shard out" in " ".join(ended.printed.split())
    assert known == {A, B, C}
    assert "warning: the partition keys" not in corpus.run(environment=home)[0].printed


def test_a_shard_that_comes_back_with_other_bytes_is_blocked_until_they_are_accepted(
    released: Small,
) -> None:
    old = hashlib.sha256(released.source(B).read_bytes()).hexdigest()
    released.command("retire", B)
    released.remake()
    released.write(B, TEXTS[40:47])
    new = hashlib.sha256(released.source(B).read_bytes()).hexdigest()
    assert released.command("retire", "--undo", B).exit_code == 0
    released.add("checks: {max_uncleared_share: 0.5}")

    result = released.run("ingest_shard", B)  # not taken as done, though all of it was made once
    assert not result.success
    (blocked,) = [b for b in survey(released.project).blocked if b.asset == "raw_shards"]
    assert (blocked.partition, blocked.gate) == (B, "source_unchanged")
    assert old in blocked.reason
    assert new in blocked.reason
    assert released.run("build_corpus").success  # without it
    assert released.released() == {A, C}

    assert released.command("lock", "--accept", B).exit_code == 0
    assert released.run("ingest_shard", B).success
    released.remake()
    assert released.released() == {A, B, C}
    release = release_in_force(released.project)
    assert release is not None
    rows = pl.read_parquet(Path(release["path"], "documents.parquet")).filter(shard=B)
    assert sorted(rows["id"]) == sorted(d["id"] for d in TEXTS[40:47])


# Several partitions at once on SQLite: `database is locked`. dagster-io/dagster#3238,
# catalyst-cooperative/pudl#2977. In processes, as all runs are: in threads Dagster's log deadlocks.

EIGHT = tuple(f"2026-40/{n}.jsonl" for n in range(8))


def _eight_shards() -> dict[str, Sequence[Record]]:
    return {shard: TEXTS[5 * n : 5 * n + 5] for n, shard in enumerate(EIGHT)}


def _locked_out(instance: dg.DagsterInstance) -> list[str]:
    """Return what the event logs of all runs say of a database that did not answer."""
    return [
        str(entry)
        for run in instance.get_runs()
        for entry in instance.all_logs(run.run_id)
        if "OperationalError" in str(entry) or "database is locked" in str(entry)
    ]


@pytest.mark.slow
def test_eight_worker_processes_on_one_sqlite_instance_all_succeed(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.config.write_text(SETTINGS.replace("workers: 1", "workers: 8"), encoding="utf-8")
    for shard, records in _eight_shards().items():
        write_shard(tmp_path / "source" / shard, records)
    ended, result = corpus.run()
    assert (ended.code, result["outcome"]) == (0, "complete"), ended.printed
    assert set(corpus.statuses()) == {dg.DagsterRunStatus.SUCCESS}
    with dg.DagsterInstance.from_config(str(corpus.data / ".dagster")) as instance:
        assert _locked_out(instance) == []


# A backfill in which one partition fails: all are marked as done, or reading the key raises.
# PostHog/posthog#40262, dagster-io/dagster#17836.

BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
STATE = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { __typename
    ... on PartitionBackfill { status } } }"""
LAUNCH = """mutation($run: ExecutionParams!) { launchPipelineExecution(executionParams: $run) {
    __typename ... on LaunchRunSuccess { run { runId } } } }"""


@dataclass(frozen=True)
class Served:
    """The real web UI and daemon over a corpus."""

    corpus: Corpus
    url: str

    def ask(self, query: str, **variables: object) -> Any:
        data = json.dumps({"query": query, "variables": variables}).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/graphql", data, kind)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"]

    def ended(self, tag: str, value: str, *, count: int) -> dict[str, dg.DagsterRunStatus]:
        """Return how so many runs with a tag ended, by shard, when all have."""
        until = time.monotonic() + 300
        while True:
            runs = [r for r in self.corpus.dagster_runs() if r.tags.get(tag) == value]
            if len(runs) == count and all(run.is_finished for run in runs):
                return {run.tags["dagster/partition"]: run.status for run in runs}
            assert time.monotonic() < until, [(r.tags, r.status) for r in runs]
            time.sleep(0.5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Shards a, b (cut in the middle) and c, and eight more; `corpus ui` has registered them."""
    corpus = Corpus(tmp_path_factory.mktemp("served"))
    corpus.config.write_text(
        SETTINGS + "schedule: {cron: '0 0 1 1 *'}\n", encoding="utf-8"
    )  # no night comes between
    shards = {GZ_A: TEXTS[:12], GZ_B: TEXTS[12:22], GZ_C: TEXTS[22:30], **_eight_shards()}
    for shard, records in shards.items():
        write_shard(corpus.folder / "source" / shard, records)
    cut(corpus.folder / "source" / GZ_B)
    ui = corpus.start("ui", "--port", "0")
    try:
        until = time.monotonic() + 120
        while (said := re.search(r"web UI: (http://127\.0\.0\.1:\d+)", ui.printed())) is None:
            assert time.monotonic() < until, ui.printed()
            time.sleep(0.2)
        yield Served(corpus, said[1])
    finally:
        ui.process.terminate()
        ui.wait()


GZ_A, GZ_B, GZ_C = "2026-44/a.jsonl.gz", "2026-44/b.jsonl.gz", "2026-44/c.jsonl.gz"


@pytest.mark.slow
@pytest.mark.xdist_group("cases-ui")
def test_a_backfill_in_which_one_shard_fails_makes_the_others_and_says_which(
    served: Served,
) -> None:
    params = {
        "assetSelection": [{"path": [asset]} for asset in INGEST],
        "partitionNames": [GZ_A, GZ_B, GZ_C],
        "tags": [],
    }
    launched = served.ask(BACKFILL, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    assert served.ended("dagster/backfill", launched["backfillId"], count=3) == {
        GZ_A: dg.DagsterRunStatus.SUCCESS,
        GZ_B: dg.DagsterRunStatus.FAILURE,
        GZ_C: dg.DagsterRunStatus.SUCCESS,
    }
    found = served.corpus.materialized()
    for asset in INGEST[1:]:
        assert (asset, GZ_B) not in found
        assert {(asset, GZ_A), (asset, GZ_C)} <= set(found)
    with dg.DagsterInstance.from_config(str(served.corpus.data / ".dagster")) as instance:
        status = instance.event_log_storage.get_asset_check_partition_info(
            [dg.AssetCheckKey(dg.AssetKey("cleaned_documents"), "readable")],
            partition_keys=[GZ_A, GZ_B, GZ_C],
        )
        passed = {i.partition_key: i.latest_execution_status.value for i in status}
        text = "".join(str(e) for r in instance.get_runs() for e in instance.all_logs(r.run_id))
    assert {k for k, v in passed.items() if v == "SUCCEEDED"} == {GZ_A, GZ_C}
    assert "Cannot access partition_key" not in text
    until = time.monotonic() + 120
    while True:
        state = served.ask(STATE, id=launched["backfillId"])["partitionBackfillOrError"]["status"]
        if state not in ("REQUESTED", "FAILING"):
            break
        assert time.monotonic() < until, state
        time.sleep(0.5)
    assert state == "COMPLETED_FAILED"


@pytest.mark.slow
@pytest.mark.xdist_group("cases-ui")
def test_eight_partitions_launched_at_once_in_the_ui_all_succeed(served: Served) -> None:
    for shard in EIGHT:
        run = {
            "selector": {
                "repositoryLocationName": "corpus_platform",
                "repositoryName": "__repository__",
                "pipelineName": "ingest_shard",
            },
            "runConfigData": "{}",
            "mode": "default",
            "executionMetadata": {
                "tags": [
                    {"key": "dagster/partition", "value": shard},
                    {"key": "of", "value": "the eight"},  # and of no sensor
                ]
            },
        }
        launched = served.ask(LAUNCH, run=run)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
    assert served.ended("of", "the eight", count=8) == dict.fromkeys(
        EIGHT, dg.DagsterRunStatus.SUCCESS
    )
    with dg.DagsterInstance.from_config(str(served.corpus.data / ".dagster")) as instance:
        assert _locked_out(instance) == []


@pytest.mark.slow
@pytest.mark.xdist_group("cases-ui")
def test_a_run_with_a_made_up_configuration_cannot_be_launched_in_the_ui(served: Served) -> None:
    run = {
        "selector": {
            "repositoryLocationName": "corpus_platform",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": ["cleaned_documents"]}],
        },
        "runConfigData": json.dumps({"ops": {"cleaned_documents": {"config": {"min_chars": 1}}}}),
        "mode": "default",
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": GZ_A}]},
    }
    launched = served.ask(LAUNCH, run=run)["launchPipelineExecution"]
    assert launched["__typename"] == "RunConfigValidationInvalid"
