"""Jobs that make no product: verify what is stored, register what is listed, prune the history.

Each is one op, whose numbers are the metadata of its output. What is verified, listed and pruned
stands in `stages.verifying`, `registering` and `pruning`.
"""

import datetime
import time
from collections.abc import Callable, Sequence

import dagster as dg

from corpus_platform.defs.launchpad import NOTHING_TO_SET
from corpus_platform.defs.progress import LOG_SECONDS
from corpus_platform.defs.pruning import prune
from corpus_platform.defs.registering import register
from corpus_platform.defs.resources import Corpus
from corpus_platform.errors import CorpusError, place
from corpus_platform.stages.verifying import Fault, verify_all

__all__ = ["build_housekeeping"]

SHOWN = 50  # rows of a table: each event is a row of the event log
NAMED = 3  # faults, or keys, in a sentence
MAX_CHARS = 500
WEEKLY = "30 4 * * 0"  # Sunday, after the nightly refresh


def build_housekeeping(corpus: Corpus) -> dg.Definitions:
    """Return the jobs, and the schedule of the one that nobody would think of."""
    pruning = _prune_history(corpus)
    weekly = dg.ScheduleDefinition(
        name="prune_history_weekly",
        job=pruning,
        cron_schedule=WEEKLY,
        execution_timezone=corpus.settings.schedule.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    jobs = [_verify_corpus(corpus), _register_shards(corpus), pruning]
    return dg.Definitions(jobs=jobs, schedules=[weekly])


def _verify_corpus(corpus: Corpus) -> dg.JobDefinition:
    @dg.op(out=dg.Out(dg.Nothing), config_schema=NOTHING_TO_SET)
    def verify(context: dg.OpExecutionContext) -> dg.Output[None]:
        """Hash all stored files and sources again, and compare them with their manifests."""
        try:
            looked, faults = verify_all(corpus.project(), progress=_logged(context, "files"))
        except CorpusError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from error
        if faults:
            raise dg.Failure(
                description=_in_words(faults),
                metadata={"generations": looked, "faults": len(faults), "table": _table(faults)},
                allow_retries=False,
            )
        return dg.Output(None, metadata={"generations": looked, "faults": 0})

    @dg.job(name="verify_corpus", executor_def=dg.in_process_executor)
    def verify_corpus() -> None:
        """Hash everything that is stored, as `corpus verify` does; fails where anything differs."""
        verify()

    return verify_corpus


def _register_shards(corpus: Corpus) -> dg.JobDefinition:
    @dg.op(out=dg.Out(dg.Nothing), config_schema=NOTHING_TO_SET)
    def list_sources(context: dg.OpExecutionContext) -> dg.Output[None]:
        """List the sources; take all new shards into the registry and the partitions."""
        try:
            done = register(corpus.project(), context.instance)
        except CorpusError as error:
            raise dg.Failure(description=str(error), allow_retries=False) from error
        context.log.info(f"{len(done.new):,} new shards registered")
        if done.gone:
            context.log.warning(
                f"{_named(done.gone)}: no source lists them now; they stay registered, and what was"
                " made of them stays"
            )
        if done.restored:
            context.log.warning(
                f"{_named(done.restored)}: registered shards whose partition keys Dagster did not"
                " have: added again; `corpus retire` takes a shard out"
            )
        return dg.Output(
            None,
            metadata={
                "new": len(done.new),
                "gone": len(done.gone),
                "restored": len(done.restored),
            },
        )

    @dg.job(name="register_shards", executor_def=dg.in_process_executor)
    def register_shards() -> None:
        """Take every shard that the sources list now, without making anything of it."""
        list_sources()

    return register_shards


def _prune_history(corpus: Corpus) -> dg.JobDefinition:
    days = corpus.settings.schedule.keep_history_days

    @dg.op(out=dg.Out(dg.Nothing), config_schema=NOTHING_TO_SET)
    def remove_old_runs(context: dg.OpExecutionContext) -> dg.Output[None]:
        """Remove runs that ended long ago, except what the UI shows of a partition or a check."""
        before = _now() - datetime.timedelta(days=days)
        done = prune(context.instance, before, progress=_logged(context, "old runs"))
        context.log.info(
            f"{done.removed:,} runs removed, {done.kept:,} kept, of those that ended more than"
            f" {days} days ago"
        )
        return dg.Output(None, metadata={"removed": done.removed, "kept": done.kept})

    @dg.job(name="prune_history", executor_def=dg.in_process_executor)
    def prune_history() -> None:
        """Remove runs older than `schedule.keep_history_days` from Dagster's history; manifests,
        and the newest run of each partition and check, stay."""
        remove_old_runs()

    return prune_history


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _logged(context: dg.OpExecutionContext, what: str) -> Callable[[int, int], None]:
    """Return a progress callback that writes to the run log every 30 seconds."""
    logged = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal logged
        if (now := time.monotonic()) - logged > LOG_SECONDS:
            logged = now
            context.log.info(f"{done:,} of {total:,} {what}")

    return progress


def _in_words(faults: Sequence[Fault]) -> str:
    """Return the count and the first faults."""
    first = "; ".join(
        f"{place(f.asset, f.partition)}: {f.reason[:MAX_CHARS]}" for f in faults[:NAMED]
    )
    more = f"; and {len(faults) - NAMED:,} more" if len(faults) > NAMED else ""
    count = "1 fault" if len(faults) == 1 else f"{len(faults):,} faults"
    return (
        f"{count}: {first}{more}; `corpus run` makes damaged products again, and `corpus verify`"
        " lists all"
    )


def _table(faults: Sequence[Fault]) -> dg.MetadataValue:
    rows = [
        {"asset": f.asset, "partition": f.partition or "", "reason": f.reason[:MAX_CHARS]}
        for f in faults[:SHOWN]
    ]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows])


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more
