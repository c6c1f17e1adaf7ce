"""What failed in a run, read from the events that Dagster keeps of it.

A failed check, whatever became of its run; a refusal by a stage; a check that crashed; and, where
none of these is the cause, the run itself. What was told before is no matter of this module.
Runs are read one by one: that keeps their order and costs nothing while none ends, where the
history of checks is paged check by check, and not at all over all runs on SQLite.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import dagster as dg

from corpus_platform.defs.messages import CrashedCheck, Fact, FailedRun, GateFailure

__all__ = ["ENDED", "failures_of", "is_failed_check", "is_retried", "reason_of"]

ENDED = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
TOLD_BY = {
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.RUN_FAILURE,
}
CHECKS = "_gates"  # how the step ends that evaluates the checks of an asset
FAILED_CHECK = "DagsterAssetCheckFailedError"  # how a step ends whose blocking check failed
Kind = TypeVar("Kind", str, float)


def failures_of(instance: dg.DagsterInstance, run: dg.DagsterRun, *, retried: bool) -> list[Fact]:
    """Return what failed in a run; of one that is `retried`, or still at work, what gates say."""
    entries = [
        r.event_log_entry for r in instance.get_records_for_run(run.run_id, of_type=TOLD_BY).records
    ]
    gates = [*_failed_checks(entries), *_refusals(run, entries)]
    if run.status != dg.DagsterRunStatus.FAILURE or retried:
        return [*gates]
    return [*gates, *_other(run, entries)]


def is_retried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool | None:
    """Tell whether Dagster made a failed run anew by itself; None where it only said that it will."""
    if run.tags.get("dagster/will_retry") != "true":
        return False
    if "dagster/auto_retry_run_id" in run.tags:
        return True
    again = dg.RunsFilter(tags={"dagster/parent_run_id": run.run_id})
    return True if instance.get_runs(again, limit=1) else None


def _failed_checks(entries: list[dg.EventLogEntry]) -> Iterator[GateFailure]:
    for entry in entries:
        event = entry.get_dagster_event()
        if event.event_type != dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            continue
        check = event.asset_check_evaluation_data
        if not check.passed:
            yield _failed_check(check, entry)


def _failed_check(check: dg.AssetCheckEvaluation, entry: dg.EventLogEntry) -> GateFailure:
    said = check.metadata
    return GateFailure(
        asset=check.asset_key.to_user_string(),
        partition=check.partition or _value(said, "partition", str),
        gate=check.check_name,
        reason=_value(said, "reason", str) or check.description or "failed",
        content=_value(said, "content", str) or "",
        run_id=entry.run_id,
        at=entry.timestamp,
        severity=check.severity.value,
        value=_value(said, "value", float),
        limit=_value(said, "limit", float),
        waived=_value(said, "waived", str),
    )


def _refusals(run: dg.DagsterRun, entries: list[dg.EventLogEntry]) -> Iterator[GateFailure]:
    """Yield the gates for which stages refused to read an artifact."""
    for entry in entries:
        event = entry.get_dagster_event()
        given = _refusal_metadata(event)
        if given is not None:
            yield GateFailure(
                asset=_value(given, "asset", str) or event.step_key or "",
                partition=_value(given, "partition", str) or None,
                gate=_value(given, "gate", str) or "",
                reason=_value(given, "reason", str) or "refused",
                content=_value(given, "content", str) or "",
                run_id=run.run_id,
                at=entry.timestamp,
                refused_in=run.tags.get("dagster/partition", ""),
            )


def _refusal_metadata(event: dg.DagsterEvent) -> Mapping[str, dg.MetadataValue] | None:
    if event.event_type != dg.DagsterEventType.STEP_FAILURE:
        return None
    given = event.step_failure_data.user_failure_data
    if given is None or _value(given.metadata, "gate", str) is None:
        return None
    return given.metadata


def _other(run: dg.DagsterRun, entries: list[dg.EventLogEntry]) -> Iterator[Fact]:
    """Yield crashed checks, and the run once where a step or the run failed for no gate's sake."""
    whole, failed_steps = None, 0
    for entry in entries:
        event = entry.get_dagster_event()
        if event.event_type != dg.DagsterEventType.STEP_FAILURE:
            continue
        failed_steps += 1
        if _refusal_metadata(event) is not None or is_failed_check(event):
            continue
        step, partition = event.step_key or "", run.tags.get("dagster/partition")
        reason, asset = reason_of(event), step.removesuffix(CHECKS)
        if asset != step:
            yield CrashedCheck(asset, partition, step, reason, run.run_id, entry.timestamp)
        elif whole is None:
            whole = FailedRun(run.job_name, step, partition, reason, run.run_id, entry.timestamp)
    if whole is None and not failed_steps:
        whole = _without_steps(run, entries)
    if whole is not None:
        yield whole


def _without_steps(run: dg.DagsterRun, entries: list[dg.EventLogEntry]) -> FailedRun | None:
    """Return a run that failed outside its steps: it could not start, or its process died."""
    for entry in entries:
        event = entry.get_dagster_event()
        if event.event_type == dg.DagsterEventType.RUN_FAILURE:
            reason = event.message or "it ended without a reason"
            partition = run.tags.get("dagster/partition")
            return FailedRun(run.job_name, None, partition, reason, run.run_id, entry.timestamp)
    return None


def is_failed_check(event: dg.DagsterEvent) -> bool:
    """Tell whether a step failed only because a blocking check that it evaluated did."""
    error = event.step_failure_data.error
    return error is not None and error.cls_name == FAILED_CHECK


def reason_of(event: dg.DagsterEvent) -> str:
    """Return what a step said when it failed, else the error behind it; its trace stays there."""
    given, error = event.step_failure_data.user_failure_data, event.step_failure_data.error
    if given is not None and given.description:
        return given.description
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message.strip() if error is not None else "failed without an error"


def _value(said: Mapping[str, dg.MetadataValue], name: str, kind: type[Kind]) -> Kind | None:
    """Return a value of metadata, None where it is not there or of another kind."""
    value = said[name].value if name in said else None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    return value if isinstance(value, kind) else None
