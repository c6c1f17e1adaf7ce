"""A run killed with SIGKILL at any step, and what the next run makes of it."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.e2e.test_repair import OUTPUTS, flip
from corpus_platform_tests.small import SETTINGS, SHARDS, documents, write_shard

UNFINISHED = {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING}
SIDE_BY_SIDE = 2


def completes(corpus: Corpus, undisturbed: Corpus) -> None:
    """Run once more, and hold everything against a run that nothing disturbed."""
    ended, result = corpus.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert corpus.products() == undisturbed.products()
    assert corpus.unwitnessed() == []
    assert not UNFINISHED & set(corpus.statuses())


def kill_at(corpus: Corpus, step: int, *, tree: bool) -> None:
    """Run, and have the process that comes to a step killed there, or all of the command."""
    log = corpus.folder / "steps.log"
    log.unlink(missing_ok=True)
    ended, _ = corpus.run(fault=corpus.steps(log, kill_at=step, tree=tree))
    assert ended.code in ((-9,) if tree else (-9, 3)), ended.printed


@pytest.mark.slow
def test_a_run_killed_four_times_one_after_another_completes_to_the_same_bytes(
    fresh: Corpus, undisturbed: Corpus
) -> None:
    # Each run goes on where the one before was killed, so that its steps lie further on: in the
    # registry, while shards are ingested, clusters, tokenizer, packs and release are published.
    for step, tree in ((5, True), (45, True), (40, True), (30, False)):
        kill_at(fresh, step, tree=tree)
    completes(fresh, undisturbed)
    assert fresh.leftovers() == []
    assert fresh.plan() == []


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus of one small shard with nothing made of it."""
    corpus = Corpus(tmp_path_factory.mktemp("one-shard") / "fresh")
    crawl, name = SHARDS[0].split("/")
    write_shard(corpus.folder / f"source/crawl={crawl}" / name, documents()[:80])
    corpus.config.write_text(SETTINGS, encoding="utf-8")
    return corpus


@pytest.fixture(scope="module")
def one_shard_undisturbed(one_shard: Corpus) -> Corpus:
    """What an undisturbed run makes of it, with its steps in `steps.log`."""
    corpus = one_shard.copy(one_shard.folder.with_name("undisturbed"))
    ended, _ = corpus.run(fault=corpus.steps(corpus.folder / "steps.log"))
    assert ended.code == 0, ended.printed
    return corpus


def every_step(
    steps: int, start: Callable[[int], Corpus], undisturbed: Corpus, *, tree: bool
) -> list[str]:
    """Kill one run at each step and complete it; return what went wrong, by step."""

    def disturb(step: int) -> str | None:
        try:
            corpus = start(step)
            kill_at(corpus, step, tree=tree)
            completes(corpus, undisturbed)
        except AssertionError as error:
            return f"step {step}: {error}"
        corpus.remove()
        return None

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        found = pool.map(disturb, range(1, steps + 1))
        return [fault for fault in found if fault is not None]


@pytest.mark.slow
@pytest.mark.parametrize("tree", [False, True])
def test_a_run_killed_at_any_publish_step_completes_to_the_same_bytes(
    one_shard: Corpus, one_shard_undisturbed: Corpus, tmp_path: Path, *, tree: bool
) -> None:
    log = (one_shard_undisturbed.folder / "steps.log").read_text(encoding="utf-8").splitlines()
    for kind in ("fsync ", "rename ", "replace ", "mkdir ", "write catalog/"):
        assert any(kind in line for line in log)
    assert len(log) > 60
    faults = every_step(
        len(log), lambda n: one_shard.copy(tmp_path / f"{n}"), one_shard_undisturbed, tree=tree
    )
    assert faults == []


@pytest.mark.slow
def test_a_repair_killed_at_any_publish_step_completes_to_the_same_bytes(
    one_shard_undisturbed: Corpus, tmp_path: Path
) -> None:
    def damaged(number: int) -> Corpus:
        corpus = one_shard_undisturbed.copy(tmp_path / f"{number}")
        for asset in ("cleaned_documents", "dedup_clusters", "shuffled_bins"):
            flip(corpus.output(OUTPUTS[asset]))
        return corpus

    counted, log = damaged(0), tmp_path / "steps.log"
    ended, _ = counted.run(fault=counted.steps(log))
    assert ended.code == 0, ended.printed
    steps = log.read_text(encoding="utf-8").splitlines()
    assert any("unlink" in line and line.endswith("manifest.json") for line in steps)
    assert every_step(len(steps), damaged, one_shard_undisturbed, tree=True) == []


@pytest.mark.slow
def test_a_run_killed_at_random_instants_completes_to_the_same_bytes(
    fresh: Corpus, undisturbed: Corpus, tmp_path: Path
) -> None:
    whole = fresh.copy(tmp_path / "whole")
    begun = time.monotonic()
    whole.run()
    lasts, instants = time.monotonic() - begun, random.Random(2026)
    for number in range(5):
        corpus = fresh.copy(tmp_path / f"{number}")
        started = corpus.start("run")
        time.sleep(instants.uniform(0.1, 0.95) * lasts)
        started.kill()
        started.wait()
        completes(corpus, undisturbed)
