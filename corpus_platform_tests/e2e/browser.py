"""A headless Chromium over the real web UI: pages, what stands and is plotted on them, pictures.

Needs Debian's chromium and the package playwright; tests skip without them, except in CI.
"""

import contextlib
import importlib
import os
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from corpus_platform.defs.resources import load_corpus
from corpus_platform.defs.status import report_status
from corpus_platform.planner import survey
from corpus_platform_tests.e2e.command import Corpus, Started

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = [
    "GRAPH",
    "Served",
    "browse",
    "picture",
    "plotted",
    "report",
    "see",
    "serve",
    "states",
    "wait_to_see",
]

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
GRAPH = "/asset-groups?expanded=" + ",".join(
    f"global@global:{group}" for group in ("ingest", "corpus", "tokens")
)
PICTURES = "CORPUS_SCREENSHOTS"  # names the folder that pictures are saved in

# The data of each plot, as React hands it to the library that paints the canvas.
PLOTTED = """() => Object.fromEntries([...document.querySelectorAll("canvas")].map(canvas => {
    let node = canvas[Object.keys(canvas).find(key => key.startsWith("__reactFiber$"))];
    while (!node.memoizedProps?.data?.datasets) node = node.return;
    const {labels, datasets: [{label, data}]} = node.memoizedProps.data;
    return [label, data.map((point, at) => [String(labels?.[at] ?? point.x), point.y])];
}))"""
# Some point of the first plot is painted.
PAINTED = """() => { const c = document.querySelector("canvas");
    return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v > 0); }"""


@dataclass(frozen=True)
class Served:
    """A corpus, the `corpus ui` that serves it, and where."""

    corpus: Corpus
    ui: Started
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


def serve(corpus: Corpus, port: int = 0) -> Served:
    """Start `corpus ui`; return when it answers."""
    ui = corpus.start("ui", "--port", str(port))
    until = time.monotonic() + 90
    while (said := re.search(r"web UI: (http://127\.0\.0\.1:\d+)", ui.printed())) is None:
        if ui.process.poll() is not None or time.monotonic() > until:
            ui.kill()
            pytest.fail(f"corpus ui did not come up:\n{ui.printed()}")
        time.sleep(0.1)
    return Served(corpus, ui, said[1])


def _playwright() -> ModuleType:
    if "CI" in os.environ:
        return importlib.import_module("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}")
    return pytest.importorskip("playwright.sync_api", reason="needs the package playwright")


@contextlib.contextmanager
def browse(profile: Path) -> Generator["Page"]:
    """Open a browser with one page."""
    with _playwright().sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=str(CHROMIUM),
            args=FLAGS,
            viewport={"width": 1500, "height": 1000},
        )
        yield browser.new_page()
        browser.close()


def see(page: "Page", *texts: str) -> None:
    """Wait for texts to stand on the page."""
    for text in texts:
        page.wait_for_function("text => document.body.innerText.includes(text)", arg=text)


def wait_to_see(page: "Page", url: str, *texts: str, within: float = 240.0) -> None:
    """Open a page again and again until texts stand on it: what is awaited happens elsewhere."""
    until = time.monotonic() + within
    while True:
        page.goto(url)
        try:
            for text in texts:
                page.get_by_text(text).filter(visible=True).first.wait_for(timeout=8000)
        except importlib.import_module("playwright.sync_api").TimeoutError:
            assert time.monotonic() < until, page.inner_text("body")
        else:
            return


def plotted(page: "Page") -> dict[str, Sequence[tuple[str, float]]]:
    """Return the labels and values of every plot on the page, by its name, when they are painted."""
    page.locator("canvas").first.wait_for()
    page.wait_for_function(PAINTED)
    plots = page.evaluate(PLOTTED)
    return {name: [(label, value) for label, value in points] for name, points in plots.items()}


def states(page: "Page", asset: str) -> list[int]:
    """Return how many of a stage are current, stale, missing, blocked: its row in the status."""
    rows = page.locator("table table tr").filter(has_text=re.compile(rf"^\s*{asset}\s*\d"))
    rows.first.wait_for()  # Markdown is rendered after the rest of the page
    return [int(count.replace(",", "")) for count in rows.first.inner_text().split()[1:]]


def report(corpus: Corpus) -> None:
    """Report the status as the sensor does, without a run."""
    loaded = load_corpus(corpus.config)
    with dg.DagsterInstance.from_config(str(corpus.data / ".dagster")) as instance:
        report_status(instance, loaded, survey(loaded.project()), always=True)


def picture(page: "Page", name: str, otherwise: Path) -> None:
    """Save what the page shows, for the documentation where the environment names a folder."""
    folder = Path(os.environ.get(PICTURES, otherwise))
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", animations="disabled", caret="hide")
