"""Damaged shards of every container, in a process of their own, so that a crash of it is seen."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from corpus_platform_tests.formats.mutations import Seed, mutate, outcome, seeds

KINDS = {seed.kind for seed in seeds()}


def ended(first: int, count: int, *, seconds: int) -> Counter[str]:
    """Read so many inputs in a process; return how many ended how, by kind of shard."""
    command = [sys.executable, "-m", "corpus_platform_tests.formats.mutations"]
    process = subprocess.run(
        [*command, str(first), str(count)], capture_output=True, text=True, timeout=seconds
    )
    assert process.returncode == 0, process.stderr[-3000:]
    lines = (line.split(" ", 1) for line in process.stdout.splitlines())
    return Counter({what: int(times) for times, what in lines})


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: seed.kind)
def test_the_good_shards_are_read_whole(tmp_path: Path, seed: Seed) -> None:
    assert outcome(seed, seed.content, tmp_path) == "intact"


def test_a_number_always_makes_the_same_input() -> None:
    content = seeds()[0].content
    assert mutate(content, random.Random(5)) == mutate(content, random.Random(5)) != content


def test_300_damaged_shards_are_read_or_refused() -> None:
    found = ended(0, 300, seconds=120)
    assert found.total() == 300
    assert {what.split(":")[0] for what in found} == KINDS


@pytest.mark.slow
@pytest.mark.parametrize("first", [10_000, 12_500, 15_000, 17_500])
def test_10_000_damaged_shards_are_read_or_refused(first: int) -> None:
    found = ended(first, 2500, seconds=120)
    assert found.total() == 2500
    for kind in KINDS:  # each is damaged in ways that show, and left whole now and then
        assert found[f"{kind}: read"] > 0
        assert found[f"{kind}: intact"] > 0
        assert kind == "jsonl" or found[f"{kind}: damaged"] > 50
