"""How a stage's report reaches the UI: numbers as metadata that plots, refusals as failures."""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import Protocol

import dagster as dg

from corpus_platform.defs.progress import progress_of
from corpus_platform.defs.resources import Corpus
from corpus_platform.errors import CorpusError, StorageError, Uncleared
from corpus_platform.stages.project import Progress, Project, Report

__all__ = ["materialize_shard", "materialize_whole", "numbers_metadata"]

SHARES = (
    ("kept_share", "kept", "documents"),
    ("quarantined_share", "quarantined", "lines"),
    ("exact_copy_share", "exact_copies", "documents"),
    ("near_copy_share", "near_copies", "documents"),
)
MAX_NUMBERS = 200  # each event is a row of the event log


class ShardStage(Protocol):
    """A stage that makes the artifact of one shard."""

    def __call__(self, project: Project, key: str, /, *, progress: Progress) -> Report: ...


class WholeStage(Protocol):
    """A stage over all shards."""

    def __call__(self, project: Project, /, *, progress: Progress) -> Report: ...


def materialize_shard(
    context: dg.AssetExecutionContext, corpus: Corpus, stage: ShardStage
) -> dg.MaterializeResult:
    """Run a stage for the partition of the step; a refusal fails the step without retries."""
    project, key = _project(context, corpus), context.partition_key
    with _told(context, project):
        return _result(context, stage(project, key, progress=progress_of(context)))


def materialize_whole(
    context: dg.AssetExecutionContext, corpus: Corpus, stage: WholeStage
) -> dg.MaterializeResult:
    """Run a stage over all shards; a refusal fails the step without retries."""
    project = _project(context, corpus)
    with _told(context, project):
        return _result(context, stage(project, progress=progress_of(context)))


def _project(context: dg.AssetExecutionContext, corpus: Corpus) -> Project:
    return corpus.project(waiting=lambda who: context.log.info(f"waiting for {who}"))


@contextlib.contextmanager
def _told(context: dg.AssetExecutionContext, project: Project) -> Generator[None]:
    """Turn errors of ours into failures of the step; only a store that failed is worth a retry."""
    try:
        yield
    except Uncleared as refusal:
        raise dg.Failure(
            description=str(refusal), metadata=_refusal(project, refusal), allow_retries=False
        ) from None  # all is said: a second stack trace would bury it in the run's log
    except CorpusError as error:
        retry = isinstance(error, StorageError)
        raise dg.Failure(description=str(error), allow_retries=retry) from error
    except Exception as error:  # a fault of the code, which the asset's retries would only repeat
        words = f"{type(error).__name__}: {error}".strip()
        raise dg.Failure(description=words, allow_retries=False) from error


def _refusal(project: Project, refusal: Uncleared) -> dict[str, str]:
    """Return what names a refusal; `content` is that of the artifact that was refused, if any."""
    refused = project.artifact(refusal.asset, refusal.partition)
    return {
        "asset": refusal.asset,
        "partition": refusal.partition or "",
        "gate": refusal.gate,
        "reason": refusal.reason,
        "content": refused.content if refused is not None else "",
    }


def _result(context: dg.AssetExecutionContext, report: Report) -> dg.MaterializeResult:
    if not report.made:
        context.log.info("already there and current: nothing was done")
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
