import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.packing.shuffle import document_keys

MASK = 2**64 - 1


def splitmix64(state: int, count: int) -> list[int]:
    """The published generator, step by step in Python integers."""
    outputs = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        outputs.append(z ^ (z >> 31))
    return outputs


def test_the_slow_version_is_the_published_splitmix64() -> None:
    assert splitmix64(1234567, 3) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_a_shard_is_a_splitmix64_stream_addressed_by_row() -> None:
    state = hashlib.blake2b(b"42\x002026-40/part-00000", digest_size=8).digest()
    expected = splitmix64(int.from_bytes(state, "little"), 5)
    keys = document_keys(42, "2026-40/part-00000", np.array([4, 0, 2]))
    assert keys.dtype == np.uint64
    assert keys.tolist() == [expected[4], expected[0], expected[2]]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.integers(0, 19))
@settings(deadline=None, max_examples=50)
def test_the_key_of_a_row_ignores_the_rows_beside_it(rows: list[int], pick: int) -> None:
    one = rows[pick % len(rows)]
    together = document_keys(1, "a/b", np.array(rows))[pick % len(rows)]
    assert together == document_keys(1, "a/b", np.array([one]))[0]


def test_seed_and_shard_each_change_the_keys() -> None:
    rows = np.arange(3)
    streams = [
        document_keys(1, "a", rows),
        document_keys(2, "a", rows),
        document_keys(1, "b", rows),
    ]
    assert len({key for stream in streams for key in stream.tolist()}) == 9


def shuffled(shards: list[str]) -> list[tuple[str, int]]:
    """Return (shard, row) in shuffled order of 250 documents a shard, listed in a given order."""
    rows = np.arange(250)
    listed = [(shard, int(row)) for shard in shards for row in rows]
    keys = np.concatenate([document_keys(42, shard, rows) for shard in shards])
    ranks = np.repeat([sorted(shards).index(shard) for shard in shards], 250)
    return [listed[i] for i in np.lexsort((np.tile(rows, len(shards)), ranks, keys))]


def test_sh_01_the_order_ignores_the_order_in_which_shards_are_listed() -> None:
    names = ["bin-1", "bin-2", "bin-10"]
    assert shuffled(names) == shuffled(names[::-1]) == shuffled(["bin-10", "bin-1", "bin-2"])


def test_a_new_shard_only_inserts_documents() -> None:
    before = shuffled(["a", "b"])
    assert [document for document in shuffled(["a", "b", "new"]) if document[0] != "new"] == before


def test_sh_04_the_shuffle_mixes_a_thousand_documents_of_four_shards() -> None:
    found = shuffled(["a", "b", "c", "d"])
    old = np.array(["abcd".index(shard) * 250 + row for shard, row in found])
    assert sorted(old.tolist()) == list(range(1000))
    assert np.abs(np.arange(1000) - old).mean() > 250  # a uniform permutation: 333
    assert int((np.diff(old) == 1).sum()) < 10  # about 1
    assert {shard for shard, _ in found[:50]} == {"a", "b", "c", "d"}
