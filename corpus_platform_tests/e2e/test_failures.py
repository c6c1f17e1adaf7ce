"""Faults of code and machine: an error in a stage, a worker that dies, a command told to end."""

import signal
import time
from collections.abc import Callable

import dagster as dg
import pytest

from corpus_platform_tests.e2e.command import Corpus, Started
from corpus_platform_tests.small import SHARDS

CLEANING = "corpus_platform.filters.verdicts:judge"
# A program that takes from root the right to read what it may not.
DENIED = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


def clean_anew(corpus: Corpus) -> None:
    """Change a setting, so that every shard is to be cleaned again."""
    corpus.set(clean={"set": {"too_short.min_chars": 201}})


def wait_for(condition: Callable[[], bool], *, seconds: float = 90) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.05)


def stalled(corpus: Corpus) -> Started:
    """Return a command of which the one worker that has work hangs in the middle of a stage."""
    corpus.output(f"cleaned_documents/{SHARDS[0]}/*/documents.parquet").unlink()
    started = corpus.start("run", fault={"function": CLEANING, "stall": 600})
    wait_for(lambda: corpus.statuses()[0] == STARTED)
    return started


@pytest.mark.slow
def test_an_error_in_a_stage_ends_the_run_with_its_message_and_exit_code_3(
    made: Corpus,
) -> None:
    clean_anew(made)
    ended, result = made.run(fault={"function": CLEANING, "raise": "the sky fell"})
    assert ended.code == 3, ended.printed
    assert result["outcome"] == "failed"
    for shard in SHARDS:
        assert any(f.startswith(f"{shard}: ") and "the sky fell" in f for f in result["failed"])
        assert f"failed: {shard}: " in ended.printed
    assert "Traceback" not in ended.printed


@pytest.mark.slow
def test_a_worker_killed_in_mid_stage_fails_its_dagster_run_and_the_next_run_completes(
    made: Corpus,
) -> None:
    before = made.products()
    started = stalled(made)
    (worker,) = started.workers()
    worker.kill()
    ended = started.wait()
    assert ended.code == 3, ended.printed
    assert f"failed: {SHARDS[0]}: the worker process ended by signal 9; its log is" in ended.printed
    assert "Traceback" not in ended.printed
    assert made.statuses()[0] == FAILURE
    assert STARTED not in made.statuses()
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert made.products() == before


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_command_told_to_end_leaves_no_process_and_no_run_behind(
    made: Corpus, ending: signal.Signals
) -> None:
    started = stalled(made)
    started.process.send_signal(ending)
    ended = started.wait()  # raises when a process is left
    assert ended.code == 130
    assert "stopped; the same command goes on where this one ended" in ended.printed
    assert "Traceback" not in ended.printed
    assert made.statuses()[0] == FAILURE


@pytest.mark.slow
def test_a_command_killed_outright_takes_its_workers_with_it_and_the_next_fails_its_run(
    made: Corpus,
) -> None:
    started = stalled(made)
    started.process.kill()
    assert started.wait().code == -9  # raises when a process is left
    ended, _ = made.run()
    assert ended.code == 0, ended.printed
    assert STARTED not in made.statuses()
    assert FAILURE in made.statuses()


@pytest.mark.parametrize(
    "denied",
    [
        "source/crawl=2026-40",
        pytest.param("source/crawl=2026-40/part-00000.jsonl.zst", marks=pytest.mark.slow),
    ],
)
def test_a_source_that_may_not_be_read_is_named_and_no_trace_is_printed(
    fresh: Corpus, denied: str
) -> None:
    (fresh.folder / denied).chmod(0)
    ended, _ = fresh.run(through=DENIED)
    assert ended.code == 3, ended.printed
    assert str(fresh.folder / denied) in ended.printed
    assert "Permission denied" in ended.printed
    assert "Traceback" not in ended.printed
