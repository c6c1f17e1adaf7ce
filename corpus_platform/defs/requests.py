"""Requests for runs that nobody makes twice: what is at work already, and under which key to ask.

Dagster makes one run per run key, whatever becomes of it. So a key names the night, what is wanted
and the attempt: the next night tries again what failed, a killed daemon does not.
"""

import time

import dagster as dg

from corpus_platform.defs.jobs import JOB_OF
from corpus_platform.stages.chain import CHAIN

__all__ = ["NIGHT_TAG", "at_work", "last_run", "request"]

NIGHT_TAG = "corpus/night"  # the night that a run was asked for in
WANTED_TAG = "corpus/wanted"
ATTEMPTS = 3  # of what succeeds, and is wanted again in the same night
LOOKED_AT = 100  # runs; whether any is at work is all that is asked
STARTS_WITHIN_SECONDS = 600.0  # a run that is created and not queued for longer was left by a crash
AT_WORK = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def at_work(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return runs that make something of the chain now or will soon; the newest hundred at most."""
    queued = instance.get_run_records(dg.RunsFilter(statuses=list(AT_WORK)), limit=LOOKED_AT)
    created = instance.get_run_records(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED]), limit=LOOKED_AT
    )
    recent = time.time() - STARTS_WITHIN_SECONDS
    created = [r for r in created if r.create_timestamp.timestamp() > recent]
    return [r.dagster_run for r in [*queued, *created] if _makes_something(r.dagster_run)]


def _makes_something(run: dg.DagsterRun) -> bool:
    if run.asset_selection is None:
        return run.job_name in JOB_OF.values()
    return any(key.to_user_string() in CHAIN for key in run.asset_selection)


def last_run(instance: dg.DagsterInstance, job: str, partition: str | None) -> dg.DagsterRun | None:
    """Return the newest run of a job for a partition."""
    tags = {} if partition is None else {"dagster/partition": partition}
    found = instance.get_runs(dg.RunsFilter(job_name=job, tags=tags), limit=1)
    return found[0] if found else None


def request(
    instance: dg.DagsterInstance,
    *,
    night: str,
    job: str,
    partition: str | None,
    wanted: str,
) -> dg.RunRequest | None:
    """Return the request for a run; None when this night's run for what is wanted failed.

    `wanted` names the generation, or why it is to be made.
    """
    name = "/".join((night, job, partition or "", wanted))
    before = instance.get_runs(dg.RunsFilter(tags={WANTED_TAG: name}), limit=ATTEMPTS)
    if len(before) == ATTEMPTS or (before and not before[0].is_success):
        return None
    return dg.RunRequest(
        run_key=f"{name}/{len(before)}",
        job_name=job,
        partition_key=partition,
        tags={WANTED_TAG: name, NIGHT_TAG: night},
    )
