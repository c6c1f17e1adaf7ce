"""dedup_clusters: decides over all shards which documents are kept, and why each other one is not.

One row per cleaned document, the verified edges beside it, and per shard a verdict file of its own
that is published only when (row, kept, split) of the shard changed. How pairs are found and judged
stands in `dedup`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.dedup.bands import candidate_pairs
from corpus_platform.dedup.clusters import EXACT, KEPT, NEAR, Decisions, collapse_exact, decide
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.dedup.split import assign_split
from corpus_platform.dedup.verification import Edges, jaccard, prefilter, verify
from corpus_platform.document import CLUSTERS, EDGES
from corpus_platform.errors import Uncleared
from corpus_platform.stages.cleaned_documents import DOCUMENTS, language_counts
from corpus_platform.stages.dedup_verdicts import (
    VERDICT_FILE,
    latest_path,
    publish_verdict,
    verdict_table,
)
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.shingles_on_disk import ShinglesOnDisk, gather_shingles
from corpus_platform.stages.tables import write_table
from corpus_platform.stages.uncleared import included_shards
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import publish_bytes, read_if_there
from corpus_platform.storage.manifest import Json
from corpus_platform.text.folding import fold

__all__ = ["CLUSTER_FILE", "EDGE_FILE", "STAGE", "cluster_documents"]

ASSET = "dedup_clusters"
CLUSTER_FILE, EDGE_FILE = "clusters.parquet", "edges.parquet"
BUCKET_CAP = 64  # members of a bucket that a document is compared with
SAMPLED_TWINS = 50  # dropped documents whose similarity the audit computes from the texts
KINDS = {KEPT: None, EXACT: "exact", NEAR: "near"}


def cluster_documents(project: Project, *, progress: Progress = quiet) -> Report:
    """Cluster all cleared shards and publish the verdicts; do nothing when that is done.

    Raises Uncleared (gate `uncleared`) when more shards are left out than the settings allow.
    """
    with project.making(ASSET, None) as making:
        included = included_shards(project)
        report = making.current()
        if report is None or _missing_verdict(project, report.artifact):
            signed = _read_signed(project, included.shards)
            table, edges, counts = _cluster(project, signed, progress)
            with making.draft() as draft:
                products = [
                    Product(CLUSTER_FILE, rows=write_table(draft / CLUSTER_FILE, table)),
                    Product(EDGE_FILE, rows=write_table(draft / EDGE_FILE, edges)),
                ]
                verdicts = {s: publish_verdict(project, s, table) for s in included.shards}
                ledger = {
                    **counts,
                    "shards": len(included.shards) + len(included.excluded),
                    "excluded": included.excluded,
                    "verdicts": verdicts,
                }
                report = making.publish(draft, products, ledger=ledger)
        _point_to(project, report)
    return report


def _missing_verdict(project: Project, artifact: Artifact) -> str | None:
    """Return a shard whose verdict is not there or not whole, None where all are."""
    for shard, key in artifact.manifest.ledger["verdicts"].items():
        found = project.store.find("dedup_verdicts", shard, key)
        if found is None or project.store.damage(found):
            return shard
    return None


def _pointer(artifact: Artifact) -> bytes:
    return (json.dumps({"key": artifact.entry.key}) + "\n").encode()


def _point_to(project: Project, report: Report) -> None:
    if read_if_there(latest_path(project)) != _pointer(report.artifact):
        publish_bytes(latest_path(project), _pointer(report.artifact))


def _unsettled(project: Project, artifact: Artifact) -> str | None:
    if read_if_there(latest_path(project)) != _pointer(artifact):
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


def _read_signed(project: Project, shards: Sequence[str]) -> _Signed:
    frames = []
    for index, shard in enumerate(shards):
        path = project.present("minhash_signatures", shard).path(SIGNATURE_FILE)
        frame = pl.read_parquet(path).with_columns(shard=pl.lit(index, pl.Int64))
        frames.append(frame.sort("row"))
    whole = pl.concat(frames)
    dedup = project.settings.dedup
    return _Signed(
        shards=shards,
        shard=whole["shard"].to_numpy(),
        row=whole["row"].to_numpy(),
        id=whole["id"],
        digest=whole["digest"],
        signature=_matrix(whole["signature"], "<u4", dedup.permutations),
        bands=_matrix(whole["bands"], "<u8", dedup.bands),
    )


def _matrix(column: pl.Series, dtype: str, width: int) -> np.ndarray:
    return np.frombuffer(b"".join(column.to_list()), dtype).reshape(-1, width)


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
    for index, shard in enumerate(signed.shards):
        documents = involved[signed.shard[involved] == index]
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


def _audit(project: Project, _: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    table = pl.read_parquet(folder / CLUSTER_FILE)
    dropped = table.filter(~pl.col("kept"))
    included, registered = list(ledger["verdicts"]), set(project.shards())
    lost = registered.symmetric_difference([*included, *ledger["excluded"]])
    cleaned = _cleaned(project, included)
    return {
        "documents": len(table),
        "kept": int(table["kept"].sum()),
        "exact_copies": int((table["kind"] == "exact").sum()),
        "near_copies": int((table["kind"] == "near").sum()),
        "train": int((table["split"] == "train").sum()),
        "validation": int((table["split"] == "validation").sum()),
        "unaccounted": _unaccounted(table, cleaned) + len(lost),
        "bad_twins": _bad_twins(table, dropped, project),
        "wrong_similarities": _wrong_similarities(project, dropped),
        "bad_splits": _bad_splits(table, project, included),
        "bad_verdicts": sum(
            _bad_verdict(project, s, k, table) for s, k in ledger["verdicts"].items()
        ),
        "shards": len(registered),
        "uncleared": len(registered.difference(included)),
        "edges": pl.scan_parquet(folder / EDGE_FILE).select(pl.len()).collect().item(),
        "largest_cluster": int(table["cluster_size"].to_numpy().max(initial=0)),
        "least_similarity": float(dropped["similarity"].drop_nulls().to_numpy().min(initial=1.0)),
        **dict(_languages(project, included, cleaned.join(table, on=["shard", "row"], how="semi"))),
    }


def _cleaned(project: Project, shards: Sequence[str]) -> pl.DataFrame:
    """Return shard, row and language of every document that passed the rules."""
    columns = ["row", "lang", "lang_score"]
    return pl.concat(
        pl.read_parquet(
            project.present("cleaned_documents", shard).path(DOCUMENTS), columns=columns
        ).with_columns(shard=pl.lit(shard))
        for shard in shards
    )


def _unaccounted(table: pl.DataFrame, cleaned: pl.DataFrame) -> int:
    """Count documents that are not one row of the table, and rows that say neither or both."""
    key = ["shard", "row"]
    missing = len(cleaned.join(table, on=key, how="anti"))
    foreign = len(table.join(cleaned, on=key, how="anti"))
    twice = len(table) - table.select(key).n_unique()
    unclear = table.select((pl.col("kept") == pl.col("kind").is_not_null()).sum()).item()
    return missing + foreign + twice + int(unclear)


def _languages(
    project: Project, shards: Sequence[str], found: pl.DataFrame
) -> Iterator[tuple[str, float]]:
    """Yield the documents of each language that came into cleaning, and that are in the table."""
    documents: Counter[str] = Counter()
    for shard in shards:
        numbers = project.present("cleaned_documents", shard).numbers
        documents.update({n: int(v) for n, v in numbers.items() if n.startswith("language/")})
    in_table = language_counts(found)
    for name, count in sorted(documents.items()):
        if name.endswith("/documents"):
            yield name, count
            language = name.removeprefix("language/").removesuffix("/documents")
            yield f"language/{language}/kept", in_table[language]


def _bad_twins(table: pl.DataFrame, dropped: pl.DataFrame, project: Project) -> int:
    """Count dropped documents whose twin is not a kept document or not similar enough.

    Under `one_per_cluster` a dropped document need only be in the cluster of its twin.
    """
    dedup = project.settings.dedup
    kept = table.filter("kept").select("shard", "row", twin_cluster="cluster", has_twin=True)
    joined = dropped.join(
        kept, left_on=["twin_shard", "twin_row"], right_on=["shard", "row"], how="left"
    )
    similar = pl.col("similarity").is_between(dedup.threshold, 1.0)  # and no NaN
    if dedup.keep == "one_per_cluster":
        similar = pl.col("similarity").is_not_null() & (pl.col("cluster") == pl.col("twin_cluster"))
    good = pl.col("has_twin").fill_null(value=False) & similar.fill_null(value=False)
    return int(joined.select((~good).sum()).item())


def _wrong_similarities(project: Project, dropped: pl.DataFrame) -> int:
    """Count sampled dropped documents whose stored similarity is not that of the two texts."""
    sample = dropped.sort("cluster", "shard", "row")
    if len(sample) > SAMPLED_TWINS:
        sample = sample.gather_every(len(sample) // SAMPLED_TWINS).head(SAMPLED_TWINS)
    wanted = [
        *sample.select("shard", "row").iter_rows(),
        *sample.select("twin_shard", "twin_row").iter_rows(),
    ]
    shingles = dict(_shingles_of(project, wanted))
    wrong = 0
    columns = ("shard", "row", "twin_shard", "twin_row", "similarity", "kind")
    for shard, row, twin_shard, twin_row, similarity, kind in sample.select(columns).iter_rows():
        a, b = shingles.get((shard, row)), shingles.get((twin_shard, twin_row))
        wrong += a is None or b is None or not abs(jaccard(a, b) - (similarity or 0.0)) <= 1e-9
        wrong += kind == "exact" and similarity is None
    return wrong


def _shingles_of(
    project: Project, wanted: Sequence[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    dedup = project.settings.dedup
    for shard in sorted({s for s, _ in wanted if s is not None}):
        try:
            path = project.present("cleaned_documents", shard).path(DOCUMENTS)
        except Uncleared:
            continue  # counted as wrong: the twin is in no shard we know
        rows = [r for s, r in wanted if s == shard]
        found = (
            pl.scan_parquet(path).filter(pl.col("row").is_in(rows)).select("row", "text").collect()
        )
        for row, text in found.iter_rows():
            yield (shard, row), shingle_hashes(fold(text), kind=dedup.shingle, width=dedup.width)


def _bad_splits(table: pl.DataFrame, project: Project, shards: Sequence[str]) -> int:
    """Count documents in another split than their content gives, and that none is held out."""
    digests = pl.concat(
        pl.read_parquet(
            project.present("minhash_signatures", shard).path(SIGNATURE_FILE),
            columns=["row", "digest"],
        ).with_columns(shard=pl.lit(shard))
        for shard in shards
    )
    rows = table.join(digests, on=["shard", "row"], how="left", maintain_order="left")
    crawl = rows["shard"].str.split("/").list.first()
    split = project.settings.split
    wanted = assign_split(
        rows["digest"].fill_null(b""),
        rows["kept"].to_numpy(),
        (crawl == crawl.min()).to_numpy(),
        share=split.validation,
        seed=split.seed,
    )
    wrong = int(pl.Series(wanted.tolist(), dtype=pl.String).ne_missing(rows["split"]).sum())
    none_held_out = split.validation > 0 and "validation" not in set(table["split"])
    return wrong + int(none_held_out and bool(table["kept"].any()))


def _bad_verdict(project: Project, shard: str, key: str, table: pl.DataFrame) -> int:
    found = project.store.find("dedup_verdicts", shard, key)
    if found is None or project.store.damage(found):
        return 1
    wanted = pl.DataFrame(verdict_table(table.filter(pl.col("shard") == shard).to_arrow()))
    return int(not pl.read_parquet(found.path(VERDICT_FILE)).equals(wanted))


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
    return {**signed, **{f"left_out[{shard}]": why for shard, why in included.excluded.items()}}


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=_audit,
    unsettled=_unsettled,
)
