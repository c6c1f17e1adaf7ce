"""The reports of packs and releases reach the UI as Markdown and as numbers that plot."""

from pathlib import Path

import dagster as dg
import polars as pl

from corpus_platform.defs.packing_report import packing_metadata, release_metadata
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.catalog import Entry, FileStamp
from corpus_platform_tests.reports.test_packing import NUMBERS

# file, shard, row, offset, tokens: a document of 25 tokens in three pieces, and two whole ones.
LINES = [
    ("train-00000.bin", "c/a", 7, 0, 10),
    ("train-00000.bin", "c/a", 7, 20, 5),
    ("train-00000.bin", "c/b", 7, 0, 4),
    ("train-00000.bin", "c/a", 7, 10, 10),
    ("val-00000.bin", "c/a", 8, 0, 4),
]


def _artifact(folder: Path, lines: list[tuple[str, str, int, int, int]]) -> Artifact:
    columns = {"file": str, "shard": str, "row": int, "offset": int, "tokens": int}
    pl.DataFrame(lines, schema=columns, orient="row").write_parquet(folder / "documents.parquet")
    stamp = FileStamp("manifest.json", 0, 0)
    return Artifact(folder, Entry(None, "", "", stamp, (), dict(NUMBERS)))


def _read(value: object) -> str:
    assert isinstance(value, dg.MarkdownMetadataValue)
    return value.value


def test_the_pieces_of_a_document_are_one_length(tmp_path: Path) -> None:
    found = packing_metadata(_artifact(tmp_path, LINES))
    shown = _read(found["report/document_lengths"])
    assert "| 4 | 4 | 4 | 4 | 4 | 25 | 25 | 25 | 25 |" in shown
    assert "3 documents of 11.0 tokens on average" in shown
    assert found["median_document_tokens"] == 4


def test_sections_of_a_pack_are_markdown_and_numbers_plot(tmp_path: Path) -> None:
    found = packing_metadata(_artifact(tmp_path, LINES))
    names = ("tokens", "utilisation", "token_ledger", "document_lengths", "eos_density")
    assert all(_read(found[f"report/{name}"]) for name in names)
    assert found["utilisation"] == NUMBERS["utilisation/best_fit"]


def test_a_release_counts_documents_and_tokens_of_its_shards(tmp_path: Path) -> None:
    found = release_metadata(_artifact(tmp_path, LINES))
    assert _read(found["report/tokens_per_shard"]).splitlines()[2:] == [
        "| c/a | 2 | 29 | 87.9% | 14.5 |",
        "| c/b | 1 | 4 | 12.1% | 4.0 |",
    ]


def test_an_empty_release_has_a_report(tmp_path: Path) -> None:
    found = release_metadata(_artifact(tmp_path, []))
    assert _read(found["report/document_lengths"]) == "no documents"


def test_a_release_of_many_shards_makes_an_event_of_bounded_size(tmp_path: Path) -> None:
    lines = [("train-00000.bin", f"crawl/{'x' * 200}{i}", 0, 0, 2**i % 10**9) for i in range(500)]
    found = release_metadata(_artifact(tmp_path, lines))
    assert sum(len(_read(v)) for name, v in found.items() if name.startswith("report/")) < 25_000


def test_the_acceptance_list_of_a_release_is_shown_where_it_has_one(tmp_path: Path) -> None:
    artifact = _artifact(tmp_path, LINES)
    assert "report/acceptance" not in release_metadata(artifact)
    text = "# Release\n\n## Acceptance\n\n| 1 | **pass** |\n\n## Sources\n\nnone\n"
    (tmp_path / "REPORT.md").write_text(text)
    found = release_metadata(artifact)
    assert _read(found["report/acceptance"]) == "| 1 | **pass** |"
    assert next(n for n in found if n.startswith("report/")) == "report/acceptance"
