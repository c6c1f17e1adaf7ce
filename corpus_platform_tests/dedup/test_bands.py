import subprocess
import sys
import tracemalloc
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.bands import (
    BucketPairs,
    band_hashes,
    bucket_pairs,
    codes_of,
    merge_codes,
    pairs_of,
)
from corpus_platform.dedup.hashes import splitmix64
from corpus_platform.dedup.minhash import MinHasher
from corpus_platform.errors import UsageError

HIGHEST = 2**32 - 1


# --- band hashes


def slow_band_hashes(signatures: npt.NDArray[np.uint32], bands: int, rows: int) -> np.ndarray:
    """One column of values after the other."""
    hashes = np.empty((len(signatures), bands), np.uint64)
    for band in range(bands):
        mixed = np.full(len(signatures), band, np.uint64)
        for column in range(band * rows, (band + 1) * rows):
            mixed = splitmix64(mixed ^ signatures[:, column])
        hashes[:, band] = mixed
    return hashes


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_band_hashes_equal_those_of_whole_columns(
    documents: int, bands: int, rows: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    signatures = random.integers(0, 2**32, (documents, bands * rows), dtype=np.uint32)
    found = band_hashes(signatures, bands, rows)
    assert found.dtype == np.uint64
    assert np.array_equal(found, slow_band_hashes(signatures, bands, rows))


def test_band_hashes_are_those_of_stored_signatures() -> None:
    signatures = np.array([[1, 2, 3, 4], [0xFFFFFFFF, 0, 7, 7]], np.uint32)
    assert band_hashes(signatures, 2, 2).tolist() == [
        [0xBCD9DBB49673066B, 0xDF54701EBC7A7BE9],
        [0xE91B2C1036E2F20E, 0x2B40F785F684CBE3],
    ]
    assert band_hashes(signatures, 1, 4).tolist() == [[0xD55CCD4AEB3CCAFB], [0x15A5DB7B05D1BF6A]]


def test_the_hashes_of_a_band_lie_side_by_side_and_read_only_signatures_are_taken() -> None:
    signatures = np.arange(64, dtype=np.uint32).reshape(8, 8)
    signatures.flags.writeable = False
    assert band_hashes(signatures, 2, 4)[:, 1].flags.c_contiguous


def test_a_band_hash_depends_on_its_number_and_on_each_value_in_order() -> None:
    hashes = band_hashes(np.array([[1, 2, 1, 2], [2, 1, 1, 3]], np.uint32), 2, 2)
    assert len(set(hashes.ravel().tolist())) == 4


def test_equal_bands_have_equal_hashes_and_others_have_not() -> None:
    hashes = band_hashes(np.array([[1, 2, 3, 4], [1, 2, 3, 5]], np.uint32), 2, 2)
    assert (hashes[0] == hashes[1]).tolist() == [True, False]


def test_signatures_that_do_not_cut_into_bands_are_refused() -> None:
    with pytest.raises(UsageError, match="16 bands of 7 rows"):
        band_hashes(np.zeros((3, 128), np.uint32), 16, 7)


# --- pairs of one band


class Rows(NamedTuple):
    """The rows of one band in any order."""

    hashes: list[int]
    numbers: list[int]
    searched: list[bool]

    def pairs(self, cap: int, search_cap: int = 1024) -> BucketPairs:
        return bucket_pairs(
            np.array(self.hashes, np.uint64),
            np.array(self.numbers, np.int64),
            cap=cap,
            searched=np.array(self.searched, np.bool_),
            search_cap=search_cap,
        )

    def below(self, number: int) -> "Rows":
        kept = [row for row in zip(*self, strict=True) if row[1] < number]
        return Rows(*map(list, zip(*kept, strict=True))) if kept else Rows([], [], [])


def slow_pairs(rows: Rows, cap: int, search_cap: int) -> tuple[list[int], list[int], int]:
    """Buckets as a dictionary, one document after the other."""
    buckets: dict[int, list[tuple[int, bool]]] = {}
    for number, value, searched in sorted(
        zip(rows.numbers, rows.hashes, rows.searched, strict=True)
    ):
        buckets.setdefault(value, []).append((number, searched))
    codes, found = set(), set()
    for bucket in buckets.values():
        for place, (number, searched) in enumerate(bucket):
            codes |= {other << 32 | number for other, _ in bucket[:place][:cap]}
            if searched:
                others = {other for other, _ in bucket[:search_cap]} - {number}
                found |= {min(other, number) << 32 | max(other, number) for other in others}
    return sorted(codes), sorted(found), sum(len(b) > cap + 1 for b in buckets.values())


NUMBERS = st.one_of(st.integers(0, 60), st.integers(0, HIGHEST))
ROWS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2**32, 2**63 + 5, 2**64 - 1]), NUMBERS, st.booleans()),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[1],
).map(lambda rows: Rows(*map(list, zip(*rows, strict=True))))


@given(ROWS, st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_pairs_equal_those_of_a_dictionary_of_buckets(
    rows: Rows, cap: int, search_cap: int
) -> None:
    found = rows.pairs(cap, search_cap)
    assert (found.codes.tolist(), found.searched.tolist(), found.capped) == slow_pairs(
        rows, cap, search_cap
    )


def test_pairs_of_many_rows_equal_those_of_a_dictionary() -> None:
    random = np.random.default_rng(5)
    values = random.integers(0, 2**64, 12_000, dtype=np.uint64)[random.integers(0, 12_000, 30_000)]
    numbers, searched = random.permutation(30_000), random.random(30_000) < 0.1
    rows = Rows(values.tolist(), numbers.tolist(), searched.tolist())
    found = rows.pairs(3, 4)
    assert (found.codes.tolist(), found.searched.tolist(), found.capped) == slow_pairs(rows, 3, 4)
    assert found.capped > 0


@given(ROWS, st.integers(1, 5), st.integers(0, 70))
@settings(deadline=None, max_examples=80)
def test_documents_added_at_the_end_take_no_pair_away(rows: Rows, cap: int, before: int) -> None:
    codes = rows.pairs(cap).codes
    earlier = codes[codes & np.uint64(HIGHEST) < before]
    assert np.array_equal(earlier, rows.below(before).pairs(cap).codes)


def test_ten_thousand_identical_rows_make_64_pairs_each() -> None:
    found = bucket_pairs(np.full(10_000, 7, np.uint64), np.arange(10_000), cap=64)
    # 0 + 1 + ... + 63, then 64 for each of the other 9,936.
    assert len(found.codes) == 2016 + 64 * 9936
    assert found.capped == 1


@pytest.mark.parametrize(("size", "capped"), [(65, 0), (66, 1)])
def test_a_bucket_is_capped_when_it_leaves_a_pair_out(size: int, capped: int) -> None:
    found = bucket_pairs(np.zeros(size, np.uint64), np.arange(size), cap=64)
    assert (found.capped, len(found.codes)) == (capped, size * (size - 1) // 2 - capped)


def test_dd_10_the_highest_numbers_are_documents_like_others() -> None:
    numbers = np.array([HIGHEST, 0, HIGHEST - 1])
    found = bucket_pairs(np.zeros(3, np.uint64), numbers, cap=64)
    assert pairs_of(found.codes).tolist() == [
        [0, 4294967294],
        [0, 4294967295],
        [4294967294, 4294967295],
    ]


@pytest.mark.slow
def test_a_bucket_of_a_million_rows_takes_seconds() -> None:
    searched = np.zeros(1_000_000, np.bool_)
    searched[500_000] = True
    found = bucket_pairs(
        np.zeros(1_000_000, np.uint64), np.arange(1_000_000), cap=64, searched=searched
    )
    assert len(found.codes) == 2016 + 64 * (1_000_000 - 64)
    assert len(found.searched) == 1024
    assert found.capped == 1


def test_nothing_is_searched_unless_it_is_asked_for() -> None:
    found = bucket_pairs(np.zeros(3, np.uint64), np.arange(3), cap=1)
    assert found.codes.tolist() == [1, 2]  # 0 and 1, 0 and 2
    assert found.searched.size == 0


def test_no_documents_make_no_pairs() -> None:
    found = bucket_pairs(np.empty(0, np.uint64), np.empty(0, np.int64), cap=64)
    assert (found.codes.size, found.searched.size, found.capped) == (0, 0, 0)


@pytest.mark.parametrize(
    ("hashes", "numbers", "cap", "said"),
    [
        ([0, 0], [0, 1], 0, "cap = 0"),
        ([0, 0], [0, 1, 2], 1, "2 hashes and 3 document numbers"),
        ([0, 0, 0], [5, 9, 5], 1, "document 5 stands twice"),
        ([0, 0], [0, 2**32], 1, "0 to 4294967296: they go from 0 to 4294967295"),
        ([0, 0], [-1, 2], 1, "-1 to 2"),
    ],
)
def test_rows_that_are_no_documents_are_refused(
    hashes: list[int], numbers: list[int], cap: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        bucket_pairs(np.array(hashes, np.uint64), np.array(numbers, np.int64), cap=cap)


# --- codes


@given(st.lists(st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=12), max_size=9))
@settings(deadline=None, max_examples=80)
def test_merged_codes_are_the_union(parts: list[set[int]]) -> None:
    found = merge_codes(np.array(sorted(part), np.uint64) for part in parts)
    assert found.dtype == np.uint64
    assert found.tolist() == sorted(set().union(*parts))


def test_merging_holds_no_more_than_three_times_the_result() -> None:
    whole = np.arange(1_000_000, dtype=np.uint64)
    tracemalloc.start()
    try:
        found = merge_codes(whole[start % 7 :: 7].copy() for start in range(28))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, whole)
    assert peak < 3.2 * whole.nbytes  # 3, and the part that comes next


def test_codes_out_of_order_are_refused() -> None:
    with pytest.raises(UsageError, match="not ascending"):
        merge_codes([np.array([1, 2], np.uint64), np.array([2, 1], np.uint64)])


@given(st.lists(st.tuples(st.integers(0, HIGHEST), st.integers(0, HIGHEST)), max_size=9))
@settings(deadline=None, max_examples=50)
def test_codes_are_pairs_and_keep_their_order(pairs: list[tuple[int, int]]) -> None:
    codes = codes_of(np.array(pairs, np.int64).reshape(-1, 2))
    assert codes.tolist() == [a * 2**32 + b for a, b in pairs]
    assert pairs_of(codes).tolist() == list(map(list, pairs))


# --- together


def test_dd_06_measured_recall_is_that_of_theory() -> None:
    random = np.random.default_rng(6)
    hasher = MinHasher(128)
    found = {}
    for similarity, shared, own, pairs in ((0.8, 80, 10, 400), (0.9, 90, 5, 100)):
        met = 0
        for _ in range(pairs):
            values = random.integers(0, 2**64, shared + 2 * own, dtype=np.uint64)
            both = (hasher.signature(values[:-own]), hasher.signature(values[own:]))
            hashes = band_hashes(np.array(both), 16, 8)
            met += bool((hashes[0] == hashes[1]).any())
        found[similarity] = met / pairs
    assert abs(found[0.8] - 0.947) < 0.03
    assert found[0.9] >= 0.99


PROGRAM = """
import hashlib
from corpus_platform_tests.dedup.chain import deduplicate
texts = [f"page {i // 2} " + " ".join(f"w{i // 2}x{j}" for j in range(60)) + f" {i % 2}" for i in range(50)]
result = deduplicate(texts)
d = result.decisions
whole = b"".join(a.tobytes() for a in [d.kept, d.twin, d.similarity, d.cluster, *result.shingles, result.candidates.pairs])
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
