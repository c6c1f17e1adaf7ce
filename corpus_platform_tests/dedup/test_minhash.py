import inspect
import math
from typing import get_args

import datasketch
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup import kernels
from corpus_platform.dedup.minhash import MinHasher, Scheme, estimate
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.errors import UsageError
from corpus_platform_tests.dedup.reference import fast_signature

SCHEMES = st.sampled_from(get_args(Scheme))


def library_signature(hashes: list[int], permutations: int, seed: int) -> list[int]:
    sketch = datasketch.MinHash(permutations, seed, hashfunc=lambda h: h, scheme="affine32")
    sketch.update_batch([h & 0xFFFFFFFF for h in hashes])
    return sketch.hashvalues.tolist()


def test_a_signature_is_the_golden_vector_of_the_library() -> None:
    # datasketch 2.0: MinHash(8, seed, hashfunc=lambda h: h, scheme="affine32")
    #   .update_batch([1, 2, 3, 0xFFFFFFFF]).hashvalues
    hashes = np.array([1, 2, 3, 0xFFFFFFFF], np.uint64)
    one, seven = (MinHasher(8, seed=seed).signature(hashes).tolist() for seed in (1, 7))
    assert one[:4] == [404119057, 594951281, 1119733286, 274675658]
    assert one[4:] == [1328930451, 753320377, 2519654638, 172414575]
    assert seven[:4] == [570436246, 517944122, 520740179, 508301442]
    assert seven[4:] == [423092567, 921401274, 758311304, 18363396]


def test_two_hundred_sets_have_the_signatures_of_the_library() -> None:
    random = np.random.default_rng(5)
    hasher = MinHasher(128, seed=3)
    for size in random.integers(1, 400, 200):
        hashes = random.integers(0, 2**64, size, dtype=np.uint64)
        assert hasher.signature(hashes).tolist() == library_signature(hashes.tolist(), 128, 3)


def test_a_set_of_many_blocks_has_the_signature_of_the_library() -> None:
    hashes = np.random.default_rng(6).integers(0, 2**64, 10_000, dtype=np.uint64)
    assert MinHasher(128).signature(hashes).tolist() == library_signature(hashes.tolist(), 128, 1)


def test_an_object_of_the_library_compares_our_values_as_its_own() -> None:
    hashes = np.random.default_rng(8).integers(0, 2**64, (2, 300), dtype=np.uint64)
    hashes[1, :200] = hashes[0, :200]
    ours, theirs = [], []
    for row in hashes:
        signature = MinHasher(128).signature(row)
        ours.append(datasketch.MinHash(128, 1, scheme="affine32", hashvalues=signature))
        theirs.append(datasketch.MinHash(128, 1, hashfunc=lambda h: h, scheme="affine32"))
        theirs[-1].update_batch((row & np.uint64(0xFFFFFFFF)).tolist())
    assert ours[0].jaccard(ours[1]) == theirs[0].jaccard(theirs[1]) == ours[0].jaccard(theirs[1])
    assert 0.3 < ours[0].jaccard(ours[1]) < 0.7


def test_a_fast_signature_is_the_golden_vector_of_the_written_arithmetic() -> None:
    # by the plain Python of reference.py, for the words of "the cat sat on the mat"
    words = shingle_hashes("the cat sat on the mat", kind="word", width=1)
    eight = MinHasher(8, scheme="fast", seed=1).signature(words).tolist()
    twelve = MinHasher(12, scheme="fast", seed=7).signature(words).tolist()
    assert eight[:4] == [3115483237, 2911578893, 1153037070, 979496340]
    assert eight[4:] == [2222601238, 3581613927, 613145031, 1377200382]
    assert twelve[:4] == [680066396, 4240702807, 901310245, 3963216776]
    assert twelve[4:8] == [4068399514, 3743665286, 695182440, 968397989]
    assert twelve[8:] == [2929419135, 424383089, 2196230644, 2284736967]


@given(
    st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=60),
    st.sampled_from([8, 9, 12, 64, 100, 128, 1000]),
    st.integers(1, 2**31),
)
@settings(deadline=None, max_examples=60)
def test_fast_signatures_equal_the_written_arithmetic(hashes: set[int], k: int, seed: int) -> None:
    found = MinHasher(k, scheme="fast", seed=seed).signature(np.array(sorted(hashes), np.uint64))
    assert found.tolist() == fast_signature(hashes, k, seed)


@pytest.mark.parametrize("distinct", [1, 2, 150, 400])
@pytest.mark.parametrize("zero", [False, True])
def test_sets_hidden_in_many_repeats_have_the_written_signature(distinct: int, zero: bool) -> None:
    random = np.random.default_rng(distinct)
    hashes = random.integers(0, 2**64, distinct, dtype=np.uint64)
    hashes[0] = 0 if zero else hashes[0]  # 0 is also what an empty place of the table holds
    many = random.choice(hashes, 3000)
    many[:distinct] = hashes
    found = MinHasher(256, scheme="fast").signature(many)
    assert found.tolist() == fast_signature(set(hashes.tolist()), 256, 1)


def test_repeats_of_more_than_fit_the_table_change_nothing() -> None:
    # Asked directly, in Python: with so many no bin of a thousand is empty when repeats are looked for.
    hashes = np.random.default_rng(2).integers(1, 2**64, 10_000, dtype=np.uint64)
    distinct_if_few = inspect.unwrap(kernels._distinct_if_few)
    assert np.array_equal(distinct_if_few(hashes), hashes)
    few = distinct_if_few(np.tile(hashes[:8192], 2))
    assert np.array_equal(few, hashes[:8192])


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), SCHEMES)
@settings(deadline=None, max_examples=50)
def test_order_and_repetition_do_not_matter(values: list[int], scheme: Scheme) -> None:
    hasher = MinHasher(16, scheme=scheme)
    once = np.array(sorted(set(values)), np.uint64)
    again = np.array(values[::-1] * 2, np.uint64)
    assert np.array_equal(hasher.signature(once), hasher.signature(again))


@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
def test_sets_of_a_batch_do_not_meet(scheme: Scheme) -> None:
    hashes = np.random.default_rng(3).integers(0, 2**64, 500, dtype=np.uint64)
    hasher, ends = MinHasher(32, scheme=scheme), np.array([1, 4, 300, 500])
    each = [hasher.signature(part) for part in np.split(hashes, ends[:-1])]
    assert np.array_equal(hasher.signatures(hashes, ends), np.stack(each))


def test_the_scheme_names_kind_count_and_seed() -> None:
    assert MinHasher(128, seed=42).scheme == "datasketch-affine32/k=128/seed=42"
    assert MinHasher(64, scheme="fast").scheme == "fast-1/k=64/seed=1"


@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
def test_an_empty_set_has_no_signature(scheme: Scheme) -> None:
    hasher = MinHasher(8, scheme=scheme)
    with pytest.raises(UsageError, match="empty set"):
        hasher.signature(np.empty(0, np.uint64))
    with pytest.raises(UsageError, match="empty set"):
        hasher.signatures(np.ones(2, np.uint64), np.array([1, 1, 2]))


def test_an_estimate_is_the_share_of_equal_values() -> None:
    a = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.uint32)
    b = np.array([[1, 2, 3, 9], [9, 9, 9, 8]], np.uint32)
    assert estimate(a, b).tolist() == [0.75, 0.25]
    assert float(estimate(a[0], b[0])) == 0.75


def test_signatures_of_different_length_are_not_compared() -> None:
    with pytest.raises(UsageError, match=r"\(8,\) and \(16,\)"):
        estimate(np.zeros(8, np.uint32), np.zeros(16, np.uint32))


@pytest.mark.parametrize("scheme", ["fast", "datasketch"])
@pytest.mark.parametrize(("shared", "apart"), [(80, 20), (800, 200), (8, 2)])
def test_estimates_have_no_bias_and_no_more_than_the_error_of_theory(
    scheme: Scheme, shared: int, apart: int
) -> None:
    # Pairs that share 80 of 100 values: the deviation is sqrt(0.8 * 0.2 / 128) = 0.0354 for k
    # permutations. Sketches of 10 or 1000 are a little better.
    random = np.random.default_rng(11)
    hasher = MinHasher(128, scheme=scheme)
    found = []
    for _ in range(300):
        values = random.integers(0, 2**64, shared + apart, dtype=np.uint64)
        pair = values[: -apart // 2], values[apart // 2 :]
        found.append(float(estimate(*map(hasher.signature, pair))))
    assert abs(np.mean(found) - 0.8) < 4 * 0.0354 / math.sqrt(300)
    assert 0.020 < np.std(found) < 0.041
