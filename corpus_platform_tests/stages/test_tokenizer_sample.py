"""Tests of the documents that a tokenizer is trained and examined on: those of the plain way, which
holds all documents at once."""

import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages import tokenizer_sample
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project, quiet
from corpus_platform.stages.tables import TableWriter
from corpus_platform.stages.tokenizer_sample import (
    choose_documents,
    every_so_many_kept,
    sample_texts,
)

TABLE = pa.schema([("shard", pa.string()), ("row", pa.int64()), ("kept", pa.bool_())])


def _project(finished: Path, sample_bytes: int, seed: int) -> Project:
    text = finished.read_text(encoding="utf-8")
    wanted = f"sample_bytes: {sample_bytes}, seed: {seed}"
    finished.write_text(text.replace("sample_bytes: 300000", wanted), encoding="utf-8")
    return open_project(load_settings(finished))


def _plain_texts(project: Project, limit: int, seed: int) -> list[str]:
    """Return the texts of the sample in key order, by tables of the whole corpus."""
    clusters = pl.read_parquet(
        project.present("dedup_clusters", None).folder / "clusters.parquet"
    ).filter(pl.col("split") == "train")
    texts = []
    for shard in project.shards():
        cleaned = pl.read_parquet(
            project.present("cleaned_documents", shard).folder / "documents.parquet"
        )
        signed = pl.read_parquet(
            project.present("minhash_signatures", shard).folder / "signatures.parquet"
        )
        texts.append(
            clusters.filter(pl.col("shard") == shard)
            .select("row")
            .join(cleaned.select("row", "text"), on="row")
            .join(signed.select("row", "digest"), on="row")
            .sort("row")
        )
    every = pl.concat(texts)
    sizes = every["text"].str.len_bytes().to_numpy().astype(np.int64)
    words = np.frombuffer(b"".join(every["digest"].to_list()), "<u8").reshape(-1, 4)
    key = np.frombuffer(hashlib.sha256(f"sample {seed}".encode()).digest(), "<u8")
    ranks = words[:, 0] * (key[0] | np.uint64(1)) + words[:, 1] * (key[1] | np.uint64(1))
    possible = np.flatnonzero(sizes <= limit)
    order = possible[np.lexsort((*words[possible].T, ranks[possible]))]
    chosen = np.sort(order[np.cumsum(sizes[order]) <= limit])
    return every["text"].gather(chosen).to_list()


@pytest.mark.parametrize(("limit", "seed"), [(1000, 42), (2500, 1), (60_000, 42), (10**9, 7)])
def test_the_sample_is_that_of_all_documents_held_at_once(
    limit: int, seed: int, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_sample, "BATCH", 7)  # batches that end inside of shards
    project = _project(finished, limit, seed)
    sample = choose_documents(project)
    texts = list(sample_texts(project, sample, quiet))
    assert texts == _plain_texts(project, limit, seed)
    assert sample.bytes == sum(len(text.encode()) for text in texts)
    assert len(sample) == len(texts) > 0


@pytest.mark.parametrize("kept", [0, 1, 19, 20, 39, 40, 59, 60, 1001])
def test_examined_are_every_so_many_kept_documents(
    kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_sample, "BATCH", 35)
    # Every third document is dropped, and shards are as long as their number.
    rows = [(f"2026-40/{s:05}", row) for s in range(1, 56) for row in range(s)]
    table = pa.table(
        {
            "shard": [shard for shard, _ in rows],
            "row": [row for _, row in rows],
            "kept": [i % 3 != 1 and i < kept * 3 // 2 for i in range(len(rows))],
        },
        schema=TABLE,
    )
    with TableWriter(tmp_path / "clusters.parquet", TABLE, group_rows=50) as writer:
        for start in range(0, len(rows), 50):
            writer.write(table.slice(start, 50))
        writer.close()
    found = [
        (shard, row)
        for shard, some in every_so_many_kept(tmp_path / "clusters.parquet", at_least=20)
        for row in some
    ]
    every = [rows[i] for i, kept in enumerate(table["kept"].to_pylist()) if kept]
    assert len(every) == kept
    assert found == every[:: max(1, kept // 20)]
    assert len(found) < 40
