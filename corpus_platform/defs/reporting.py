"""How a stage's report reaches the UI: numbers as metadata that plots, refusals as failures."""

from collections.abc import Callable, Iterator, Mapping

import dagster as dg

from corpus_platform.defs.progress import progress_of
from corpus_platform.errors import CorpusError, Uncleared
from corpus_platform.stages.project import Progress, Report

__all__ = ["materialize", "numbers_metadata"]

SHARES = (
    ("kept_share", "kept", "documents"),
    ("quarantined_share", "quarantined", "lines"),
    ("exact_copy_share", "exact_copies", "documents"),
    ("near_copy_share", "near_copies", "documents"),
)
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
        ) from None  # all is said: a second stack trace would bury it in the run's log
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
    """Return numbers under stable names, after the shares that a person looks at first."""
    whole = [*_shares(numbers), *numbers.items()]
    return dict(whole[:MAX_NUMBERS])


def _shares(numbers: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, part, total in SHARES:
        if part in numbers and numbers.get(total):
            yield name, numbers[part] / numbers[total]
    for name, value in numbers.items():
        if name.startswith("dropped/") and numbers.get("documents"):
            yield f"drop_rate/{name.removeprefix('dropped/')}", value / numbers["documents"]
