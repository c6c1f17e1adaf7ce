"""Signatures to verdicts, or verdicts to a tokenizer, for many small documents: time, and memory of
the process tree.

    python benchmarks/many_documents.py FOLDER [--documents 10_000_000] [--shards 100] [--tokenizer]

Writes synthetic cleaned documents (about 150 bytes; three of ten in clusters of near-copies over all
shards), signs them with the real stage, and then has another process make the clusters while this one
adds up the memory of that process and its workers ten times a second: what they hold for themselves
(USS), and what they map (RSS, in which pages of files count that the system may drop).
What is there in FOLDER already is not made again, so a second call measures the clusters alone.
With --tokenizer it is the tokenizer that is made anew, on clusters that are there: 1,000 tokens of a
sample of 1 MB, so that what is measured is the choice of the sample and not the training.
"""

import argparse
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from corpus_platform.document import CLEANED
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.project import Product, Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.tables import TableWriter
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.sources import discover

WORDS = 24
COPIES = 0.3  # of all documents
CLUSTER = 3  # documents in a cluster, on average


def main() -> None:
    """Make what is missing, and measure the clusters."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        (_make_tokenizer if options.tokenizer else _make_clusters)(options.folder)
        return
    _prepare(options.folder, options.documents, options.shards)
    kind = ["--tokenizer"] if options.tokenizer else []
    for name in ("tokenizer", "frozen") if kind else ("dedup_clusters", "dedup_verdicts"):
        shutil.rmtree(options.folder / "data" / name, ignore_errors=True)
    _watch([sys.executable, __file__, str(options.folder), "--make", *kind])


def _prepare(folder: Path, documents: int, shards: int) -> None:
    (folder / "source").mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        (folder / "source" / f"{shard:05d}.jsonl").write_text('{"text": "stands for the crawl"}\n')
    (folder / "corpus.yaml").write_text(
        "storage: data\nsources: [{glob: source/*, crawl: 2026-40}]\n"
        "clean: {preset: none}\nchecks: {min_records: 1000000000}\n"
        "tokenizer: {vocab_size: 1000, sample_bytes: 1000000}\n"
    )
    project = _open(folder)
    project.registry.register(discover(project.settings.sources, project.settings.base))
    started, keys = time.perf_counter(), list(project.shards())
    with ProcessPoolExecutor(project.workers) as pool:
        size = documents // shards
        jobs = [(folder, key, number * size, size, documents) for number, key in enumerate(keys)]
        for done, _ in enumerate(pool.map(_make_shard, jobs)):
            print(f"\r{done + 1} of {shards} shards signed", end="", file=sys.stderr)
    print(f"\nprepared in {time.perf_counter() - started:.0f} s")


def _open(folder: Path) -> Project:
    return open_project(load_settings(folder / "corpus.yaml"))


def _make_shard(job: tuple[Path, str, int, int, int]) -> None:
    folder, key, first, size, documents = job
    project = _open(folder)
    fetch_shard(project, key)
    with project.making("cleaned_documents", key) as making:
        if making.current() is None:
            with making.draft() as draft:
                with TableWriter(draft / DOCUMENTS, CLEANED) as writer:
                    for start in range(first, first + size, 10_000):
                        writer.write(
                            _table(start, min(10_000, first + size - start), first, documents)
                        )
                    rows = writer.close()
                numbers: dict[str, float] = {"readable": 1, "lines": size, "kept": size}
                numbers["documents"] = size
                numbers |= {"quarantined": 0, "unaccounted": 0}
                numbers |= {
                    f"dropped/{r}": 0 for r in ("too_short", "dup_lines", "char_repeat")
                } | {f"dropped/{r}": 0 for r in ("low_alnum", "low_lang_confidence")}
                making.publish(draft, [Product(DOCUMENTS, rows=rows)], ledger={}, numbers=numbers)
    sign_documents(project, key)


def _table(start: int, count: int, first: int, documents: int) -> pa.Table:
    texts = [_text(number, documents) for number in range(start, start + count)]
    rows = np.arange(start - first, start - first + count)
    none = pa.nulls(count, pa.string())
    columns = {
        "id": [f"{number:032x}" for number in range(start, start + count)],
        "url": none,
        "text": texts,
        "lang": pa.array(["en"] * count),
        "lang_score": pa.nulls(count, pa.float64()),
        "meta": pa.array(["{}"] * count),
        "row": rows,
    }
    return pa.table(columns, schema=CLEANED)


def _text(number: int, documents: int) -> str:
    """Return a text of its own, or one of a cluster's with its last word changed."""
    own = np.random.default_rng(number)
    if own.random() >= COPIES:
        return " ".join(map(str, own.integers(0, 1 << 20, WORDS)))
    clusters = int(documents * COPIES / CLUSTER)
    words = np.random.default_rng(documents + int(own.integers(clusters))).integers(
        0, 1 << 20, WORDS
    )
    words[-1] = own.integers(0, 1 << 20)  # 19 of 21 shingles in common: 0.905
    return " ".join(map(str, words))


def _make_clusters(folder: Path) -> None:
    started = time.perf_counter()
    report = cluster_documents(_open(folder))
    ledger = report.artifact.manifest.ledger
    shown = (
        "documents",
        "kept",
        "exact_copies",
        "near_copies",
        "candidates",
        "edges",
        "canaries_found",
    )
    print({name: ledger[name] for name in shown}, report.artifact.manifest.measured["effort"])
    print("red:", [f.gate for f in report.findings if not f.passed])
    print(f"clusters in {time.perf_counter() - started:.1f} s")


def _make_tokenizer(folder: Path) -> None:
    started = time.perf_counter()
    report = train_tokenizer(_open(folder))
    print(report.artifact.manifest.ledger, report.artifact.hashes())
    print(f"tokenizer in {time.perf_counter() - started:.1f} s")


def _watch(argv: list[str]) -> None:
    """Run a command and print the most memory that its process tree held at a time."""
    most = {"uss": 0, "rss": 0}
    process = psutil.Popen(argv)
    while process.poll() is None:
        total = {"uss": 0, "rss": 0}
        for one in [process, *_children(process)]:
            try:
                memory = one.memory_full_info()
            except psutil.Error:
                continue
            total["uss"] += memory.uss
            total["rss"] += memory.rss
        most = {name: max(most[name], total[name]) for name in most}
        time.sleep(0.1)
    print({name: f"{value / 1e6:,.0f} MB" for name, value in most.items()})
    sys.exit(process.returncode)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


if __name__ == "__main__":
    main()
