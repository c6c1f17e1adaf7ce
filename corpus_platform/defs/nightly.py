"""The nightly refresh begins here: a schedule lists the sources and has new and stale shards ingested.

What comes after the shards is carried on by a sensor. What is to be done is told by the state of
the shards, never by what is new: a tick that was killed, or that comes twice, loses nothing.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import dagster as dg
import pydantic

from corpus_platform.defs.jobs import INGEST_JOB
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.registering import Registered, register
from corpus_platform.defs.requests import NIGHT_TAG, at_work, last_failed, tags_of
from corpus_platform.defs.resources import Corpus
from corpus_platform.errors import CorpusError
from corpus_platform.planner import INGEST, survey
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Project
from corpus_platform.storage.lease import held_by
from corpus_platform.storage.registry import Shard, key_order

__all__ = [
    "Night",
    "build_schedule",
    "earlier",
    "recall",
    "run_lease_holder",
]

NIGHT, EARLIER = "night", "earlier_nights"  # the names in Memory
KEPT_NIGHTS = 20  # what follows from a night may take longer than to the next


@dataclass(frozen=True)
class Night:
    """One night: what its tick saw and asked for. `scheduled` is its ISO time, and its name.

    `new`: shards registered in it; `left`: new ones left for the next; `gone`: registered ones that
    no source lists; `waiting`: due ones beyond the limit; `trouble`: why sources were not listed.
    `begun`: all of this is known.
    """

    scheduled: str
    at: float
    new: tuple[str, ...] = ()
    requested: int = 0
    left: int = 0
    gone: tuple[str, ...] = ()
    waiting: int = 0
    trouble: str = ""
    begun: bool = False


_NIGHT, _NIGHTS = pydantic.TypeAdapter(Night), pydantic.TypeAdapter(tuple[Night, ...])


def recall(memory: Memory) -> Night | None:
    """Return the last night, None before the first."""
    found = memory.get(NIGHT)
    return None if found is None else _NIGHT.validate_python(found)


def earlier(memory: Memory) -> tuple[Night, ...]:
    """Return the nights before the last one, the latest twenty at most, oldest first."""
    return _NIGHTS.validate_python(memory.get(EARLIER) or ())


def run_lease_holder(corpus: Corpus) -> str | None:
    """Return who drives this corpus by `corpus run` at the moment, in words."""
    return held_by(corpus.settings.storage_path / "leases" / "run.lease")


def build_schedule(corpus: Corpus) -> dg.ScheduleDefinition:
    """Return the schedule `nightly`, on from the start."""

    @dg.schedule(
        name="nightly",
        job_name=INGEST_JOB,
        cron_schedule=corpus.settings.schedule.cron,
        execution_timezone=corpus.settings.schedule.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Lists the sources, registers new shards, and has due ones ingested.",
    )
    def nightly(
        context: dg.ScheduleEvaluationContext,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        if (words := corpus.outdated()) is not None:
            return dg.SkipReason(words)
        requests = _begin(context, corpus)
        return requests or dg.SkipReason("no shard is to be ingested")

    return nightly


def _due_shards(project: Project) -> list[str]:
    """Return the registered shards of which something up to the signatures is due, in key order."""
    due = [d.partition for d in survey(project).due if d.asset in INGEST]
    return list(dict.fromkeys(shard for shard in due if shard is not None))


def _begin(context: dg.ScheduleEvaluationContext, corpus: Corpus) -> list[dg.RunRequest]:
    """Register new shards, note the night, and return the requests for its ingest runs."""
    project, memory = corpus.project(), Memory(context.instance, corpus.name)
    scheduled = context.scheduled_execution_time.isoformat()
    limit, driven = corpus.settings.schedule.max_shards, run_lease_holder(corpus) is not None
    _keep_last(memory, scheduled)
    due = _due_shards(project)
    failed = last_failed(context.instance, due)
    untried = [shard for shard in due if shard not in set(failed)]
    listed, trouble = _listed(project)
    # `corpus run` has listed the sources, and would wait in vain for what is registered after that.
    room = 0 if driven else max(0, limit - len(untried))
    night = Night(scheduled, time.time(), _arriving(project, memory, listed, room, scheduled))
    # Noted before they are registered: a tick that was killed in between comes again, and would
    # take them for old ones.
    memory.set(NIGHT, asdict(night))
    found = register(project, context.instance, listed, limit=room)
    _warn(context, found, trouble)
    if driven:
        context.log.info("`corpus run` is at work: ingest and new shards are left to it")
    # Those that failed come last: they hold up no new ones.
    wanted = [] if driven else _free(context.instance, scheduled, [*untried, *found.new, *failed])
    night = replace(
        night,
        requested=len(wanted[:limit]),
        left=found.left,
        gone=() if trouble else found.gone,
        waiting=len(wanted[limit:]),
        trouble=trouble,
        begun=True,
    )
    memory.set(NIGHT, asdict(night))
    return [_request(corpus, scheduled, shard) for shard in wanted[:limit]]


def _keep_last(memory: Memory, scheduled: str) -> None:
    """Put the night before this one to the earlier ones: it may have its heartbeat still to come."""
    last = recall(memory)
    if last is not None and last.scheduled != scheduled:
        others = [night for night in earlier(memory) if night.scheduled != last.scheduled]
        memory.set(EARLIER, [asdict(night) for night in [*others, last][-KEPT_NIGHTS:]])


def _listed(project: Project) -> tuple[list[Shard], str]:
    """Return what the sources list; where they cannot be listed, why: registered shards go on."""
    try:
        return list_shards(project, hurried=True), ""
    except (CorpusError, OSError) as error:
        return [], f"the sources cannot be listed: {error}"


def _arriving(
    project: Project, memory: Memory, listed: Iterable[Shard], room: int, scheduled: str
) -> tuple[str, ...]:
    """Return the shards that are new in this night, those of an earlier try of its tick included."""
    known, before = set(project.registry.keys()), recall(memory)
    arriving = sorted((s.key for s in listed if s.key not in known), key=key_order)[:room]
    earlier = before.new if before is not None and before.scheduled == scheduled else ()
    return tuple(sorted({*earlier, *arriving}, key=key_order))


def _warn(context: dg.ScheduleEvaluationContext, found: Registered, trouble: str) -> None:
    if trouble:
        context.log.error(trouble)
    elif found.gone:
        names = ", ".join(found.gone[:5])
        context.log.warning(f"{len(found.gone)} shards are listed no more, and stay: {names}")
    if found.left:
        context.log.info(f"{found.left} more new shards are listed, and left for the next nights")
    if found.restored:
        names = ", ".join(found.restored[:5])
        context.log.warning(
            f"{len(found.restored)} partitions are not in this instance, and are added again: {names}"
        )


def _free(instance: dg.DagsterInstance, scheduled: str, shards: Iterable[str]) -> list[str]:
    """Return the shards that no run of another night, or of a person, is at work on."""
    others = [run for run in at_work(instance) if run.tags.get(NIGHT_TAG) != scheduled]
    taken = {run.tags.get("dagster/partition") for run in others}
    return [shard for shard in shards if shard not in taken]


def _request(corpus: Corpus, scheduled: str, shard: str) -> dg.RunRequest:
    """Ask for a run: one in a night, so that a failed one comes again in the next."""
    return dg.RunRequest(
        run_key=f"{scheduled}/{shard}", partition_key=shard, tags=tags_of(corpus, scheduled)
    )
