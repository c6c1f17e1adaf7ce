"""The report of near-copies reaches the UI as Markdown and as numbers that plot."""

import json
from pathlib import Path

import dagster as dg

from corpus_platform.defs.dedup_report import dedup_metadata
from corpus_platform.stages.clusters_files import REPORT_FILE
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.catalog import Entry
from corpus_platform_tests.reports.written import HOSTILE, counts, member, report

SECTIONS = (
    "before_and_after",
    "copies_per_crawl",
    "copies_per_source",
    "cluster_sizes",
    "largest_clusters",
    "s_curve",
    "pairs",
)


def _artifact(folder: Path) -> Artifact:
    return Artifact(folder, Entry.__new__(Entry))


def test_sections_are_markdown_and_numbers_plot(tmp_path: Path) -> None:
    (tmp_path / REPORT_FILE).write_text(json.dumps(report()))
    found = dedup_metadata(_artifact(tmp_path))
    for name in SECTIONS:
        assert isinstance(found[f"report/{name}"], dg.MarkdownMetadataValue)
    assert (found["text_bytes_before"], found["text_bytes_after"]) == (5_000_000, 4_000_000)


def test_the_curve_is_that_of_the_bands_in_force(tmp_path: Path) -> None:
    said = report()
    said["banding"] = {"bands": 32, "rows": 4, "threshold": 0.9}
    (tmp_path / REPORT_FILE).write_text(json.dumps(said))
    shown = dedup_metadata(_artifact(tmp_path))["report/s_curve"]
    assert isinstance(shown, dg.MarkdownMetadataValue)
    assert "| 0.50 | 0.873 |" in shown.value  # source document 1, 3.5
    assert "Half of the pairs are found at 0.383" in shown.value
    assert "`auto` takes 16 x 8" in shown.value


def test_a_hostile_corpus_makes_an_event_of_bounded_size(tmp_path: Path) -> None:
    said = report()
    begins = [text[:200] for text in HOSTILE]  # more than is shown of any
    names = [*HOSTILE, *begins * 49]
    said["sources"] = {f"{i}{text}": counts(9, 1, 1, 9) for i, text in enumerate(names)}
    said["largest"] = [
        {**member(i, text), "size": 9, "texts": 9, "kept": 1} for i, text in enumerate(HOSTILE)
    ]
    pairs = [
        {"similarity": 0.9, "kept": member(1, t), "dropped": member(2, t)}
        for t in [*HOSTILE, *begins * 4]
    ]
    many = {f"l{i}": pairs for i in range(20)}
    said["pairs"] = many | {f"l{i}": pairs[-10:] for i in range(20, 100)}  # ty: ignore
    (tmp_path / REPORT_FILE).write_text(json.dumps(said))
    found = dedup_metadata(_artifact(tmp_path))
    size = sum(len(v.value.encode()) for v in found.values() if isinstance(v, dg.MarkdownMetadataValue))  # fmt: skip
    assert size < 70_000
