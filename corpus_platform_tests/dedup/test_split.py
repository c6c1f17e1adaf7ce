import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.split import Split, assign_split, content_keys
from corpus_platform.errors import UsageError

DIGESTS = np.frombuffer(
    b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(2000)), np.uint8
).reshape(-1, 32)
KEYS = content_keys(DIGESTS, 42)
ALL = np.ones(2000, np.bool_)
NONE = np.zeros(2000, np.bool_)
N, T, V = Split.NONE, Split.TRAIN, Split.VALIDATION


def keys_of(*keys: int) -> npt.NDArray[np.uint64]:
    return np.array(keys, np.uint64)


def slow_key(digest: bytes, seed: int) -> int:
    """splitmix64 (Steele, Lea and Flood 2014) of eight bytes and the key, in Python's integers."""
    key = int.from_bytes(hashlib.sha256(b"%d" % seed).digest()[:8], "little")
    z = ((int.from_bytes(digest[:8], "little") ^ key) + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_keys_are_those_of_integers_one_by_one() -> None:
    assert KEYS.tolist() == [slow_key(bytes(digest), 42) for digest in DIGESTS]


def test_the_sides_have_the_numbers_that_are_stored() -> None:
    assert (int(N), int(T), int(V)) == (0, 1, 2)


def test_the_key_of_the_content_decides() -> None:
    split = assign_split(KEYS, ALL, NONE, share=0.1)
    expected = [V if key / 2**64 < 0.1 else T for key in KEYS.tolist()]
    assert split.dtype == np.uint8
    assert split.tolist() == expected
    assert 150 < expected.count(V) < 250


def test_dropped_documents_have_no_split() -> None:
    kept = np.array([True, False, True])
    assert assign_split(keys_of(1, 2, 2**63), kept, ALL[:3], share=0.5).tolist() == [V, N, T]


def test_a_key_just_at_the_share_is_in_train() -> None:
    keys = keys_of(2**62 - 1, 2**62, 2**62 + 1)
    assert assign_split(keys, ALL[:3], NONE[:3], share=0.25).tolist() == [V, T, T]


def test_the_smallest_key_of_the_oldest_crawl_is_held_out_in_any_case() -> None:
    keys = keys_of(2**62 + 2, 2**62, 2**62 + 1)
    assert assign_split(keys, ALL[:3], ALL[:3], share=1e-9).tolist() == [T, V, T]


def test_it_must_be_kept_and_of_the_oldest_crawl() -> None:
    kept, oldest = np.array([True, False, True]), np.array([False, True, True])
    keys = keys_of(2**62, 2**61, 2**63)
    assert assign_split(keys, kept, oldest, share=1e-9).tolist() == [T, N, V]


def test_the_highest_key_is_held_out_where_it_is_the_only_one() -> None:
    assert assign_split(keys_of(2**64 - 1), ALL[:1], ALL[:1], share=0.1).tolist() == [V]


def test_a_share_of_nothing_means_no_validation() -> None:
    assert set(assign_split(KEYS, ALL, ALL, share=0.0).tolist()) == {T}


def test_of_equal_keys_the_earliest_is_held_out() -> None:
    keys = keys_of(2**63, 2**62, 2**62)
    assert assign_split(keys, ALL[:3], ALL[:3], share=1e-9).tolist() == [T, V, T]


def test_no_documents_have_no_split() -> None:
    assert content_keys(DIGESTS[:0], 42).tolist() == []
    assert assign_split(KEYS[:0], ALL[:0], ALL[:0], share=0.1).tolist() == []


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share = "):
        assign_split(KEYS, ALL, ALL, share=share)


def test_digests_of_another_length_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\(2000, 31\)"):
        content_keys(DIGESTS[:, :31], 42)


def test_another_seed_holds_out_others() -> None:
    other = content_keys(DIGESTS, 43)
    both = (KEYS < 2**61) & (other < 2**61)
    # An eighth each: of 2,000 about 31 in both, as of two seeds that know nothing of each other.
    assert 10 < np.count_nonzero(both) < 60


@given(st.integers(1, 50), st.integers(0, 49), st.floats(0.001, 0.9), st.integers(0, 2**70))
@settings(deadline=None, max_examples=100)
def test_a_later_crawl_moves_no_document(first: int, more: int, share: float, seed: int) -> None:
    total, keys = first + more, content_keys(DIGESTS, seed)
    oldest = np.arange(total) < first
    before = assign_split(keys[:first], ALL[:first], oldest[:first], share=share)
    after = assign_split(keys[:total], ALL[:total], oldest, share=share)
    assert after[:first].tolist() == before.tolist()
    assert V in before.tolist()
