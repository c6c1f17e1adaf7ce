"""Tests of the packed bins: the kept documents in source order, each ended by one EOS."""

import shutil
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from corpus_platform.document import PACKED_DOCUMENTS
from corpus_platform.errors import SettingsError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import encoding
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.tokenization.encoder import load_encoder
from corpus_platform_tests.small import SHARDS, documents, run_chain, write_shard
from corpus_platform_tests.tokenization.trained import trained

FIRST = SHARDS[0]


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def test_a_second_call_does_nothing(project: Project) -> None:
    assert pack_shard(project, FIRST).made is False


def test_pk_04_a_tokenizer_without_the_end_token_is_refused_before_any_file(
    project: Project,
) -> None:
    """The tokenizer of the corpus has all special tokens, so one without takes its place."""
    bins = project.store.folder("packed_bins", FIRST)
    shutil.rmtree(bins)
    project = open_project(project.settings)
    bare = partial(load_encoder, trained(special_tokens=()))
    with (
        mock.patch.object(encoding, "load_encoder", lambda _, **tokens: bare(**tokens)),
        pytest.raises(SettingsError, match=r"tokenizer\.json: no end token '<\|endoftext\|>'"),
    ):
        pack_shard(project, FIRST)
    assert [path for path in bins.rglob("*") if path.is_file()] == []


def test_documents_are_the_kept_ones_of_each_split_in_source_order(project: Project) -> None:
    path = project.present("packed_bins", FIRST).path("documents.parquet")
    assert pq.read_schema(path).equals(PACKED_DOCUMENTS)
    packed = pl.read_parquet(path)
    verdict = pl.read_parquet(project.present("dedup_verdicts", FIRST).path("verdict.parquet"))
    for split, file in (("train", "train.bin"), ("validation", "val.bin")):
        wanted = verdict.filter(pl.col("split") == split)["row"].to_list()
        assert packed.filter(pl.col("file") == file)["row"].to_list() == wanted
    assert packed["shard"].unique().to_list() == [FIRST]


@pytest.mark.parametrize("name", ["train", "val"])
def test_plain_numpy_finds_every_document_and_its_one_end_token(
    name: str, project: Project
) -> None:
    artifact = project.present("packed_bins", FIRST)
    tokens = np.fromfile(artifact.path(f"{name}.bin"), "<u2")
    ends = np.fromfile(artifact.path(f"{name}.index"), "<u8").astype(np.int64)
    listed = pl.read_parquet(artifact.path("documents.parquet")).filter(pl.col("file") == f"{name}.bin")  # fmt: skip
    assert ends.tolist() == (listed["start"] + listed["tokens"]).to_list()
    assert np.flatnonzero(tokens == 0).tolist() == (ends - 1).tolist()  # id 0 is <|endoftext|>
    assert tokens.max() < 400


def test_a_document_decodes_to_its_cleaned_text(project: Project) -> None:
    artifact = project.present("packed_bins", FIRST)
    tokenizer = Tokenizer.from_file(str(project.present("tokenizer", None).path("tokenizer.json")))
    cleaned = pl.read_parquet(project.present("cleaned_documents", FIRST).path("documents.parquet"))
    texts = dict(cleaned.select("row", "text").iter_rows())
    tokens = np.fromfile(artifact.path("train.bin"), "<u2")
    listed = pl.read_parquet(artifact.path("documents.parquet")).filter(pl.col("file") == "train.bin")  # fmt: skip
    for row, start, count in listed.select("row", "start", "tokens").iter_rows():
        ids = tokens[start : start + count - 1].tolist()
        assert tokenizer.decode(ids, skip_special_tokens=False) == texts[row]


def test_the_ledger_counts_documents_and_tokens_of_both_splits(project: Project) -> None:
    artifact = project.present("packed_bins", FIRST)
    listed = pl.read_parquet(artifact.path("documents.parquet"))
    ledger = artifact.manifest.ledger
    for split, name in (("train", "train.bin"), ("validation", "val.bin")):
        part = listed.filter(pl.col("file") == name)
        assert ledger[f"{split}_documents"] == len(part) == artifact.numbers[f"{split}_documents"]
        assert ledger[f"{split}_tokens"] == part["tokens"].sum()
        assert ledger[f"{split}_tokens"] * 2 == artifact.path(name).stat().st_size
    assert (ledger["vocab_size"], ledger["eos"], ledger["bos"]) == (400, "appended", "none")


def test_a_shard_without_a_validation_document_has_an_empty_file_of_it(project: Project) -> None:
    artifact = project.present("packed_bins", SHARDS[1])
    assert artifact.manifest.ledger["validation_documents"] == 0
    assert artifact.path("val.bin").stat().st_size == 0
    assert artifact.path("val.index").stat().st_size == 0


@pytest.mark.parametrize("strategy", ["concat", "best_fit", "pad"])
def test_a_shard_of_which_nothing_is_kept_has_empty_files_and_a_release_without_it(
    strategy: str, tmp_path: Path
) -> None:
    """Two copies of a shard: all of the second one are dropped for their twins in the first."""
    config = tmp_path / "corpus.yaml"
    config.write_text(
        "sources: [{glob: 'in/{crawl}/*'}]\nclean: {preset: none}\n"
        f"tokenizer: {{vocab_size: 300}}\npack: {{strategy: {strategy}, sequence_length: 64}}\n"
    )
    for name in ("a.jsonl", "b.jsonl"):
        write_shard(tmp_path / "in" / "2026-40" / name, documents()[:12])
    write_shard(tmp_path / "in" / "2026-40" / "c.jsonl", [])
    project = open_project(load_settings(config))
    release = run_chain(project)
    for shard in ("2026-40/b.jsonl", "2026-40/c.jsonl"):
        packed = project.present("packed_bins", shard)
        assert [packed.path(f"{n}.bin").stat().st_size for n in ("train", "val")] == [0, 0]
        assert packed.numbers["padding_tokens"] == packed.numbers["eos_count"] == 0
    assert set(pl.read_parquet(release / "documents.parquet")["shard"]) == {"2026-40/a.jsonl"}
