"""Corpora of made-up texts with near-copies in them, made up to their clusters, for tests of dedup."""

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.small import register, write_shard

__all__ = [
    "add_shards",
    "changed",
    "cluster",
    "clusters",
    "files",
    "new_corpus",
    "prose",
    "sign_new",
    "signed_copy",
]

SETTINGS = """\
storage: data
sources: [{glob: 'source/{crawl}/*'}]
clean: {preset: none}
run: {workers: 1}
checks: {min_records: 1000000}
"""
Shards = Mapping[str, Sequence[str]]  # key -> texts


def prose(seed: int, words: int = 120) -> str:
    """Return a text of words that no other seed has in this order."""
    chosen = random.Random(seed)
    return " ".join(f"w{chosen.randrange(5000)}" for _ in range(words))


def changed(text: str, seed: int, words: int = 1) -> str:
    """Return a text with some words replaced, each by one of its own."""
    chosen, found = random.Random(seed), text.split()
    for place in chosen.sample(range(len(found)), words):
        found[place] = f"x{seed}y{place}"
    return " ".join(found)


def new_corpus(folder: Path, shards: Shards, settings: str = "") -> Project:
    """Write shards and settings, and make all up to the signatures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.yaml").write_text(SETTINGS + settings, encoding="utf-8")
    return add_shards(folder, shards)


def add_shards(folder: Path, shards: Shards) -> Project:
    """Write more shards beside those of a corpus, and sign them."""
    for key, texts in shards.items():
        records = [{"id": f"{key}#{i}", "text": text} for i, text in enumerate(texts)]
        write_shard(folder / "source" / f"{key}.jsonl", records)
    project = open_project(load_settings(folder / "corpus.yaml"))
    sign_new(project)
    return project


def sign_new(project: Project) -> int:
    """Sign all shards; return how many had to be signed."""
    signed = 0
    for shard in register(project):
        fetch_shard(project, shard)
        clean_documents(project, shard)
        signed += sign_documents(project, shard).made
    return signed


def signed_copy(project: Project, folder: Path, settings: str | None = None) -> Project:
    """Copy a corpus made by `new_corpus` as it was before its first clusters; with other settings,
    of what comes after the signatures, where some are given.
    """
    shutil.copytree(project.settings.base, folder)
    config = folder / "corpus.yaml"
    if settings is not None:
        config.write_text(SETTINGS + settings, encoding="utf-8")
    copied = open_project(load_settings(config))
    for asset in ("dedup_clusters", "dedup_verdicts"):
        shutil.rmtree(copied.store.folder(asset, None), ignore_errors=True)
    for shard in copied.shards():
        copied.present("minhash_signatures", shard)  # or it raises
    return copied


def cluster(project: Project) -> Report:
    """Make the clusters."""
    return cluster_documents(project)


def clusters(report: Report) -> pl.DataFrame:
    """Return the cluster table."""
    return pl.read_parquet(report.artifact.path("clusters.parquet"))


def files(report: Report) -> dict[str, bytes]:
    """Return the bytes of all files of the clusters but the manifest."""
    return {name: report.artifact.path(name).read_bytes() for name in report.artifact.hashes()}
