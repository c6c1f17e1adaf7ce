"""The audit of dedup_clusters: measures the written tables against the documents they speak of.

All rows are held against cleaned documents, exact keys and verdicts; similarities of twins and
edges are computed from the texts for a sample.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.dedup.split import assign_split
from corpus_platform.dedup.verification import jaccard
from corpus_platform.document import VERDICTS
from corpus_platform.errors import Uncleared
from corpus_platform.stages.cleaned_documents import DOCUMENTS, language_counts
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE, find_verdict, verdict_table
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.project import Project
from corpus_platform.stages.uncleared import may_be_left_out
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Json
from corpus_platform.text.folding import fold

__all__ = ["CLUSTER_FILE", "EDGE_FILE", "measure_clusters"]

CLUSTER_FILE, EDGE_FILE = "clusters.parquet", "edges.parquet"
SAMPLED_PAIRS = 50  # twins, and edges, whose similarity is computed from the texts


def measure_clusters(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of the clusters look at, from the written tables."""
    table = pl.read_parquet(folder / CLUSTER_FILE)
    dropped = table.filter(~pl.col("kept"))
    included, registered = list(ledger["verdicts"]), set(project.shards())
    differing = registered.symmetric_difference([*included, *ledger["excluded"]])
    lost = [shard for shard in differing if not may_be_left_out(project, shard)]
    cleaned = _cleaned(project, included)
    digests = _digests(project, included, table)
    return {
        "documents": len(table),
        "kept": int(table["kept"].sum()),
        "exact_copies": int((table["kind"] == "exact").sum()),
        "near_copies": int((table["kind"] == "near").sum()),
        "train": int((table["split"] == "train").sum()),
        "validation": int((table["split"] == "validation").sum()),
        "unaccounted": _unaccounted(table, cleaned) + len(lost),
        "bad_twins": _bad_twins(table, dropped, project),
        "wrong_copies": _wrong_copies(table, digests),
        "wrong_similarities": _wrong_similarities(project, dropped)
        + _wrong_edges(project, folder / EDGE_FILE),
        "bad_splits": _bad_splits(table, project, digests),
        "bad_verdicts": _bad_verdicts(project, ledger["verdicts"], table),
        "shards": len(registered),
        "uncleared": len(registered.difference(included)),
        "edges": pl.scan_parquet(folder / EDGE_FILE).select(pl.len()).collect().item(),
        "largest_cluster": int(table["cluster_size"].to_numpy().max(initial=0)),
        "least_similarity": _least(dropped["similarity"]),
        **dict(_languages(project, included, cleaned.join(table, on=["shard", "row"], how="semi"))),
    }


def _least(similarities: pl.Series) -> float:
    """Return the lowest one, 1 where there is none; what is no number is a fault of another gate."""
    return float(similarities.drop_nulls().drop_nans().to_numpy().min(initial=1.0))


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


def _wrong_copies(table: pl.DataFrame, digests: pl.Series) -> int:
    """Count rows whose text stood earlier in the table and that are no exact copy, or vice versa.

    So there are as many exact copies as documents less distinct texts.
    """
    again = ~digests.is_first_distinct()
    return int((again != table["kind"].eq_missing("exact")).sum())


def _wrong_similarities(project: Project, dropped: pl.DataFrame) -> int:
    """Count sampled dropped documents whose stored similarity is not that of the two texts."""
    sample = dropped.sort("cluster", "shard", "row")
    sample = sample.gather_every(_step(len(sample))).head(SAMPLED_PAIRS)
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


def _wrong_edges(project: Project, path: Path) -> int:
    """Count edges below the threshold, and sampled ones whose similarity is not the texts'."""
    edges, threshold = pl.scan_parquet(path), project.settings.dedup.threshold
    similar = pl.col("similarity").is_between(threshold, 1.0).fill_null(value=False)
    count, wrong = edges.select(pl.len(), (~similar).sum().alias("wrong")).collect().row(0)
    chosen = pl.col("number") % _step(count) == 0
    sample = edges.with_row_index("number").filter(chosen).head(SAMPLED_PAIRS).collect()
    wanted = [
        *sample.select("shard_a", "row_a").iter_rows(),
        *sample.select("shard_b", "row_b").iter_rows(),
    ]
    shingles = dict(_shingles_of(project, wanted))
    columns = ("shard_a", "row_a", "shard_b", "row_b", "similarity")
    for shard_a, row_a, shard_b, row_b, similarity in sample.select(columns).iter_rows():
        a, b = shingles.get((shard_a, row_a)), shingles.get((shard_b, row_b))
        wrong += a is None or b is None or not abs(jaccard(a, b) - similarity) <= 1e-9
    return int(wrong)


def _step(count: int) -> int:
    """Return how far apart the rows of a sample stand in a table of this many."""
    return max(1, count // SAMPLED_PAIRS)


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


def _digests(project: Project, shards: Sequence[str], table: pl.DataFrame) -> pl.Series:
    """Return the exact key of each row of the table; empty where there is no such document."""
    found = pl.concat(
        pl.read_parquet(
            project.present("minhash_signatures", shard).path(SIGNATURE_FILE),
            columns=["row", "digest"],
        ).with_columns(shard=pl.lit(shard))
        for shard in shards
    )
    key = ["shard", "row"]
    rows = table.select(key).join(found, on=key, how="left", maintain_order="left")
    return rows["digest"].fill_null(b"")


def _bad_splits(table: pl.DataFrame, project: Project, digests: pl.Series) -> int:
    """Count documents in another split than their content gives, and that none is held out."""
    crawl = table["shard"].str.split("/").list.first()
    split = project.settings.split
    wanted = assign_split(
        digests,
        table["kept"].to_numpy(),
        (crawl == crawl.min()).to_numpy(),
        share=split.validation,
        seed=split.seed,
    )
    wrong = int(pl.Series(wanted.tolist(), dtype=pl.String).ne_missing(table["split"]).sum())
    none_held_out = split.validation > 0 and "validation" not in set(table["split"])
    return wrong + int(none_held_out and bool(table["kept"].any()))


def _bad_verdicts(project: Project, verdicts: Mapping[str, str], table: pl.DataFrame) -> int:
    """Count shards whose verdict file is missing, damaged or says other than the table."""
    rows = table.select("shard", *VERDICTS.names).partition_by("shard", as_dict=True)
    none = table.clear()
    return sum(
        _is_bad(find_verdict(project, shard, key), rows.get((shard,), none))
        for shard, key in verdicts.items()
    )


def _is_bad(verdict: Artifact | None, rows: pl.DataFrame) -> bool:
    if verdict is None:
        return True
    wanted = pl.DataFrame(verdict_table(rows.to_arrow()))
    return not pl.read_parquet(verdict.path(VERDICT_FILE)).equals(wanted)
