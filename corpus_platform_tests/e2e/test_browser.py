"""A corpus made, watched and changed by somebody who has only the browser, from the first page on.

Each step asserts what the pages say; expected numbers follow from how the shards were written. With
CORPUS_SCREENSHOTS naming a folder the pictures of docs/images are saved there.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import dagster as dg
import pytest

from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import load_corpus
from corpus_platform_tests.e2e.browser import (
    GRAPH,
    Served,
    browse,
    picture,
    plotted,
    report,
    see,
    serve,
    states,
    wait_to_see,
)
from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.many import write_many_shards
from corpus_platform_tests.small import SHARDS, documents, write_shard

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

BAD = "2026-40/part-00002.jsonl"  # of the first crawl too: 90 of its 150 texts are too short
RATE = "drop_rate_too_short"  # its limit is 0.5
FIRST_CRAWL = (*SHARDS[:2], BAD)
LAST = SHARDS[2]  # one of its 41 texts is too short
COUNT, WITHIN = 2000, 20.0


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures go if nobody asked for them."""
    return tmp_path / "pictures"


@pytest.fixture
def served(fresh: Corpus) -> Iterator[Served]:
    """The web UI over a corpus of four shards, one of them bad, of which nothing is made."""
    short = [{"id": f"short-{n}", "text": f"Too short: {n}.", "lang": "en"} for n in range(90)]
    crawl, name = BAD.split("/")
    source = fresh.folder / f"source/crawl={crawl}" / name
    write_shard(source, [*documents()[:60], *short])
    fresh.set(checks={"max_uncleared_share": 0.3})
    found = serve(fresh)
    yield found
    found.ui.kill()


@pytest.fixture
def asked() -> set[str]:
    """The hosts that the browser asked for anything."""
    return set()


@pytest.fixture
def page(tmp_path: Path, asked: set[str]) -> Iterator["Page"]:
    """A page of a browser."""
    with browse(tmp_path / "profile") as opened:
        opened.on("request", lambda request: asked.add(host_of(request.url)))
        opened.on("websocket", lambda socket: asked.add(host_of(socket.url)))
        yield opened


def host_of(url: str) -> str:
    """Return the host of an address, or the scheme of one that has none, such as `data`."""
    parts = urlsplit(url)
    return parts.hostname or parts.scheme


def test_a_corpus_is_made_watched_and_changed_in_the_browser_alone(
    served: Served, page: "Page", asked: set[str], pictures: Path
) -> None:
    """The chain is run, in this order:

    one shard from its page; a backfill over a crawl from the job's dialog, of which one run is
    refused; the counts of a check by shard; the rest by the sensor; the drop rates as plotted; then
    settings are changed, which nothing acts on before a reload and which marks what is stale after.
    """
    nothing_is_made_yet(served, page)
    one_shard_is_made_from_its_page(served, page)
    a_crawl_is_made_by_a_backfill(served, page, pictures)
    a_check_tells_its_shards_apart(served, page, pictures)
    the_sensor_makes_the_rest(served, page, pictures)
    drop_rates_are_plotted_as_the_shards_were_written(served, page, pictures)
    the_status_names_what_is_refused(served, page, pictures)
    before_a_reload_nothing_is_done_by_old_settings(served, page)
    after_a_reload_what_is_stale_is_marked(served, page, pictures)
    what_follows_is_marked_when_what_it_is_made_of_is_made_anew(served, page)
    assert asked - {"data", "blob"} == {"127.0.0.1"}


def partition(served: Served, asset: str, shard: str) -> str:
    return f"{served.url}/assets/{asset}?view=partitions&partition={shard}"


def nothing_is_made_yet(served: Served, page: "Page") -> None:
    page.goto(f"{served.url}{GRAPH}")
    see(page, "Global asset lineage", "raw_shards", "cleaned_documents", "shuffled_bins")
    page.goto(f"{served.url}/assets/raw_shards?view=partitions")
    see(page, *FIRST_CRAWL, LAST, "Materialized (0)", "Missing (4)")


def one_shard_is_made_from_its_page(served: Served, page: "Page") -> None:
    url = partition(served, "raw_shards", LAST)
    page.goto(url)
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    see(page, "Launched run")
    wait_to_see(page, url, "Materialized (1)", "Missing (3)", "manifest.json")


def launch(served: Served, page: "Page", crawl: str, button: str, *, shards: int) -> None:
    """Launch the job `ingest_shard` over a crawl, through its dialog."""
    page.goto(f"{served.url}/locations/corpus_platform/jobs/ingest_shard")
    page.get_by_role("button", name="Materialize all").first.click()
    page.get_by_text("Select a partition or create one").click()
    page.get_by_placeholder("Filter partitions").fill(crawl)
    page.get_by_text(f"Select all ({shards})").click()
    page.get_by_text("Launch runs to materialize").click()  # closes the list
    page.get_by_role("button", name=button).click()


def a_crawl_is_made_by_a_backfill(served: Served, page: "Page", pictures: Path) -> None:
    launch(served, page, "2026-40/", "Launch backfill", shards=3)
    see(page, "Created backfill")
    page.goto(f"{served.url}/runs?view=backfills")
    link = page.locator('a[href^="/runs/b/"]').first
    link.wait_for()
    wait_to_see(page, f"{served.url}{link.get_attribute('href')}", "100% completed")
    # The words stand in the heading of the table, and as the status until the daemon has looked.
    wait_until(page, lambda: page.get_by_text("In progress", exact=True).count() == 1)
    row = page.locator("tr", has_text="100% completed").inner_text()
    assert row.split()[-4:] == ["3", "0", "2", "1"]  # targeted, in progress, succeeded, failed
    picture(page, "backfill", pictures)


def a_check_tells_its_shards_apart(served: Served, page: "Page", pictures: Path) -> None:
    page.goto(f"{served.url}/assets/cleaned_documents?view=checks&checkDetail={RATE}")
    see(page, "This is a blocking asset check.")
    page.get_by_text("Partitions", exact=True).last.click()
    see(page, "4 Partitions Selected")
    counted = " ".join(page.inner_text("body").split())
    for words in ("Passed (2)", "Failed (1)", "Missing (1)", "In Progress (0)"):
        assert words in counted, counted
    page.get_by_text("02.jsonl").filter(visible=True).last.click()
    see(page, "0.6000 of 150 documents, limit 0.5")
    picture(page, "checks", pictures)


def the_sensor_makes_the_rest(served: Served, page: "Page", pictures: Path) -> None:
    launch(served, page, "2026-44/", "Launch 1 run", shards=1)
    see(page, "Launched run")
    wait_to_see(page, f"{served.url}/runs", "publish_release", within=300)
    settled(served.corpus)
    page.goto(f"{served.url}{GRAPH}")
    see(page, "shuffled_bins")
    page.wait_for_timeout(3000)  # its colours come after its names
    picture(page, "graph", pictures)
    page.goto(partition(served, "cleaned_documents", LAST))
    see(page, "Materialized (4)", "drop_rate/too_short")
    picture(page, "partitions", pictures)


def settled(corpus: Corpus) -> None:
    """Wait until no run is at work."""
    until = time.monotonic() + 120
    while not all(run.is_finished for run in corpus.dagster_runs()):
        assert time.monotonic() < until
        time.sleep(0.5)


def drop_rates_are_plotted_as_the_shards_were_written(
    served: Served, page: "Page", pictures: Path
) -> None:
    page.goto(f"{served.url}/assets/cleaned_documents")
    page.get_by_text("Plots", exact=True).click()
    points = dict(plotted(page)["drop_rate/too_short"])
    assert points == pytest.approx({SHARDS[0]: 0, SHARDS[1]: 0, BAD: 90 / 150, LAST: 1 / 41})
    page.get_by_text("dropped/dup_lines", exact=True).scroll_into_view_if_needed()
    page.wait_for_timeout(1000)  # until they are drawn
    picture(page, "drop-rates", pictures)


def the_status_names_what_is_refused(served: Served, page: "Page", pictures: Path) -> None:
    wait_to_see(page, f"{served.url}/assets/corpus_status", "0.6000 of 150 documents, limit 0.5")
    see(page, BAD, RATE)
    assert states(page, "raw_shards") == [4, 0, 0, 0]  # current, stale, missing, blocked
    assert states(page, "cleaned_documents") == [3, 0, 0, 1]
    assert states(page, "minhash_signatures")[0] == 3
    page.get_by_text("raw_shards/current", exact=True).scroll_into_view_if_needed()
    picture(page, "status", pictures)
    page.get_by_text("Plots", exact=True).click()
    assert plotted(page)["cleaned_documents/blocked"][-1][1] == 1


def before_a_reload_nothing_is_done_by_old_settings(served: Served, page: "Page") -> None:
    served.corpus.set(clean={"set": {"too_short.min_chars": 150}}, dedup={"threshold": 0.85})
    url, until = f"{served.url}/locations/corpus_platform/sensors/carry_on", time.monotonic() + 90
    while "reload the code location" not in page.inner_text("body"):
        assert time.monotonic() < until, page.inner_text("body")
        page.goto(url)
        page.get_by_text("View logs").first.wait_for()
        page.get_by_text("0 runs requested").nth(1).hover()  # of the last tick in the list
        page.wait_for_timeout(1000)
    page.goto(partition(served, "cleaned_documents", LAST))
    see(page, "drop_rate/too_short")
    page.wait_for_timeout(3000)
    assert "Unsynced" not in page.inner_text("body")


def after_a_reload_what_is_stale_is_marked(served: Served, page: "Page", pictures: Path) -> None:
    page.goto(f"{served.url}/deployment/locations")
    page.get_by_text("Reload", exact=True).click()
    see(page, "Code location reloaded!")
    wait_to_see(page, f"{served.url}/assets/dedup_clusters", "Unsynced (1)")
    wait_to_see(page, partition(served, "cleaned_documents", LAST), "Unsynced (1)")
    page.get_by_text("Unsynced (1)").hover()
    see(page, "1 code version change", "has a new code version")
    picture(page, "stale", pictures)
    page.goto(partition(served, "minhash_signatures", LAST))
    see(page, "Latest materialization", "stage_seconds")
    page.wait_for_timeout(3000)
    assert "Unsynced" not in page.inner_text("body")  # Dagster looks one step back; the status all
    wait_to_see(page, f"{served.url}/assets/corpus_status", "states")
    wait_until(page, lambda: states(page, "cleaned_documents") == [0, 4, 0, 0])
    for asset in ("dedup_clusters", "shuffled_bins"):
        assert states(page, asset)[:2] == [0, 1], asset
    assert states(page, "minhash_signatures") == [0, 3, 1, 0]  # that of the bad shard is missing
    assert states(page, "tokenizer") == [1, 0, 0, 0]


def wait_until(page: "Page", holds: Callable[[], bool]) -> None:
    """Open the page again until something holds of it."""
    until = time.monotonic() + 90
    page.wait_for_timeout(2000)
    while not holds():
        assert time.monotonic() < until, page.inner_text("body")
        page.reload()
        page.wait_for_timeout(4000)


def what_follows_is_marked_when_what_it_is_made_of_is_made_anew(
    served: Served, page: "Page"
) -> None:
    page.goto(partition(served, "cleaned_documents", LAST))
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    see(page, "Launched run")
    wait_to_see(page, partition(served, "minhash_signatures", LAST), "Unsynced (1)")
    page.get_by_text("Unsynced (1)").hover()
    see(page, "1 upstream data version change")


def test_pages_over_two_thousand_shards_open_within_seconds(
    page: "Page", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each page is there when its numbers are; prints how long that took."""
    corpus = Corpus(tmp_path / "many")
    keys = load_corpus(write_many_shards(corpus.folder, COUNT)).project().shards()
    found = serve(corpus)
    try:
        with dg.DagsterInstance.from_config(str(corpus.data / ".dagster")) as instance:
            instance.add_dynamic_partitions(SHARDS_NAME, list(keys))
        report(corpus)
        times = {
            path: _opened(page, f"{found.url}{path}", *texts)
            for path, *texts in (
                ("/assets/corpus_status", "raw_shards/current", f"{COUNT:,}"),
                ("/assets/raw_shards?view=partitions", f"Missing ({COUNT})", "2026-40/00000.jsonl"),
                (GRAPH, "raw_shards", "shuffled_bins"),
            )
        }
    finally:
        found.ui.kill()
    with capsys.disabled():
        sys.stdout.write("".join(f"\n{s:.1f} s to open {path}" for path, s in times.items()) + "\n")
    assert max(times.values()) < WITHIN, times


def _opened(page: "Page", url: str, *texts: str) -> float:
    began = time.monotonic()
    page.goto(url)
    see(page, *texts)
    return time.monotonic() - began
