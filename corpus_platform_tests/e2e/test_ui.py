"""The real web UI over the instance of a real run: what a person sees there, does there, and how
it ends. Texts are looked for in what a headless browser renders."""

import importlib
import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from corpus_platform_tests.e2e.command import Corpus, Started
from corpus_platform_tests.small import SHARDS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("ui")  # one server, in one process of pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
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


@dataclass(frozen=True)
class Served:
    """A corpus, the `corpus ui` that serves it, and where."""

    corpus: Corpus
    ui: Started
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


def _serve(corpus: Corpus, port: int = 0) -> Served:
    ui = corpus.start("ui", "--port", str(port))
    until = time.monotonic() + 90
    while (said := re.search(r"web UI: (http://127\.0\.0\.1:\d+)", ui.printed())) is None:
        if ui.process.poll() is not None or time.monotonic() > until:
            ui.kill()
            pytest.fail(f"corpus ui did not come up:\n{ui.printed()}")
        time.sleep(0.1)
    return Served(corpus, ui, said[1])


@pytest.fixture(scope="module")
def served(undisturbed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The web UI over a copy of the small corpus after one run."""
    found = _serve(undisturbed.copy(tmp_path_factory.mktemp("ui") / "corpus"))
    yield found
    found.ui.kill()


def _playwright() -> ModuleType:
    if "CI" in os.environ:
        return importlib.import_module("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}")
    return pytest.importorskip("playwright.sync_api", reason="needs the package playwright")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Page"]:
    """A page of a headless browser."""
    profile = str(tmp_path_factory.mktemp("profile"))
    with _playwright().sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=str(CHROMIUM),
            args=FLAGS,
            viewport={"width": 1500, "height": 1000},
        )
        yield browser.new_page()
        browser.close()


def _see(page: "Page", *texts: str) -> None:
    """Wait for texts to stand on the page."""
    for text in texts:
        page.wait_for_function("text => document.body.innerText.includes(text)", arg=text)


def test_the_graph_shows_every_asset(served: Served, page: "Page") -> None:
    groups = ",".join(f"global@global:{group}" for group in ("ingest", "corpus", "tokens"))
    page.goto(f"{served.url}/asset-groups?expanded={groups}")
    _see(page, "Global asset lineage", "raw_shards", "cleaned_documents", "minhash_signatures")
    _see(page, "dedup_clusters", "dedup_verdicts", "tokenizer", "packed_bins", "shuffled_bins")


def test_the_catalog_describes_every_asset(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets")
    _see(page, "copied unchanged and verified by sha256", "The documents that passed the rules")
    _see(page, "Exact key, MinHash signature and band hashes", "trained once on kept documents")
    _see(page, "One row per cleaned document", "reported by dedup_clusters where it changed")
    _see(page, "each ended by one EOS", "what a training run pins", "3 partitions")


def test_the_partitions_page_lists_the_shards(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=partitions")
    _see(page, *SHARDS, "Materialized (3)", "Failed (0)", "Missing (0)")


def test_the_checks_page_shows_every_gate_and_what_it_found(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=checks&checkDetail=kept_share")
    _see(page, "Checks (11)", *CHECKS_OF_CLEANED, "Succeeded")
    _see(page, "The share of documents kept is at least its limit.", "Passed", "blocking")
    page.get_by_text("Partitions", exact=True).last.click()
    _see(page, "Passed (3)", "Failed (0)")


def test_drop_rates_stand_on_the_page_and_are_plotted(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=partitions&partition={SHARDS[2]}")
    _see(page, "drop_rate/too_short")
    row = page.locator("tr", has_text="drop_rate/too_short").first.inner_text()
    assert float(row.split()[-1]) == pytest.approx(1 / 41)  # the one short text of 41 documents
    page.goto(f"{served.url}/assets/cleaned_documents")
    page.get_by_text("Plots", exact=True).click()
    _see(page, *(f"drop_rate/{rule.removeprefix('drop_rate_')}" for rule in CHECKS_OF_CLEANED[4:9]))
    plots = page.locator("canvas")
    plots.first.wait_for()
    page.wait_for_function(PAINTED)
    assert plots.count() > 5


# Some point of the first plot is painted.
PAINTED = """() => { const c = document.querySelector("canvas");
    return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v > 0); }"""


def test_an_asset_page_shows_rows_columns_and_where_its_files_lie(
    served: Served, page: "Page"
) -> None:
    page.goto(f"{served.url}/assets/dedup_clusters")
    _see(page, "Row count", "twin_shard", "Shard of the kept document that it is a copy of.")
    _see(page, "exact_copies", "near_copy_share", "data/dedup_clusters/", "manifest.json")


def test_the_runs_of_the_command_are_listed(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}/runs")
    _see(page, "ingest_shard", "build_corpus", "pack_shard", "publish_release")
    _see(page, f"partition: {SHARDS[0]}", "Success", "corpus run")


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


def test_what_is_launched_in_the_ui_is_made_as_the_command_makes_it(launched: Launched) -> None:
    assert launched.clicked.status is dg.DagsterRunStatus.SUCCESS
    assert launched.clicked.tags["dagster/partition"] == SHARDS[2]
    assert launched.requested.status is dg.DagsterRunStatus.SUCCESS
    assert launched.after == launched.before


def test_a_run_that_a_gate_refused_says_why(
    launched: Launched, served: Served, page: "Page"
) -> None:
    assert launched.refused.status is dg.DagsterRunStatus.FAILURE
    page.goto(f"{served.url}/runs/{launched.refused.run_id}")
    _see(page, "STEP_FAILURE", f"cleaned_documents[{SHARDS[0]}]: current: ", "materialize it")
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
    first = _serve(made)
    assert len(first.ui.members()) >= 3
    os.kill(first.ui.process.pid, signal.SIGKILL)
    time.sleep(5)
    assert not _answers(first.port)
    assert first.ui.wait().code == -signal.SIGKILL
    second = _serve(made, first.port)
    os.kill(second.ui.process.pid, signal.SIGINT)
    assert second.ui.wait().code == 0
