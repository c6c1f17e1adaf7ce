"""The real web UI over the instance of a real run: what a person sees there, does there, and how
it ends. Texts are looked for in what a headless browser renders."""

import json
import os
import shutil
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from corpus_platform.planner import INGEST
from corpus_platform_tests.e2e.browser import (
    GRAPH,
    Served,
    browse,
    plotted,
    report,
    see,
    serve,
    states,
)
from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import SHARDS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("ui")  # one server, in one process of pytest

CHECKS_OF_CLEANED = (
    "readable",
    "ledger",
    "not_empty",
    "quarantined",
    "drop_rate_too_short",
    "drop_rate_dup_lines",
    "drop_rate_char_repeat",
    "drop_rate_low_alnum",
    "drop_rate_low_lang_confidence",
    "kept_share",
    "language_yield",
)
LAUNCH = """mutation($run: ExecutionParams!) { launchPipelineExecution(executionParams: $run) {
    __typename ... on LaunchRunSuccess { run { runId } } } }"""


@pytest.fixture(scope="module")
def served(undisturbed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The web UI over a copy of the small corpus after one run."""
    found = serve(undisturbed.copy(tmp_path_factory.mktemp("ui") / "corpus"))
    yield found
    found.ui.kill()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Page"]:
    """A page of a headless browser."""
    with browse(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_graph_shows_every_asset(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}{GRAPH}")
    see(page, "Global asset lineage", "raw_shards", "cleaned_documents", "minhash_signatures")
    see(page, "dedup_clusters", "dedup_verdicts", "tokenizer", "packed_bins", "shuffled_bins")


def test_the_catalog_describes_every_asset(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets")
    see(page, "copied unchanged and verified by sha256", "The documents that passed the rules")
    see(page, "Exact key, MinHash signature and band hashes", "trained once on kept documents")
    see(page, "One row per cleaned document", "reported by dedup_clusters where it changed")
    see(page, "each ended by one EOS", "what a training run pins", "3 partitions")


def test_the_partitions_page_lists_the_shards(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=partitions")
    see(page, *SHARDS, "Materialized (3)", "Failed (0)", "Missing (0)")


def test_the_checks_page_shows_every_gate_and_what_it_found(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=checks&checkDetail=kept_share")
    see(page, "Checks (11)", *CHECKS_OF_CLEANED, "Succeeded")
    see(page, "The share of documents kept is at least its limit.", "Passed", "blocking")
    page.get_by_text("Partitions", exact=True).last.click()
    see(page, "Passed (3)", "Failed (0)")


def test_drop_rates_stand_on_the_page_and_are_plotted(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=partitions&partition={SHARDS[2]}")
    see(page, "drop_rate/too_short")
    row = page.locator("tr", has_text="drop_rate/too_short").first.inner_text()
    assert float(row.split()[-1]) == pytest.approx(1 / 41)  # the one short text of 41 documents
    page.goto(f"{served.url}/assets/cleaned_documents")
    page.get_by_text("Plots", exact=True).click()
    see(page, *(f"drop_rate/{rule.removeprefix('drop_rate_')}" for rule in CHECKS_OF_CLEANED[4:9]))
    plots = plotted(page)
    assert [label for label, _ in plots["drop_rate/too_short"]] == list(SHARDS)
    # The builder writes no short text but the one of the last shard.
    assert [value for _, value in plots["drop_rate/too_short"]] == pytest.approx([0, 0, 1 / 41])


def test_an_asset_page_shows_rows_columns_and_where_its_files_lie(
    served: Served, page: "Page"
) -> None:
    page.goto(f"{served.url}/assets/dedup_clusters")
    see(page, "Row count", "twin_shard", "Shard of the kept document that it is a copy of.")
    see(page, "exact_copies", "near_copy_share", "data/dedup_clusters/", "manifest.json")


def test_an_asset_page_shows_owners_tags_kinds_and_what_a_column_comes_from(
    served: Served, page: "Page"
) -> None:
    page.goto(f"{served.url}/assets/dedup_clusters")
    see(page, "Owners", "Kinds", "Parquet", "Tags", "corpus/scope: corpus", "Column name")
    shown = page.inner_text("body").split("\n")
    assert shown[shown.index("Owners") + 1 :][:1] == ["corpus"]  # team:corpus, where none is set
    cells = page.locator("tr", has_text="Row of the twin").inner_text().split("\t")
    assert [" ".join(cell.split()) for cell in cells] == [
        "twin_row",
        "int64",
        "Row of the twin. From minhash_signatures.row, minhash_signatures.digest,"
        " cleaned_documents.text.",
    ]


def test_the_status_counts_every_state_and_is_plotted(served: Served, page: "Page") -> None:
    report(served.corpus)
    page.goto(f"{served.url}/assets/corpus_status")
    for asset in (*INGEST, "packed_bins"):
        assert states(page, asset) == [3, 0, 0, 0], asset  # current, stale, missing, blocked
    for asset in ("dedup_clusters", "tokenizer", "shuffled_bins"):
        assert states(page, asset) == [1, 0, 0, 0], asset
    see(page, "No gate refuses anything.")
    page.get_by_text("Plots", exact=True).click()
    plots = plotted(page)
    last = {name: plots[name][-1][1] for name in ("shards", "due", "packed_bins/current")}
    assert last == {"shards": 3, "due": 0, "packed_bins/current": 3}


def test_the_runs_of_the_command_are_listed(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/runs")
    see(page, "ingest_shard", "build_corpus", "pack_shard", "publish_release")
    see(page, f"partition: {SHARDS[0]}", "Success", "corpus run")


@dataclass(frozen=True)
class Launched:
    """Three runs that the daemon has executed, the products before, and those after."""

    clicked: dg.DagsterRun
    requested: dg.DagsterRun
    refused: dg.DagsterRun
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def launched(served: Served, page: "Page") -> Launched:
    """Two artifacts that were lost, launched from the UI, and one whose input is not there."""
    corpus, before = served.corpus, served.corpus.products()
    known = {run.run_id for run in corpus.dagster_runs()}
    for asset, shard in (("packed_bins", SHARDS[2]), ("cleaned_documents", SHARDS[1])):
        (generation,) = corpus.generations(asset, shard)
        shutil.rmtree(generation)
    (hidden,) = corpus.generations("cleaned_documents", SHARDS[0])
    away = hidden.rename(corpus.folder / "away")
    requested = _request(served, "cleaned_documents", SHARDS[1])
    refused = _request(served, "minhash_signatures", SHARDS[0])
    page.goto(f"{served.url}/assets/packed_bins?view=partitions&partition={SHARDS[2]}")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    runs = _ended(corpus, known, count=3)
    away.rename(hidden)
    (clicked,) = runs.keys() - {requested, refused}
    return Launched(runs[clicked], runs[requested], runs[refused], before, corpus.products())


def _request(served: Served, asset: str, shard: str) -> str:
    """Launch a partition of an asset as the UI does; return the id of the run."""
    run = {
        "selector": {
            "repositoryLocationName": "corpus_platform",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [asset]}],
        },
        "runConfigData": "{}",
        "mode": "default",
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": shard}]},
    }
    data: dict[str, Any] = {"query": LAUNCH, "variables": {"run": run}}
    request = urllib.request.Request(
        f"{served.url}/graphql", json.dumps(data).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["data"]["launchPipelineExecution"]["run"]["runId"]


def _ended(corpus: Corpus, known: set[str], *, count: int) -> dict[str, dg.DagsterRun]:
    """Return so many new runs by id, when they have ended."""
    until = time.monotonic() + 120
    while True:
        runs = {run.run_id: run for run in corpus.dagster_runs() if run.run_id not in known}
        if len(runs) == count and all(run.is_finished for run in runs.values()):
            return runs
        assert time.monotonic() < until, {i: run.status for i, run in runs.items()}
        time.sleep(0.3)


@pytest.mark.slow
def test_what_is_launched_in_the_ui_is_made_as_the_command_makes_it(launched: Launched) -> None:
    assert launched.clicked.status is dg.DagsterRunStatus.SUCCESS
    assert launched.clicked.tags["dagster/partition"] == SHARDS[2]
    assert launched.requested.status is dg.DagsterRunStatus.SUCCESS
    assert launched.after == launched.before


def test_the_page_of_a_run_names_the_folder_of_what_it_made(
    launched: Launched, served: Served, page: "Page"
) -> None:
    (generation,) = served.corpus.generations("packed_bins", SHARDS[2])
    page.goto(f"{served.url}/runs/{launched.clicked.run_id}?logs=type%3AASSET_MATERIALIZATION")
    see(page, "ASSET_MATERIALIZATION", str(generation), str(generation / "manifest.json"))


def test_a_run_that_a_gate_refused_says_why(
    launched: Launched, served: Served, page: "Page"
) -> None:
    assert launched.refused.status is dg.DagsterRunStatus.FAILURE
    page.goto(f"{served.url}/runs/{launched.refused.run_id}")
    see(page, "STEP_FAILURE", f"cleaned_documents[{SHARDS[0]}]: current: ", "materialize it")
    (row,) = [
        found
        for found in page.locator("tr").all_inner_texts()
        if found.split() == ["gate", "current"]
    ]
    assert row


def test_sigterm_ends_all_of_it_and_frees_the_port(served: Served) -> None:
    os.kill(served.ui.process.pid, signal.SIGTERM)
    ended = served.ui.wait()  # for its last child
    assert (ended.code, "Traceback" in ended.printed) == (0, False), ended.printed
    assert not _answers(served.port)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_kill_9_of_the_command_leaves_no_process_and_no_held_port(made: Corpus) -> None:
    first = serve(made)
    assert len(first.ui.members()) >= 3
    os.kill(first.ui.process.pid, signal.SIGKILL)
    time.sleep(5)
    assert not _answers(first.port)
    assert first.ui.wait().code == -signal.SIGKILL
    second = serve(made, first.port)
    os.kill(second.ui.process.pid, signal.SIGINT)
    assert second.ui.wait().code == 0
