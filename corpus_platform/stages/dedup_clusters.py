"""dedup_clusters: decides over all shards which documents are kept, and why each other one is not.

One row per cleaned document, the verified edges beside it, and per shard a verdict file of its own
that is published only when (row, kept, split) of the shard changed. How pairs are found and judged
stands in `dedup`, how the tables are measured again in `clusters_audit`.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.dedup.bands import candidate_pairs
from corpus_platform.dedup.clusters import EXACT, KEPT, NEAR, Decisions, collapse_exact, decide
from corpus_platform.dedup.split import assign_split
from corpus_platform.dedup.verification import Edges, jaccard, prefilter, verify
from corpus_platform.document import CLUSTERS, EDGES
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.clusters_audit import CLUSTER_FILE, EDGE_FILE, measure_clusters
from corpus_platform.stages.dedup_verdicts import (
    find_verdict,
    latest_path,
    publish_verdict,
)
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.shingles_on_disk import ShinglesOnDisk, gather_shingles
from corpus_platform.stages.tables import fixed_matrix, write_table
from corpus_platform.stages.uncleared import included_shards, left_out_inputs
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.pointer import move_pointer, points_to

__all__ = ["CLUSTER_FILE", "EDGE_FILE", "STAGE", "cluster_documents"]

ASSET = "dedup_clusters"
BUCKET_CAP = 64  # members of a bucket that a document is compared with
KINDS = {KEPT: None, EXACT: "exact", NEAR: "near"}


def cluster_documents(project: Project, *, progress: Progress = quiet) -> Report:
    """Cluster all cleared shards and publish the verdicts; do nothing when that is done.

    Raises Uncleared (gate `uncleared`) when more shards are left out than the settings allow.
    """
    with project.making(ASSET, None) as making:
        included = included_shards(project)
        report = making.current()
        if report is None or not _complete_verdicts(project, report.artifact):
            signed = _read_signed(project, included.shards)
            table, edges, counts = _cluster(project, signed, progress)
            with making.draft() as draft:
                products = [
                    Product(CLUSTER_FILE, rows=write_table(draft / CLUSTER_FILE, table)),
                    Product(EDGE_FILE, rows=write_table(draft / EDGE_FILE, edges)),
                ]
                ledger = {
                    **counts,
                    "shards": len(included.shards) + len(included.excluded),
                    "excluded": included.excluded,
                    "verdicts": _publish_verdicts(project, signed, table),
                }
                reasons = {"excluded": included.reasons}
                report = making.publish(draft, products, ledger=ledger, measured=reasons)
        move_pointer(latest_path(project), _pointer(report.artifact))
    return report


def _publish_verdicts(project: Project, signed: "_Signed", table: pa.Table) -> dict[str, str]:
    bounds = signed.bounds().tolist()
    return {
        shard: publish_verdict(project, shard, table.slice(start, stop - start))
        for shard, start, stop in zip(signed.shards, bounds[:-1], bounds[1:], strict=True)
    }


def _complete_verdicts(project: Project, artifact: Artifact) -> bool:
    """Cut the verdicts that are missing from the stored table; return whether all are there then."""
    verdicts = artifact.manifest.ledger["verdicts"]
    missing = [s for s, key in verdicts.items() if find_verdict(project, s, key) is None]
    return all(
        publish_verdict(project, shard, _stored_rows(artifact, shard)) == verdicts[shard]
        for shard in missing
    )


def _stored_rows(artifact: Artifact, shard: str) -> pa.Table:
    return pq.read_table(artifact.path(CLUSTER_FILE), filters=[("shard", "==", shard)])


def _missing_verdict(project: Project, artifact: Artifact) -> str | None:
    """Return a shard whose verdict is not there or not whole, None where all are."""
    verdicts = artifact.manifest.ledger["verdicts"].items()
    return next((s for s, key in verdicts if find_verdict(project, s, key) is None), None)


def _pointer(artifact: Artifact) -> dict[str, str]:
    return {"key": artifact.entry.key}


def _unsettled(project: Project, artifact: Artifact) -> str | None:
    if not points_to(latest_path(project), _pointer(artifact)):
        return "other clusters were the last to count; its verdicts are to be put in force"
    shard = _missing_verdict(project, artifact)
    return None if shard is None else f"the verdict of {shard} is missing or damaged"


@dataclass(frozen=True)
class _Signed:
    """The signatures of all included documents in key order; `shard` is an index in `shards`."""

    shards: Sequence[str]
    shard: np.ndarray
    row: np.ndarray
    id: pl.Series
    digest: pl.Series
    signature: np.ndarray
    bands: np.ndarray

    def bounds(self) -> np.ndarray:
        """Return where each shard's documents begin, and the end of the last."""
        return np.searchsorted(self.shard, np.arange(len(self.shards) + 1))


def _read_signed(project: Project, shards: Sequence[str]) -> _Signed:
    paths = [project.present("minhash_signatures", s).path(SIGNATURE_FILE) for s in shards]
    counts = [pq.read_metadata(path).num_rows for path in paths]
    total, dedup, start = sum(counts), project.settings.dedup, 0
    signature = np.empty((total, dedup.permutations), np.uint32)
    bands = np.empty((total, dedup.bands), np.uint64)
    frames = []
    for path, count in zip(paths, counts, strict=True):
        table = pq.read_table(path).sort_by("row")
        _fill(signature[start : start + count], table["signature"])
        _fill(bands[start : start + count], table["bands"])
        frames.append(pl.DataFrame(table.select(["row", "id", "digest"])))
        start += count
    whole = pl.concat(frames)
    return _Signed(
        shards=shards,
        shard=np.repeat(np.arange(len(shards)), counts),
        row=whole["row"].to_numpy(),
        id=whole["id"],
        digest=whole["digest"],
        signature=signature,
        bands=bands,
    )


def _fill(target: np.ndarray, column: pa.ChunkedArray) -> None:
    """Copy a column of little-endian values into a matrix."""
    start, little_endian = 0, target.dtype.newbyteorder("<").str
    for chunk in column.chunks:
        target[start : start + len(chunk)] = fixed_matrix(chunk, little_endian, target.shape[1])
        start += len(chunk)


def _cluster(
    project: Project, signed: _Signed, progress: Progress
) -> tuple[pa.Table, pa.Table, dict[str, object]]:
    """Return the cluster table, the edge table and the counted flow."""
    dedup, split = project.settings.dedup, project.settings.split
    representative = collapse_exact(signed.digest)
    firsts = np.flatnonzero(representative == np.arange(len(representative)))
    candidates = candidate_pairs(signed.bands[firsts], cap=BUCKET_CAP)
    pairs = prefilter(firsts[candidates.pairs], signed.signature, dedup.threshold)
    with _shingles(project, signed, pairs, progress) as shingles:
        edges = verify(pairs, shingles.of, dedup.threshold)
        decisions = decide(
            representative,
            edges,
            keep=dedup.keep,
            similarity_of=lambda a, b: jaccard(shingles.of(a), shingles.of(b)),
        )
    oldest = _of_oldest_crawl(signed)
    splits = assign_split(
        signed.digest, decisions.kept, oldest, share=split.validation, seed=split.seed
    )
    counts = _counts(decisions, edges, candidates.capped_buckets, splits, len(pairs))
    return _cluster_table(signed, decisions, splits), _edge_table(signed, edges), counts


def _shingles(
    project: Project, signed: _Signed, pairs: np.ndarray, progress: Progress
) -> ShinglesOnDisk:
    """Gather the shingles of all documents that stand in a pair."""
    involved = np.unique(pairs)
    pieces = []
    by_shard = np.split(involved, np.searchsorted(involved, signed.bounds()[1:-1]))
    for shard, documents in zip(signed.shards, by_shard, strict=True):
        path = project.present("cleaned_documents", shard).path(DOCUMENTS)
        pieces.append((path, documents, signed.row[documents]))
    scratch = project.store.root / "scratch" / ASSET
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed; the lease is ours
    return gather_shingles(
        pieces, scratch, dedup=project.settings.dedup, workers=project.workers, progress=progress
    )


def _of_oldest_crawl(signed: _Signed) -> np.ndarray:
    """Return a mask of the documents of the oldest crawl that has any."""
    crawls = np.array([s.split("/", 1)[0] for s in signed.shards] or [""])
    if not len(signed.shard):
        return np.zeros(0, np.bool_)
    oldest = crawls[signed.shard[0]]
    return (crawls == oldest)[signed.shard]


def _counts(
    decisions: Decisions, edges: Edges, capped: int, splits: np.ndarray, compared: int
) -> dict[str, object]:
    return {
        "documents": len(decisions.kept),
        "kept": int(decisions.kept.sum()),
        "exact_copies": int((decisions.kind == EXACT).sum()),
        "near_copies": int((decisions.kind == NEAR).sum()),
        "train": int((splits == "train").sum()),
        "validation": int((splits == "validation").sum()),
        "pairs_compared": compared,
        "edges": len(edges.pairs),
        "capped_buckets": capped,
        "largest_cluster": int(decisions.cluster_size.max(initial=0)),
        "least_similarity": decisions.least_similarity,
    }


def _cluster_table(signed: _Signed, decisions: Decisions, splits: np.ndarray) -> pa.Table:
    dropped = ~decisions.kept
    twin = np.where(dropped, decisions.twin, 0)
    names = pa.array(signed.shards or [""], pa.string())
    ids = signed.id.to_arrow().cast(pa.string())
    none = ~dropped
    columns = {
        "shard": names.take(pa.array(signed.shard)),
        "row": pa.array(signed.row, pa.int64()),
        "id": ids,
        "cluster": pa.array(decisions.cluster, pa.int64()),
        "cluster_size": pa.array(decisions.cluster_size, pa.int64()),
        "kept": pa.array(decisions.kept),
        "kind": pa.array([KINDS[k] for k in decisions.kind.tolist()], pa.string()),
        "twin_shard": names.take(pa.array(signed.shard[twin], mask=none)) if len(twin) else [],
        "twin_row": pa.array(signed.row[twin] if len(twin) else [], pa.int64(), mask=none),
        "twin_id": ids.take(pa.array(twin, mask=none)) if len(twin) else [],
        "similarity": pa.array(decisions.similarity, pa.float64(), mask=none),
        "split": pa.array(splits.tolist(), pa.string()),
    }
    return pa.table(columns, schema=CLUSTERS)


def _edge_table(signed: _Signed, edges: Edges) -> pa.Table:
    names = pa.array(signed.shards or [""], pa.string())
    a, b = edges.pairs[:, 0], edges.pairs[:, 1]
    columns = {
        "shard_a": names.take(pa.array(signed.shard[a])),
        "row_a": signed.row[a],
        "shard_b": names.take(pa.array(signed.shard[b])),
        "row_b": signed.row[b],
        "similarity": edges.similarity,
    }
    return pa.table(columns, schema=EDGES)


def _settings(project: Project, _: str | None) -> Json:
    dedup, split = project.settings.dedup, project.settings.split
    return {
        "dedup": dedup.model_dump(include={"shingle", "width", "threshold", "keep"}),
        "split": split.model_dump(),
        "bucket_cap": BUCKET_CAP,
    }


def _inputs(project: Project, _: str | None) -> dict[str, str]:
    asset = "minhash_signatures"
    included = included_shards(project)
    signed = {f"{asset}[{shard}]": project.content(asset, shard) for shard in included.shards}
    return {**signed, **left_out_inputs(included.excluded)}


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=measure_clusters,
    unsettled=_unsettled,
)
