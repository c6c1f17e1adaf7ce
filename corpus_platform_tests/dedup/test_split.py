import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.split import assign_split
from corpus_platform.errors import UsageError

DIGESTS = [hashlib.sha256(b"%d" % i).digest() for i in range(2000)]
ALL = np.ones(2000, np.bool_)
NONE = np.zeros(2000, np.bool_)


def fraction(digest: bytes, seed: bytes) -> float:
    keyed = hashlib.blake2b(digest, digest_size=8, key=seed).digest()
    return int.from_bytes(keyed, "big") / 2**64


def test_the_keyed_hash_of_the_content_decides() -> None:
    split = assign_split(DIGESTS, ALL, NONE, share=0.1, seed=42)
    expected = ["validation" if fraction(d, b"42") < 0.1 else "train" for d in DIGESTS]
    assert split.tolist() == expected
    assert 150 < expected.count("validation") < 250


def test_dropped_documents_have_no_split() -> None:
    kept = np.array([True, False, True])
    split = assign_split(DIGESTS[:3], kept, ALL[:3], share=0.5, seed=42)
    assert [side is None for side in split] == [False, True, False]


def test_the_smallest_hash_of_the_oldest_crawl_is_held_out_in_any_case() -> None:
    # blake2b of 8 bytes keyed '42' over sha256 of '0', '1', '2' begins with 08, 05, e7.
    split = assign_split(DIGESTS[:3], ALL[:3], ALL[:3], share=1e-9, seed=42)
    assert split.tolist() == ["train", "validation", "train"]


def test_it_must_be_kept_and_of_the_oldest_crawl() -> None:
    kept, oldest = np.array([True, False, True]), np.array([False, True, True])
    split = assign_split(DIGESTS[:3], kept, oldest, share=1e-9, seed=42)
    assert split.tolist() == ["train", None, "validation"]


def test_a_share_of_nothing_means_no_validation() -> None:
    assert set(assign_split(DIGESTS, ALL, ALL, share=0.0, seed=42)) == {"train"}


def test_of_equal_hashes_the_earliest_is_held_out() -> None:
    digests = [DIGESTS[0], DIGESTS[1], DIGESTS[1]]
    split = assign_split(digests, ALL[:3], ALL[:3], share=1e-9, seed=42)
    assert split.tolist() == ["train", "validation", "train"]


def test_no_documents_have_no_split() -> None:
    assert assign_split([], ALL[:0], ALL[:0], share=0.1, seed=42).tolist() == []


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share = "):
        assign_split(DIGESTS, ALL, ALL, share=share, seed=42)


def test_another_seed_holds_out_others() -> None:
    one, other = (assign_split(DIGESTS, ALL, NONE, share=0.1, seed=s) for s in (42, 43))
    assert (one != other).any()


@given(st.integers(1, 50), st.integers(0, 49), st.floats(0.001, 0.9), st.integers(0, 2**70))
@settings(deadline=None, max_examples=100)
def test_a_later_crawl_moves_no_document(first: int, more: int, share: float, seed: int) -> None:
    total = first + more
    oldest = np.arange(total) < first
    before = assign_split(DIGESTS[:first], ALL[:first], oldest[:first], share=share, seed=seed)
    after = assign_split(DIGESTS[:total], ALL[:total], oldest, share=share, seed=seed)
    assert after[:first].tolist() == before.tolist()
    assert "validation" in before.tolist()
