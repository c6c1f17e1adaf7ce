"""The sensor that carries on: clusters when the shards have settled, then packs, then a release.

It acts on what the planner says is due, one layer at a time, and only while nothing else is at
work; so a shard that was repaired or waived flows on by itself. New and stale shards are the
night's business: here only those are ingested of which a person accepted other bytes, whose
stored copy is damaged, or which a gate had stopped and lets go on now.
"""

import datetime
import time
import zoneinfo
from collections.abc import Iterable, Iterator

import dagster as dg

from corpus_platform.defs.heartbeat import note_heartbeat
from corpus_platform.defs.jobs import INGEST_JOB, JOB_OF
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.nightly import Night, earlier, recall, run_lease_holder
from corpus_platform.defs.registering import add_partitions
from corpus_platform.defs.requests import NIGHT_TAG, at_work, last_failed, request
from corpus_platform.defs.resources import Corpus
from corpus_platform.defs.status import report_status
from corpus_platform.errors import Uncleared
from corpus_platform.planner import INGEST, State, Survey, survey
from corpus_platform.stages.dedup_verdicts import latest_path
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import current_path
from corpus_platform.stages.source_lock import lock_path
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.files import text_sha256

__all__ = ["build_sensor"]

LAYERS = (("dedup_clusters", "tokenizer"), ("packed_bins",), ("shuffled_bins",))
MOST_REQUESTS = 50  # in a tick
MOST_AT_WORK = 100  # runs that are counted
STARTS_WITHIN_SECONDS = 6 * 3600.0  # the runs of a night are all there by then, or never


def build_sensor(corpus: Corpus, jobs: dg.Definitions) -> dg.SensorDefinition:
    """Return the sensor `carry_on`, on from the start; `jobs` are those that it may launch."""

    @dg.sensor(
        name="carry_on",
        jobs=list(jobs.jobs or ()),
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Makes what follows from the shards: clusters, packs, then a release.",
    )
    def carry_on(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if (words := corpus.outdated() or _busy(context.instance, corpus)) is not None:
            return dg.SkipReason(words)
        return _look(context, corpus)

    return carry_on


def _busy(instance: dg.DagsterInstance, corpus: Corpus) -> str | None:
    """Say in words what is at work, None when all has settled."""
    if (holder := run_lease_holder(corpus)) is not None:
        return f"corpus run brings everything up to date: {holder}"
    if runs := at_work(instance, most=MOST_AT_WORK):
        return f"{len(runs)} runs are at work or queued, such as {runs[0].job_name}"
    night = recall(Memory(instance, corpus.name))
    if night is not None and not _all_there(instance, night):
        return f"the runs of the night {night.scheduled} are being started"
    return None


def _all_there(instance: dg.DagsterInstance, night: Night) -> bool:
    """Tell whether every run that a night asked for was created."""
    if abs(time.time() - night.at) > STARTS_WITHIN_SECONDS:  # or the clock was set back
        return True
    of_night = dg.RunsFilter(job_name=INGEST_JOB, tags={NIGHT_TAG: night.scheduled})
    return night.begun and instance.get_runs_count(of_night) >= night.requested


def _look(context: dg.SensorEvaluationContext, corpus: Corpus) -> dg.SensorResult | dg.SkipReason:
    """Request what is due; when nothing is, the nights are over and their heartbeats left."""
    instance, project = context.instance, corpus.project()
    memory = Memory(instance, corpus.name)
    night = recall(memory)
    mark = _mark(instance, corpus, project, night)  # before anything is looked at
    if mark == context.cursor:
        return dg.SkipReason("nothing changed since the last look")
    found = _survey(instance, project)
    report_status(instance, corpus, found)
    name = night.scheduled if night is not None else "by day"
    if requests := _requests(instance, corpus, found, name):
        add_partitions(project, instance)  # the instance may be new
        return dg.SensorResult(run_requests=requests)
    nights, now = [*earlier(memory), night] if night is not None else [], time.time()
    said = [note_heartbeat(memory, project, found, one, at=now) for one in nights]
    settled = f"nothing is to be made; {len(found.blocked)} blocked, {len(found.due)} due"
    words = "\n".join(one for one in said if one is not None) or settled
    return dg.SensorResult(skip_reason=words, cursor=mark)


def _mark(
    instance: dg.DagsterInstance, corpus: Corpus, project: Project, night: Night | None
) -> str:
    """Return what changes whenever something may be due that was not: no artifact is looked at.

    What was damaged or removed by hand is seen in the next night.
    """
    catalogs = sorted((project.store.root / "catalog").glob("*.jsonl"))
    files = [project.store.root / "registry.json", lock_path(project)]
    files += [latest_path(project), current_path(project), *catalogs]
    runs = instance.get_run_records(limit=1, order_by="update_timestamp")
    now = datetime.datetime.now(tz=datetime.UTC)
    # A waiver ends with a day, a week where a release is weekly with one of the schedule's zone.
    days = f"{now.date()} {now.astimezone(_zone(project)).date()}"
    known = [
        corpus.sha256,  # a waiver may let something on
        *(str(stamp(f)) for f in files),
        *(f"{r.dagster_run.run_id} {r.end_time}" for r in runs),
    ]
    return text_sha256("\n".join([*known, days, night.scheduled if night else ""]))


def _survey(instance: dg.DagsterInstance, project: Project) -> Survey:
    """Look at everything; shards whose last run failed hold nobody up until they are tried again."""
    found = survey(project)
    if not found.of("dedup_clusters").waits:
        return found
    waiting = {s.partition for s in found.states if s.asset in INGEST and s.due}
    given_up = set(last_failed(instance, [shard for shard in waiting if shard is not None]))
    return survey(project, given_up=given_up) if given_up else found


def _requests(
    instance: dg.DagsterInstance, corpus: Corpus, found: Survey, night: str
) -> list[dg.RunRequest]:
    """Return the requests for the first layer of which something is to be made."""
    project = corpus.project()
    with project.unchanging():  # each name of a wanted generation is told from those of all shards
        for states in _layers(instance, corpus, project, found):
            requests: dict[tuple[str, str | None], dg.RunRequest] = {}
            for state in states:
                job = JOB_OF[state.asset]
                if (job, state.partition) in requests or len(requests) == MOST_REQUESTS:
                    continue
                wanted = _wanted(project, state)
                where = state.partition
                made = request(
                    instance, corpus, night=night, job=job, partition=where, wanted=wanted
                )
                if made is not None:
                    requests[job, state.partition] = made
            if requests:
                return list(requests.values())
    return []


def _layers(
    instance: dg.DagsterInstance, corpus: Corpus, project: Project, found: Survey
) -> Iterator[Iterable[State]]:
    yield [*_repaired(found), *_waived(instance, corpus, found)]
    for assets in LAYERS:
        ready = [s for s in found.states if s.asset in assets and s.due and not s.waits]
        if ready and (assets != ("shuffled_bins",) or _release_is_due(project)):
            yield ready


def _repaired(found: Survey) -> list[State]:
    """Return the shards of which other bytes were accepted, or whose stored copy is damaged."""
    return [s for s in found.states if s.asset == "raw_shards" and s.due and s.state == "stale"]


def _waived(instance: dg.DagsterInstance, corpus: Corpus, found: Survey) -> list[State]:
    """Return the shards that a gate stopped half-way, and lets go on by the settings of now."""
    halfway = {
        s.partition: s
        for s in found.states
        if s.asset == "minhash_signatures" and s.state == "missing" and s.due and not s.waits
    }
    shards = [shard for shard in halfway if shard is not None]
    tried = set(last_failed(instance, shards, under=corpus))
    return [state for shard, state in halfway.items() if shard not in tried]


def _release_is_due(project: Project) -> bool:
    """Tell whether the day has come: with `weekly`, no release was made in this calendar week.

    One that is made, and has only to come into force since a gate was waived, waits for no day.
    """
    if project.artifact("shuffled_bins", None) is not None:
        return True
    last = project.last_generation("shuffled_bins", None)
    if project.settings.release.when != "weekly" or last is None:
        return True
    zone = _zone(project)
    made = datetime.datetime.fromisoformat(last.manifest.measured["made_at"]).astimezone(zone)
    return made.isocalendar()[:2] != datetime.datetime.now(tz=zone).isocalendar()[:2]


def _zone(project: Project) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(project.settings.schedule.timezone)


def _wanted(project: Project, state: State) -> str:
    """Name what is to be made: the generation, or where that cannot be told, why it is due."""
    try:
        return project.expected(state.asset, state.partition).key[:16]
    except Uncleared:
        return text_sha256(state.reason)[:16]
