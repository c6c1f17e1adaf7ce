"""Tests of the place of a record in its source file, held against a plain reading of the file."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages import record_places
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.record_places import find_record
from corpus_platform_tests.small import register

LINES = {  # a blank line is no record; what cannot be read is one
    "a.jsonl": ["", '{"text": "one"}', "  ", "", '{"text": "two"}', "no JSON"],
    "b.jsonl.gz": ['{"text": "three"}', "", '{"text": "four"}'],
    "d.jsonl": [],
    "e.jsonl": ['{"text": "six"}'],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A bundle of five files, fetched."""
    folder = tmp_path / "in" / "2026-40"
    folder.mkdir(parents=True)
    for name, lines in LINES.items():
        data = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    pq.write_table(pa.table({"text": ["five", None]}), folder / "c.parquet")
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'in/{crawl}/*', bundle_bytes: 100000}]")
    project = open_project(load_settings(config))
    for shard in register(project):
        fetch_shard(project, shard)
    return project


def _expected() -> list[tuple[str, int, int]]:
    found = list[tuple[str, int, int]]()
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.jsonl", "e.jsonl"):
        if name == "c.parquet":
            found += [(name, row, row + 1) for row in range(2)]
            continue
        full = [(n, line) for n, line in enumerate(LINES[name], start=1) if line.strip()]
        found += [(name, row, line) for row, (line, _) in enumerate(full)]
    return found


def test_each_record_of_a_bundle_has_its_file_row_and_line(project: Project) -> None:
    (shard,) = project.shards()
    raw = project.present("raw_shards", shard)
    places = [find_record(project, shard, raw, row) for row in range(8)]
    told = [(Path(p.source).name, p.row, p.line) for p in places if p]
    assert told == _expected()
    assert next(p.member for p in places if p) == "00000-a.jsonl"
    again = [find_record(project, shard, raw, row) for row in range(8)]  # from what was kept
    assert again == places


def test_a_large_shard_is_not_read_for_a_line(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shard,) = project.shards()
    monkeypatch.setattr(record_places, "MAX_BYTES", 10)
    assert find_record(project, shard, project.present("raw_shards", shard), 0) is None
