"""The asset checks: every gate of an asset, judged on numbers measured anew from its files.

All gates of an asset are evaluated in one step, so that each failure is recorded; a failing one
blocks what comes after it in the same run. Other runs are refused by the stages themselves.
Materializing what is current makes nothing anew and has it judged again, by the limits of today.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from corpus_platform.defs.partitions import SHARDS
from corpus_platform.defs.resources import Corpus
from corpus_platform.errors import CorpusError
from corpus_platform.gates import GATES, Finding, unmeasured
from corpus_platform.stages.chain import CHAIN
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact

__all__ = ["build_checks"]


def build_checks(corpus: Corpus) -> Sequence[dg.AssetChecksDefinition]:
    """Return the checks of every asset that has gates."""
    return [_check(corpus, asset) for asset, gates in GATES.items() if gates]


def _check(corpus: Corpus, asset: str) -> dg.AssetChecksDefinition:
    per_shard = CHAIN[asset].per_shard
    specs = [
        dg.AssetCheckSpec(
            gate.name,
            asset=asset,
            description=gate.description,
            blocking=True,
            partitions_def=SHARDS if per_shard else None,
        )
        for gate in GATES[asset]
    ]

    # Dagster's UI can execute checks alone, but not those of one partition.
    @dg.multi_asset_check(name=f"{asset}_gates", specs=specs, can_subset=not per_shard)
    def gates(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        partition = context.partition_key if per_shard else None
        wanted = {key.name for key in context.selected_asset_check_keys}
        project = corpus.project()
        judged = _judged(project, asset, partition)
        for finding in _findings(project, asset, partition):
            if finding.gate in wanted:
                yield _result(asset, partition, finding, judged)

    return gates


def _findings(project: Project, asset: str, partition: str | None) -> list[Finding]:
    """Judge an artifact as it lies there; one that cannot be measured fails every gate."""
    try:
        return project.findings(asset, partition, project.audit(asset, partition))
    except CorpusError as error:
        return unmeasured(asset, str(error))


def _judged(project: Project, asset: str, partition: str | None) -> Artifact | None:
    """Return the artifact judged, None where there is none."""
    try:
        return project.artifact(asset, partition)
    except CorpusError:
        return None


def _result(
    asset: str, partition: str | None, finding: Finding, judged: Artifact | None
) -> dg.AssetCheckResult:
    metadata: dict[str, dg.MetadataValue | str | float] = {
        "reason": finding.reason,
        "content": "" if judged is None else judged.content,  # tells a failure from another
    }
    if judged is not None:
        metadata["path"] = dg.MetadataValue.path(str(judged.folder))
    if partition is not None:
        metadata["partition"] = partition
    if finding.value is not None:
        metadata["value"] = float(finding.value)
    if finding.limit is not None:
        metadata["limit"] = float(finding.limit)
    if finding.waived is not None:
        metadata["waived"] = finding.waived
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=finding.gate,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.WARN if finding.warns else dg.AssetCheckSeverity.ERROR,
        metadata=metadata,
        description=finding.reason,
    )
