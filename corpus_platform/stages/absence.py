"""Why documents of a shard are not in a release: which stage, of those it was made of, left them out."""

import polars as pl

from corpus_platform.stages.project import Project
from corpus_platform.stages.release_makings import Makings, Records

__all__ = ["why_absent"]

UNKNOWN = "unknown"


def why_absent(
    project: Project, makings: Makings, shard: str, documents: pl.DataFrame
) -> pl.DataFrame:
    """Return the documents (row, hash of the id) with `reason` and `detail`.

    Reasons: `retired`, `left_out` (why) and `no_shard` where the shard is none of the release;
    `rule` (its name), `exact_copy` and `near_copy` (crawl of the twin), `quarantined` (the reason of
    the quarantine), `not_in_source`; `unknown` where what the release was made of is gone.
    """
    release = makings.release
    if shard in release.excluded:
        return _all(documents, "left_out", release.excluded[shard])
    if shard not in release.shards:
        known = project.registry.all().get(shard)
        return _all(documents, "retired" if known and known.retired else "no_shard", None)
    records = makings.records(shard)
    if records is None:
        return _all(documents, UNKNOWN, None)
    return _judged(documents, records, makings.copies(shard))


def _all(documents: pl.DataFrame, reason: str, detail: str | None) -> pl.DataFrame:
    return documents.with_columns(reason=pl.lit(reason), detail=pl.lit(detail, pl.String))


def _judged(documents: pl.DataFrame, records: Records, copies: pl.DataFrame | None) -> pl.DataFrame:
    """Find each document among the records: in its row, else by its id, else in quarantine."""
    readable = records.readable.with_columns(place="row")
    by_id = readable.unique("id", keep="first", maintain_order=True).drop("row")
    found = documents.join(readable, on=["row", "id"], how="left", maintain_order="left")
    found = found.join(by_id, on="id", how="left", suffix="_by_id", maintain_order="left")
    is_here = pl.col("place").is_not_null()
    chosen = {n: pl.when(is_here).then(n).otherwise(f"{n}_by_id") for n in ("place", "rule")}
    found = found.with_columns(**chosen)
    found = found.join(_as_copies(copies), on="place", how="left", maintain_order="left")
    quarantine = records.unreadable.rename({"reason": "quarantine"})
    found = found.join(quarantine, on="row", how="left", maintain_order="left")
    return found.select(documents.columns, **_reasons())


def _as_copies(copies: pl.DataFrame | None) -> pl.DataFrame:
    if copies is None:
        schema = {"place": pl.Int64, "kind": pl.String, "twin": pl.String}
        return pl.DataFrame(schema=schema)
    twin = pl.col("twin_shard").str.split("/").list.first()
    return copies.select(place="row", kind=pl.col("kind") + "_copy", twin=twin)


def _reasons() -> dict[str, pl.Expr]:
    is_record, is_copy = pl.col("place").is_not_null(), pl.col("kind").is_not_null()
    is_dropped, is_bad = pl.col("rule").is_not_null(), pl.col("quarantine").is_not_null()
    reason = (
        pl.when(is_dropped)
        .then(pl.lit("rule"))
        .when(is_copy)
        .then("kind")
        .when(is_record)
        .then(pl.lit(UNKNOWN))
        .when(is_bad)
        .then(pl.lit("quarantined"))
        .otherwise(pl.lit("not_in_source"))
    )
    detail = pl.when(is_dropped).then("rule").when(is_copy).then("twin")
    return {"reason": reason, "detail": detail.when(~is_record & is_bad).then("quarantine")}
