"""How a stage's report reaches the UI: numbers as metadata that plots, refusals as failures."""

import contextlib
from collections.abc import Generator
from typing import Protocol

import dagster as dg
import pyarrow.parquet as pq

from corpus_platform.defs.columns import lineage_metadata
from corpus_platform.defs.dedup_report import dedup_metadata
from corpus_platform.defs.numbers import shown_numbers
from corpus_platform.defs.packing_report import packing_metadata, release_metadata
from corpus_platform.defs.progress import progress_of
from corpus_platform.defs.resources import Corpus
from corpus_platform.errors import CorpusError, StorageError, Uncleared, split_place
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.project import Progress, Project, Report
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Manifest

__all__ = ["materialize_shard", "materialize_whole", "verdict_metadata"]

Metadata = dict[str, dg.MetadataValue | str | float]


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
        return _result(context, project, stage(project, key, progress=progress_of(context)))


def materialize_whole(
    context: dg.AssetExecutionContext, corpus: Corpus, stage: WholeStage
) -> dg.MaterializeResult:
    """Run a stage over all shards; a refusal fails the step without retries."""
    project = _project(context, corpus)
    with _told(context, project):
        return _result(context, project, stage(project, progress=progress_of(context)))


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


def _refusal(project: Project, refusal: Uncleared) -> Metadata:
    """Return what names a refusal; `content` is that of the artifact that was refused, if any."""
    refused = project.artifact(refusal.asset, refusal.partition)
    return {
        "asset": refusal.asset,
        "partition": refusal.partition or "",
        "gate": refusal.gate,
        "reason": refusal.reason,
        "content": refused.content if refused is not None else "",
        **(_places(refused) if refused is not None else {}),
    }


def _result(
    context: dg.AssetExecutionContext, project: Project, report: Report
) -> dg.MaterializeResult:
    if not report.made:
        context.log.info("already there and current: nothing was done")
    artifact, manifest = report.artifact, report.artifact.manifest
    seconds = float(manifest.measured.get("seconds", 0.0))
    bytes_in = _bytes_in(project, manifest)
    length = project.settings.pack.sequence_length
    metadata: Metadata = {
        **shown_numbers(
            artifact.numbers, seconds=seconds, bytes_in=bytes_in, sequence_length=length
        ),
        **_places(artifact),
        **lineage_metadata(report.asset),
        **_report_of(report.asset, artifact),
        **({"bytes_in": bytes_in} if bytes_in else {}),
        "bytes_out": sum(o.bytes for o in manifest.outputs),
        "stage_seconds": seconds,
    }
    rows = [o.rows for o in manifest.outputs if o.rows is not None]
    if rows:
        metadata["dagster/row_count"] = rows[0]
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(artifact.content))


def _report_of(asset: str, artifact: Artifact) -> Metadata:
    """Return what an asset has to say beyond its numbers."""
    reports = {
        "dedup_clusters": dedup_metadata,
        "packed_bins": packing_metadata,
        "shuffled_bins": release_metadata,
    }
    return reports[asset](artifact) if asset in reports else {}


def _places(artifact: Artifact) -> Metadata:
    """Return the links from a run to the files it made."""
    return {
        "path": dg.MetadataValue.path(str(artifact.folder)),
        "manifest": dg.MetadataValue.path(str(artifact.manifest_path)),
    }


def verdict_metadata(verdict: Artifact) -> Metadata:
    """Return the numbers of a shard's verdict, from its file."""
    table = pq.read_table(verdict.path(VERDICT_FILE), columns=["kept", "split"])
    splits = table["split"].to_pylist()
    counts = {
        "documents": table.num_rows,
        "kept": sum(table["kept"].to_pylist()),
        "train": splits.count("train"),
        "validation": splits.count("validation"),
    }
    metadata: Metadata = {**shown_numbers(counts)}
    metadata["dagster/row_count"] = table.num_rows
    return metadata | _places(verdict) | lineage_metadata("dedup_verdicts")


def _bytes_in(project: Project, manifest: Manifest) -> int:
    """Return the size of the artifacts that went in, or of the source where none did."""
    if not manifest.inputs:
        return int(manifest.numbers.get("bytes", 0))
    total = 0
    with project.unchanging():
        for name in manifest.inputs:
            asset, shard = split_place(name)
            if asset in project.chain:  # else it names a shard that was left out
                own = manifest.partition if project.chain[asset].per_shard else None
                total += _bytes_of(project.artifact(asset, shard or own))
    return total


def _bytes_of(artifact: Artifact | None) -> int:
    if artifact is None:
        return 0
    return sum(f.bytes for f in artifact.entry.files or artifact.manifest.outputs)
