"""Compares texts: the exact Jaccard similarity of pairs of documents, by their shingles.

Texts are fetched in one pass over the shards, of which only the row groups that hold some are read,
and laid on scratch by bucket; a bucket is then compared in memory. A document of several buckets is
laid there as its set of shingles, so that no text is cut twice. Nothing is read at random, and memory
is that of one bucket a worker, whatever the corpus has.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import pairs_of
from corpus_platform.dedup.comparison_plan import ComparisonPlan, plan_comparisons
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.verification import compare_sets
from corpus_platform.engines.local import map_pieces, worth
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.numbering import Numbering
from corpus_platform.stages.project import Progress, Project

__all__ = ["compare_texts", "read_texts"]

BUCKET_BYTES = 1 << 24  # of text; its shingles take up to eight times as much
WORKER_BYTES = 1 << 26  # of text that a worker of its own is worth


class _Fetch(NamedTuple):
    cleaned: Path
    rows: np.ndarray  # ascending
    as_set: np.ndarray  # bool, one a row
    target: Path
    dedup: DedupSettings


class _Segment(NamedTuple):
    """What a bucket has in the file of one shard: where each begins, its bytes, and whether these
    are a text or a set of shingles."""

    path: Path
    starts: np.ndarray
    lengths: np.ndarray
    as_set: np.ndarray
    documents: np.ndarray


class _Bucket(NamedTuple):
    segments: Sequence[_Segment]
    pairs: np.ndarray
    dedup: DedupSettings


def compare_texts(
    project: Project,
    numbering: Numbering,
    codes: np.ndarray,
    scratch: Path,
    *,
    progress: Progress,
) -> tuple[np.ndarray, int]:
    """Return the exact Jaccard of each pair of numbers, and how many texts were read for it."""
    if not len(codes):
        return np.empty(0), 0
    numbers, pairs = np.unique(pairs_of(codes), return_inverse=True)
    pairs = pairs.reshape(-1, 2)
    positions = numbering.position[numbers]
    sizes = _sizes(numbering, positions)
    plan = plan_comparisons(pairs, sizes, budget=BUCKET_BYTES)
    workers = worth(project.workers, int(sizes.sum()), share=WORKER_BYTES)
    segments = _fetch(project, numbering, positions, plan, scratch, workers)
    cuts = np.searchsorted(plan.pair_buckets, np.arange(len(segments) + 1))
    ordered = pairs[plan.order]
    buckets = [
        _Bucket(held, ordered[cuts[i] : cuts[i + 1]], project.settings.dedup)
        for i, held in enumerate(segments)
    ]
    similarity, done = np.empty(len(codes)), 0
    for i, found in enumerate(map_pieces(_compare, buckets, workers=workers)):
        similarity[plan.order[cuts[i] : cuts[i + 1]]] = found
        done += len(found)
        progress(done, len(codes))
    for path in {segment.path for held in segments for segment in held}:
        path.unlink()
    return similarity, len(numbers)


def _sizes(numbering: Numbering, positions: np.ndarray) -> np.ndarray:
    """Return the bytes of some documents' texts."""
    order = np.argsort(positions)
    sizes = np.empty(len(positions), np.int64)
    for shard, part in numbering.by_shard(positions[order]):
        start, _ = numbering.bounds(shard)
        table = pq.read_table(numbering.path(shard, SIGNATURE_FILE), columns=["bytes"])
        sizes[order[part]] = table["bytes"].to_numpy()[positions[order[part]] - start]
    return sizes


def _fetch(
    project: Project,
    numbering: Numbering,
    positions: np.ndarray,
    plan: ComparisonPlan,
    scratch: Path,
    workers: int,
) -> list[list[_Segment]]:
    """Copy the texts of some documents to scratch; return by bucket where they lie.

    plan.documents index `positions`.
    """
    as_set = np.bincount(plan.documents, minlength=len(positions)) > 1
    order = np.argsort(positions)
    shards = list(numbering.by_shard(positions[order]))
    pieces = [
        _Fetch(
            project.present("cleaned_documents", numbering.shards[s]).path(DOCUMENTS),
            numbering.row[positions[order[part]]],
            as_set[order[part]],
            scratch / f"texts-{s}",
            project.settings.dedup,
        )
        for s, part in shards
    ]
    lengths = np.empty(len(positions), np.int64)
    starts = np.empty(len(positions), np.int64)
    shard_of = np.empty(len(positions), np.int64)
    fetched = map_pieces(_copy_texts, pieces, workers=workers)
    for i, ((_, part), found) in enumerate(zip(shards, fetched, strict=True)):
        documents = order[part]
        lengths[documents], starts[documents] = found, np.cumsum(found) - found
        shard_of[documents] = i
    segments: list[list[_Segment]] = [[] for _ in range(int(plan.text_buckets[-1]) + 1)]
    inside = np.lexsort((plan.documents, shard_of[plan.documents], plan.text_buckets))
    documents, buckets = plan.documents[inside], plan.text_buckets[inside]
    opens = np.flatnonzero(np.diff(buckets * len(pieces) + shard_of[documents], prepend=-1))
    for low, high in zip(opens, [*opens[1:], len(documents)], strict=True):
        held = documents[low:high]
        path = pieces[shard_of[held[0]]].target
        segment = _Segment(path, starts[held], lengths[held], as_set[held], held)
        segments[buckets[low]].append(segment)
    return segments


def _copy_texts(piece: _Fetch) -> list[int]:
    """Write the texts or sets of some rows, one after the other; return their lengths in bytes."""
    signer = Signer(piece.dedup)
    groups = _groups(piece.cleaned, piece.rows, ("text",))
    texts = (text for table in groups for text in table["text"])
    with piece.target.open("wb") as target:
        return [
            target.write(
                signer.shingle_sets([text.as_py()])[0].data if as_set else text.as_buffer()
            )
            for text, as_set in zip(texts, piece.as_set.tolist(), strict=True)
        ]


def read_texts(
    cleaned: Path, rows: np.ndarray, *, columns: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield some columns of some ascending rows of a shard."""
    for table in _groups(cleaned, rows, columns):
        yield from zip(*(table[name].to_pylist() for name in columns), strict=True)


def _groups(cleaned: Path, rows: np.ndarray, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the wanted rows of each row group that has some; others are not read."""
    with pq.ParquetFile(cleaned) as file:
        for group in range(file.num_row_groups):
            if _may_hold(file.metadata.row_group(group), rows):
                table = file.read_row_group(group, columns=["row", *columns])
                yield table.filter(pa.array(np.isin(table["row"].to_numpy(), rows)))


def _may_hold(group: pq.RowGroupMetaData, rows: np.ndarray) -> bool:
    """Tell whether a row group has one of the rows, by its statistics where it has them."""
    columns = (group.column(i) for i in range(group.num_columns))
    found = next(c.statistics for c in columns if c.path_in_schema == "row")
    if found is None or not found.has_min_max:
        return True
    return bool(np.searchsorted(rows, found.min) < np.searchsorted(rows, found.max, side="right"))


def _compare(bucket: _Bucket) -> np.ndarray:
    """Return the similarity of each pair of a bucket."""
    texts, sets = list[str](), list[np.ndarray]()
    of_texts, of_sets = list[int](), list[int]()
    for document, as_set, found in _read(bucket.segments):
        if as_set:
            sets.append(np.frombuffer(found, np.uint64))
            of_sets.append(document)
        else:
            texts.append(found.decode())
            of_texts.append(document)
    flat, ends = Signer(bucket.dedup).shingle_sets(texts)
    more = np.cumsum([len(one) for one in sets], dtype=np.int64) + len(flat)
    flat, ends = np.concatenate([flat, *sets]), np.concatenate([ends, more])
    held = np.array([*of_texts, *of_sets], np.int64)
    order = np.argsort(held)
    pairs = order[np.searchsorted(held[order], bucket.pairs)]
    return compare_sets(flat, np.concatenate(([0], ends[:-1])), ends, pairs)


def _read(segments: Sequence[_Segment]) -> Iterator[tuple[int, bool, bytes]]:
    """Yield each document of a bucket, whether it is a set, and its bytes."""
    for path, *columns in segments:
        with path.open("rb") as file:
            for start, length, as_set, document in zip(*columns, strict=True):
                file.seek(start)
                yield int(document), bool(as_set), file.read(length)
