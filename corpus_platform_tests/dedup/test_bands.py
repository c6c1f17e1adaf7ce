import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.bands import band_hashes, candidate_pairs, recall
from corpus_platform.dedup.minhash import MinHasher
from corpus_platform.errors import UsageError


def slow_pairs(table: list[list[int]], cap: int) -> tuple[list[list[int]], int]:
    """Buckets as a dictionary, one document after the other."""
    pairs, over = set(), set()
    buckets: dict[tuple[int, int], list[int]] = {}
    for document, row in enumerate(table):
        for band, value in enumerate(row):
            members = buckets.setdefault((band, value), [])
            pairs |= {(other, document) for other in members[:cap]}
            if len(members) > cap:
                over.add((band, value))
            members.append(document)
    return [list(pair) for pair in sorted(pairs)], len(over)


TABLES = st.integers(1, 4).flatmap(
    lambda bands: st.lists(
        st.lists(st.integers(0, 3), min_size=bands, max_size=bands), min_size=1, max_size=30
    )
)


@given(TABLES, st.integers(1, 5))
@settings(deadline=None, max_examples=200)
def test_pairs_equal_those_of_a_dictionary_of_buckets(table: list[list[int]], cap: int) -> None:
    found = candidate_pairs(np.array(table, np.uint64), cap=cap)
    assert (found.pairs.tolist(), found.capped_buckets) == slow_pairs(table, cap)


@given(TABLES, st.integers(1, 5), st.data())
@settings(deadline=None, max_examples=100)
def test_documents_added_at_the_end_leave_all_earlier_pairs(
    table: list[list[int]], cap: int, data: st.DataObject
) -> None:
    before = data.draw(st.integers(0, len(table)))
    whole = np.array(table, np.uint64)
    pairs = candidate_pairs(whole, cap=cap).pairs
    earlier = pairs[pairs[:, 1] < before]
    assert np.array_equal(earlier, candidate_pairs(whole[:before], cap=cap).pairs)


def test_ten_thousand_identical_rows_make_64_pairs_each() -> None:
    table = np.full((10_000, 4), 7, np.uint64)
    found = candidate_pairs(table)
    # 0 + 1 + ... + 63, then 64 for each of the other 9,936.
    assert len(found.pairs) == 2016 + 64 * 9936
    assert found.capped_buckets == 4


def test_no_documents_make_no_pairs() -> None:
    found = candidate_pairs(np.empty((0, 16), np.uint64))
    assert found.pairs.shape == (0, 2)
    assert found.capped_buckets == 0


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="cap = 0"):
        candidate_pairs(np.zeros((2, 1), np.uint64), cap=0)


def test_a_band_hash_depends_on_its_number_and_on_each_value_in_order() -> None:
    hashes = band_hashes(np.array([[1, 2, 1, 2], [2, 1, 1, 3]], np.uint32), 2, 2)
    assert hashes.dtype == np.uint64
    assert len(set(hashes.ravel().tolist())) == 4


def test_equal_bands_have_equal_hashes_and_others_have_not() -> None:
    hashes = band_hashes(np.array([[1, 2, 3, 4], [1, 2, 3, 5]], np.uint32), 2, 2)
    assert (hashes[0] == hashes[1]).tolist() == [True, False]


def test_signatures_that_do_not_cut_into_bands_are_refused() -> None:
    with pytest.raises(UsageError, match="16 bands of 7 rows"):
        band_hashes(np.zeros((3, 128), np.uint32), 16, 7)


@pytest.mark.parametrize(
    ("similarity", "bands", "rows", "expected"),
    [
        # the table of the source document, section 3.5, and case dd-06
        (0.3, 16, 8, 0.001),
        (0.5, 16, 8, 0.061),
        (0.6, 16, 8, 0.237),
        (0.7, 16, 8, 0.613),
        (0.8, 16, 8, 0.947),
        (0.8, 8, 16, 0.204),
        (0.3, 32, 4, 0.229),
        (0.8, 9, 13, 0.399),
        (0.9, 9, 13, 0.929),
    ],
)
def test_recall_is_the_curve_of_theory(
    similarity: float, bands: int, rows: int, expected: float
) -> None:
    assert round(recall(similarity, bands, rows), 3) == expected


def test_dd_06_thirteen_bands_of_sixty_rows_find_nothing_at_the_threshold() -> None:
    assert round(recall(0.8, 13, 60), 5) == 0.00002


def test_dd_06_measured_recall_is_that_of_theory() -> None:
    random = np.random.default_rng(6)
    hasher = MinHasher(128)
    found = {}
    for similarity, shared, own, pairs in ((0.8, 80, 10, 400), (0.9, 90, 5, 100)):
        met = 0
        for _ in range(pairs):
            values = random.integers(0, 2**64, shared + 2 * own, dtype=np.uint64)
            both = (hasher.signature(values[:-own]), hasher.signature(values[own:]))
            met += len(candidate_pairs(band_hashes(np.array(both), 16, 8)).pairs)
        found[similarity] = met / pairs
    assert abs(found[0.8] - 0.947) < 0.03
    assert found[0.9] >= 0.99


PROGRAM = """
import hashlib
from corpus_platform_tests.dedup.chain import deduplicate
texts = [f"page {i // 2} " + " ".join(f"w{i // 2}x{j}" for j in range(60)) + f" {i % 2}" for i in range(50)]
result = deduplicate(texts)
d = result.decisions
whole = b"".join(a.tobytes() for a in [d.kept, d.twin, d.similarity, d.cluster, *result.shingles, *result.candidates.pairs])
print(int(d.kept.sum()), hashlib.sha256(whole).hexdigest())
"""


def test_dd_07_fresh_processes_with_other_hash_seeds_decide_the_same() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
    assert outputs.pop().startswith("25 ")
