import math

import datasketch
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.minhash import MinHasher, estimate
from corpus_platform.errors import UsageError


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


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
@settings(deadline=None, max_examples=50)
def test_order_and_repetition_do_not_matter(values: list[int]) -> None:
    hasher = MinHasher(16)
    once = np.array(sorted(set(values)), np.uint64)
    again = np.array(values[::-1] * 2, np.uint64)
    assert np.array_equal(hasher.signature(once), hasher.signature(again))


def test_the_scheme_names_library_count_seed_and_shingles() -> None:
    assert MinHasher(128, seed=42).scheme == "datasketch-affine32/k=128/seed=42/xxh3-poly-1"


def test_an_empty_set_has_no_signature() -> None:
    with pytest.raises(UsageError, match="empty set"):
        MinHasher(8).signature(np.empty(0, np.uint64))


def test_an_estimate_is_the_share_of_equal_values() -> None:
    a = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.uint32)
    b = np.array([[1, 2, 3, 9], [9, 9, 9, 8]], np.uint32)
    assert estimate(a, b).tolist() == [0.75, 0.25]
    assert float(estimate(a[0], b[0])) == 0.75


def test_signatures_of_different_length_are_not_compared() -> None:
    with pytest.raises(UsageError, match=r"\(8,\) and \(16,\)"):
        estimate(np.zeros(8, np.uint32), np.zeros(16, np.uint32))


def test_estimates_have_no_bias_and_the_error_of_theory() -> None:
    # 300 pairs that share 80 of 100 values: the deviation is sqrt(0.8 * 0.2 / 128) = 0.0354.
    random = np.random.default_rng(11)
    hasher = MinHasher(128)
    found = []
    for _ in range(300):
        values = random.integers(0, 2**64, 100, dtype=np.uint64)
        found.append(float(estimate(hasher.signature(values[:90]), hasher.signature(values[10:]))))
    assert abs(np.mean(found) - 0.8) < 4 * 0.0354 / math.sqrt(300)
    assert 0.030 < np.std(found) < 0.041
