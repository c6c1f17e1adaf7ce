"""The documents that a tokenizer is trained and examined on, found batch by batch.

Of all documents of the corpus none is held but those of the sample, and the numbers of a shard.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.clusters_files import CLUSTER_FILE
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.project import Progress, Project
from corpus_platform.stages.tables import read_batches
from corpus_platform.tokenization.training import Sample

__all__ = ["TrainingSample", "choose_documents", "every_so_many_kept", "sample_texts"]

BATCH = 1 << 16  # rows of a few bytes


class TrainingSample:
    """Shards of the sample in key order, the rows of each, ascending, and the bytes of all texts."""

    def __init__(self, rows: dict[str, np.ndarray], total: int) -> None:
        self.rows, self.bytes = rows, total

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))


def choose_documents(project: Project) -> TrainingSample:
    """Return a random sample of the kept training documents, as large as the settings say."""
    settings = project.settings.tokenizer
    sample = Sample(limit_bytes=settings.sample_bytes, seed=settings.seed)
    table = project.require("dedup_clusters", None).path(CLUSTER_FILE)
    names = []
    for shard, rows in _training_rows(table):
        project.require("cleaned_documents", shard)
        signed = project.require("minhash_signatures", shard).path(SIGNATURE_FILE)
        for batch in read_batches(signed, ["row", "digest", "bytes"], rows=BATCH):
            found = pl.DataFrame(batch)["row"].to_numpy()
            kept = np.isin(found, rows, assume_unique=True)
            places = np.stack([np.full(kept.sum(), len(names)), found[kept]], axis=1)
            sizes = batch.column("bytes").to_numpy()
            sample.offer(_digests(batch.column("digest"))[kept], sizes[kept], places)
        names.append(shard)
    places, sizes = sample.chosen()
    cuts = np.searchsorted(places[:, 0], np.arange(len(names) + 1))
    rows = {n: places[a:b, 1] for n, a, b in zip(names, cuts, cuts[1:], strict=False) if a < b}
    return TrainingSample(rows, int(sizes.sum()))


def _training_rows(table: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each shard that has documents for training, in key order, and their rows."""

    def parts() -> Iterator[tuple[str, np.ndarray]]:
        for batch in read_batches(table, ["shard", "row", "split"], rows=BATCH):
            frame = pl.DataFrame(batch).filter(pl.col("split") == "train")
            for (shard,), part in frame.group_by("shard", maintain_order=True):
                yield str(shard), part["row"].to_numpy()

    for shard, found in groupby(parts(), key=itemgetter(0)):
        yield shard, np.concatenate([rows for _, rows in found])


def _digests(column: pa.Array) -> np.ndarray:
    """Return a column of 32 bytes as uint8 [n, 32]."""
    _, values = column.buffers()
    return np.frombuffer(values, np.uint8)[32 * column.offset :][: 32 * len(column)].reshape(-1, 32)


def sample_texts(project: Project, sample: TrainingSample, progress: Progress) -> Iterator[str]:
    """Yield the texts of a sample in key order."""
    done = 0
    for shard, rows in sample.rows.items():
        wanted = set(rows.tolist())
        path = project.present("cleaned_documents", shard).path(DOCUMENTS)
        for batch in read_batches(path, ["row", "text"]):
            for row, text in zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True):
                if row in wanted:
                    done += len(text.encode())
                    progress(done, sample.bytes)
                    yield text


def every_so_many_kept(table: Path, *, at_least: int) -> Iterator[tuple[str, list[int]]]:
    """Yield shards of a cluster table with rows of kept documents, evenly spread over all.

    There are `at_least` so many documents, and less than twice as many; all where there are fewer.
    """
    total = sum(
        batch.column("kept").true_count for batch in read_batches(table, ["kept"], rows=BATCH)
    )
    step, seen = max(1, total // at_least), 0
    chosen: list[pl.DataFrame] = []
    for batch in read_batches(table, ["shard", "row", "kept"], rows=BATCH):
        kept = pl.DataFrame(batch).filter("kept")
        chosen.append(kept.select("shard", "row").gather_every(step, -seen % step))
        seen += len(kept)
    every = pl.concat(chosen or [pl.DataFrame(schema={"shard": pl.String, "row": pl.Int64})])
    for (shard,), part in every.group_by("shard", maintain_order=True):
        yield str(shard), part["row"].to_list()
