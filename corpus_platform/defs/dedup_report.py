"""The report of near-copies as metadata of dedup_clusters: sections to read, numbers that plot."""

import json

import dagster as dg

from corpus_platform.dedup import curves
from corpus_platform.reports.dedup import Curve, DedupReport, Shape, plotted_numbers, sections
from corpus_platform.stages.clusters_files import REPORT_FILE
from corpus_platform.storage.artifacts import Artifact

__all__ = ["dedup_metadata"]

LINE = tuple(i / 40 for i in range(41))


def dedup_metadata(artifact: Artifact) -> dict[str, dg.MetadataValue | str | float]:
    """Return the report of the clusters."""
    report: DedupReport = json.loads(artifact.path(REPORT_FILE).read_bytes())
    shown = sections(report, _curve(report["banding"]))
    return {
        **plotted_numbers(report),
        **{f"report/{name}": dg.MetadataValue.md(text) for name, text in shown.items()},
    }


def _curve(shape: Shape) -> Curve:
    bands, rows, threshold = shape["bands"], shape["rows"], shape["threshold"]
    return Curve(
        points=curves.curve(bands, rows),
        line=curves.curve(bands, rows, LINE),
        half=curves.half_point(bands, rows),
        rise=curves.rise(bands, rows),
        auto=curves.auto_banding(bands * rows, threshold),
        datasketch=curves.datasketch_banding(bands * rows, threshold),
    )
