import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup import cluster_kernels, join_kernels
from corpus_platform.dedup.bands import band_hashes, bucket_pairs, merge_codes
from corpus_platform.dedup.cluster_kernels import array, distinct_sets
from corpus_platform.dedup.clusters import collapse_exact, decide, unmeasured
from corpus_platform.dedup.verification import Edges, agreements, compare_sets


def distinct_of(sets: list[list[int]]) -> list[list[int]]:
    ends = np.cumsum([len(one) for one in sets], dtype=np.int64)
    flat, ends = distinct_sets(array([*itertools.chain(*sets)], np.uint64), array(ends, np.int64))
    return [part.tolist() for part in np.split(flat, ends[:-1])]


VALUES = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 255, 2**63, 2**64 - 1])


@given(st.lists(st.lists(VALUES, max_size=40), min_size=1, max_size=4))
@settings(deadline=None, max_examples=100)
def test_distinct_hashes_are_those_of_sets(sets: list[list[int]]) -> None:
    assert distinct_of(sets) == [sorted(set(one)) for one in sets]


@pytest.mark.parametrize("size", [5_000, 50_000])
def test_many_hashes_of_few_values_are_distinct(size: int) -> None:
    random = np.random.default_rng(3)
    few = random.integers(0, 2**64, size // 2, dtype=np.uint64)
    values = few[random.integers(0, few.size, size)].tolist()
    assert distinct_of([[5], values, [9, 9]]) == [[5], sorted(set(values)), [9]]


def test_values_that_are_no_hashes_take_all_digits() -> None:
    values = list(range(60_000, 0, -1))
    start = time.process_time()
    assert distinct_of([values, values]) == [values[::-1]] * 2
    assert time.process_time() - start < 5  # by moves: 1,800,000,000 each


def test_warm_has_compiled_all_that_is_used() -> None:
    cluster_kernels.warm()
    before = compiled()
    assert before
    signatures = np.zeros((3, 8), np.uint32, order="F")
    signatures.flags.writeable = False
    hashes = band_hashes(signatures, 2, 4)
    found = bucket_pairs(hashes[::-1, 1], np.array([4, 2, 9], np.uint32).astype(np.int64), cap=2)
    marked = bucket_pairs(hashes[:, 0], np.arange(3), cap=1, searched=np.ones(3, np.bool_))
    merge_codes([found.codes, marked.codes])
    collapse_exact(np.zeros((6, 32), np.uint8)[::2], np.arange(3))
    edges = Edges(np.array([[0, 1], [1, 2]])[::-1], np.ones(2))
    decide(np.arange(3), edges, keep="first_seen")
    decide(
        np.arange(3), edges, keep="one_per_cluster", others=Edges(np.array([[0, 2]]), np.ones(1))
    )
    unmeasured(np.arange(3), edges)
    agreements(signatures, signatures[::-1])
    compare_sets(hashes[:1, 0], np.zeros(2, np.int64), np.ones(2, np.int64), np.array([[0, 1]]))
    assert compiled() == before


def compiled() -> dict[str, int]:
    """Return for how many types each kernel has been compiled."""
    kernels = {**vars(cluster_kernels), **vars(join_kernels)}
    return {name: len(k.signatures) for name, k in kernels.items() if hasattr(k, "signatures")}
