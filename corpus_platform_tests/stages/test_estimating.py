"""Codes of candidate pairs in many files, cut into blocks."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.stages.estimating import _blocks
from corpus_platform_tests.stages.near_copies import changed, cluster, clusters, new_corpus, prose

CODES = st.sets(st.integers(0, 30) | st.integers(0, 2**64 - 1), max_size=30)


@given(sets=st.lists(CODES, min_size=1, max_size=5), most=st.integers(1, 40))
@settings(deadline=None, max_examples=100)
def test_blocks_hold_every_code_once_and_not_many_more_than_they_may(
    sets: list[set[int]], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = [tmp_path_factory.getbasetemp() / f"{i}.pairs" for i in range(len(sets))]
    for path, codes in zip(files, sets, strict=True):
        np.array(sorted(codes), np.uint64).tofile(path)
    found, reached = [set[int]() for _ in sets], -1
    for starts, ends in _blocks(files, most):
        parts = [sorted(s)[a:b] for s, a, b in zip(sets, starts, ends, strict=True)]
        block = [code for part in parts for code in part]
        assert 0 < len(block) < most + len(files)
        assert min(block) > reached  # no code is in two blocks
        reached = max(block)
        for whole, part in zip(found, parts, strict=True):
            whole.update(part)
    assert found == sets


@pytest.fixture
def few_files() -> Iterator[None]:
    """Let this process open a hundred files more than it has."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_files")
def test_there_may_be_more_bands_than_files_that_a_process_may_open(tmp_path: Path) -> None:
    texts = [prose(1), changed(prose(1), 1), prose(2), prose(1)]
    options = "dedup: {permutations: 256, bands: 256, rows: 1}\n"
    report = cluster(new_corpus(tmp_path, {"2026-40/a": texts}, options))
    assert clusters(report)["kind"].to_list() == [None, "near", None, "exact"]
    assert not [f for f in report.findings if not f.passed]
