"""The reports of packed_bins and shuffled_bins as metadata: sections to read, numbers that plot."""

from pathlib import Path

import dagster as dg
import polars as pl

from corpus_platform.reports.packing import (
    Lengths,
    ShardTokens,
    plotted_numbers,
    release_sections,
    sections,
)
from corpus_platform.reports.release import acceptance_section
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.release_audit import DOCUMENTS
from corpus_platform.stages.release_report import REPORT_FILE
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import read_if_there

__all__ = ["packing_metadata", "release_metadata"]

Metadata = dict[str, dg.MetadataValue | str | float]


def packing_metadata(artifact: Artifact) -> Metadata:
    """Return the report of the pack of one shard."""
    lengths = _lengths(artifact.path(PACKED_DOCUMENTS))
    return _metadata(
        plotted_numbers(artifact.numbers, lengths), sections(artifact.numbers, lengths)
    )


def release_metadata(artifact: Artifact) -> Metadata:
    """Return the report of a release."""
    path = artifact.path(DOCUMENTS)
    lengths, shards = _lengths(path), _shards(path)
    shown = release_sections(artifact.numbers, lengths, shards)
    return _metadata(plotted_numbers(artifact.numbers, lengths), _acceptance(artifact) | shown)


def _acceptance(artifact: Artifact) -> dict[str, str]:
    """Return the acceptance list of REPORT.md; releases made before there was one have none."""
    report = read_if_there(artifact.path(REPORT_FILE)) or b""
    found = acceptance_section(report.decode())
    return {} if found is None else {"acceptance": found}


def _metadata(numbers: dict[str, float], shown: dict[str, str]) -> Metadata:
    return {
        **numbers,
        **{f"report/{name}": dg.MetadataValue.md(text) for name, text in shown.items()},
    }


def _lengths(path: Path) -> Lengths:
    """Return how many documents have how many tokens; only those in pieces are put together."""
    lines = pl.scan_parquet(path).select("shard", "row", "offset", "tokens")
    ends = (
        lines.filter(pl.col("offset") > 0)
        .group_by("shard", "row")
        .agg(end=(pl.col("offset") + pl.col("tokens")).max())
    )
    counted = (
        lines.filter(pl.col("offset") == 0)
        .join(ends, on=["shard", "row"], how="left")
        .group_by(length=pl.coalesce("end", "tokens"))
        .len("documents")
        .sort("length")
    )
    return counted.collect(engine="streaming").rows()


def _shards(path: Path) -> ShardTokens:
    """Return documents and tokens of each shard."""
    counted = (
        pl.scan_parquet(path)
        .group_by("shard")
        .agg(documents=(pl.col("offset") == 0).sum(), tokens=pl.col("tokens").sum())
    )
    return counted.collect(engine="streaming").rows()
