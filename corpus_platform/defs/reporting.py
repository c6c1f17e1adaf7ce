"""How a stage's report reaches the UI: numbers as metadata that plots, refusals as failures."""

from collections.abc import Callable, Mapping

import dagster as dg

from corpus_platform.defs.progress import progress_of
from corpus_platform.errors import CorpusError, Uncleared
from corpus_platform.stages.project import Progress, Report

__all__ = ["materialize", "numbers_metadata"]

MAX_NUMBERS = 200  # each event is a row of the event log


def materialize(
    context: dg.AssetExecutionContext, stage: Callable[[Progress], Report]
) -> dg.MaterializeResult:
    """Run a stage and return its result; a refusal fails the step without retries."""
    try:
        report = stage(progress_of(context))
    except Uncleared as refusal:
        raise dg.Failure(
            description=str(refusal),
            metadata={
                "asset": refusal.asset,
                "partition": refusal.partition or "",
                "gate": refusal.gate,
                "reason": refusal.reason,
            },
            allow_retries=False,
        ) from refusal
    except CorpusError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    if not report.made:
        context.log.info("already there and current: nothing was done")
    return _result(report)


def _result(report: Report) -> dg.MaterializeResult:
    manifest = report.artifact.manifest
    metadata = numbers_metadata(report.artifact.numbers)
    metadata |= {
        "path": dg.MetadataValue.path(str(report.artifact.folder)),
        "manifest": dg.MetadataValue.path(str(report.artifact.manifest_path)),
        "bytes_out": sum(o.bytes for o in manifest.outputs),
        "stage_seconds": float(manifest.measured.get("seconds", 0.0)),
    }
    rows = [o.rows for o in manifest.outputs if o.rows is not None]
    if rows:
        metadata["dagster/row_count"] = rows[0]
    return dg.MaterializeResult(
        metadata=metadata, data_version=dg.DataVersion(report.artifact.content)
    )


def numbers_metadata(numbers: Mapping[str, float]) -> dict[str, dg.MetadataValue | str | float]:
    """Return numbers under stable names, and each drop as a rate beside its count."""
    metadata: dict[str, dg.MetadataValue | str | float] = dict(list(numbers.items())[:MAX_NUMBERS])
    documents = numbers.get("documents", 0)
    for name, value in numbers.items():
        if name.startswith("dropped/") and documents:
            metadata[f"drop_rate/{name.removeprefix('dropped/')}"] = value / documents
    return metadata
