"""Requests for runs that nobody makes twice: what is at work already, and under which key to ask.

Dagster makes one run per run key, whatever becomes of it. So a key names the night, what is wanted
and the attempt: the next night tries again what failed, a killed daemon does not.
"""

import datetime
import time
from collections.abc import Sequence

import dagster as dg

from corpus_platform.defs.failures import is_retried
from corpus_platform.defs.jobs import INGEST_JOB, JOB_OF
from corpus_platform.defs.resources import Corpus
from corpus_platform.stages.chain import CHAIN

__all__ = ["NIGHT_TAG", "at_work", "last_failed", "request", "tags_of"]

NIGHT_TAG = "corpus/night"  # the night that a run was asked for in
WANTED_TAG = "corpus/wanted"
SETTINGS_TAG = "corpus/settings"  # those in force when a run was asked for
ATTEMPTS = 3  # of what succeeds, and is wanted again in the same night
PAGE = 200  # shards that one query asks for
RUNS_OF_ONE = 20  # on average, among which the newest of each shard of a page is looked for
STARTS_WITHIN_SECONDS = 600.0  # what is announced for longer and not begun was left by a crash
PARTITION_TAG = "dagster/partition"
AT_WORK = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def at_work(instance: dg.DagsterInstance, *, most: int | None = None) -> list[dg.DagsterRun]:
    """Return runs that make something of the chain now or will soon, of the newest `most`."""
    queued = instance.get_runs(dg.RunsFilter(statuses=list(AT_WORK)), limit=most)
    recent = datetime.datetime.fromtimestamp(time.time() - STARTS_WITHIN_SECONDS, tz=datetime.UTC)
    created = dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED], created_after=recent)
    runs = [*queued, *instance.get_runs(created, limit=most), *_announced(instance, recent)]
    return [run for run in runs if _makes_something(run)]


def _announced(instance: dg.DagsterInstance, since: datetime.datetime) -> list[dg.DagsterRun]:
    """Return runs whose process died, and which Dagster will make anew and has not yet."""
    failed = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE],
        tags={"dagster/will_retry": "true"},
        updated_after=since,
    )
    return [run for run in instance.get_runs(failed) if is_retried(instance, run) is None]


def _makes_something(run: dg.DagsterRun) -> bool:
    if run.asset_selection is None:
        return run.job_name in JOB_OF.values()
    return any(key.to_user_string() in CHAIN for key in run.asset_selection)


def tags_of(corpus: Corpus, night: str) -> dict[str, str]:
    """Return the tags of a run that is asked for in a night."""
    return {NIGHT_TAG: night, SETTINGS_TAG: corpus.sha256[:12]}


def last_failed(
    instance: dg.DagsterInstance, shards: Sequence[str], *, under: Corpus | None = None
) -> list[str]:
    """Return those of some shards whose newest ingest run failed or was canceled, longest ago first.

    With `under` only runs count that were asked for by the settings in force now.
    """
    newest: dict[str, dg.RunRecord] = {}
    for first in range(0, len(shards), PAGE):
        some = shards[first : first + PAGE]
        of_these = dg.RunsFilter(job_name=INGEST_JOB, tags={PARTITION_TAG: some})
        for record in instance.get_run_records(of_these, limit=RUNS_OF_ONE * len(some)):
            newest.setdefault(record.dagster_run.tags[PARTITION_TAG], record)
    failed = [
        shard
        for shard, record in newest.items()
        if record.dagster_run.is_failure_or_canceled
        and (under is None or record.dagster_run.tags.get(SETTINGS_TAG) == under.sha256[:12])
    ]
    return sorted(failed, key=lambda shard: newest[shard].create_timestamp)


def request(
    instance: dg.DagsterInstance,
    corpus: Corpus,
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
        tags={WANTED_TAG: name, **tags_of(corpus, night)},
    )
