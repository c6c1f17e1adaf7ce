"""A run killed with SIGKILL at any step, and what the next run makes of it."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform_tests.e2e.command import Corpus, Ended
from corpus_platform_tests.small import SHARDS, write_small_corpus

UNFINISHED = {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING}


def completes(corpus: Corpus, undisturbed: Corpus) -> None:
    """Run once more, and hold everything against a run that nothing disturbed."""
    ended, result = corpus.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert corpus.products() == undisturbed.products()
    assert corpus.unwitnessed() == []
    assert corpus.leftovers() == []
    assert corpus.plan() == []
    assert not UNFINISHED & set(corpus.statuses())


def killed_at(corpus: Corpus, step: int, *, tree: bool) -> Ended:
    """Run and kill at a step of this run."""
    log = corpus.folder / "steps.log"
    log.unlink(missing_ok=True)
    ended, _ = corpus.run(fault=corpus.steps(log, kill_at=step, tree=tree))
    return ended


def test_a_run_killed_six_times_one_after_another_completes_to_the_same_bytes(
    fresh: Corpus, undisturbed: Corpus
) -> None:
    # Each run goes on where the one before was killed, so that its steps lie further on: in the
    # registry, while a shard is ingested, clusters, tokenizer, packs and release are published.
    for step, tree in ((3, True), (12, True), (40, False), (45, True), (33, True), (29, False)):
        assert killed_at(fresh, step, tree=tree).code in (-9, 3)
    completes(fresh, undisturbed)
