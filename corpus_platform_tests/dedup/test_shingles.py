import tracemalloc
from typing import get_args

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup import shingles
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.errors import UsageError
from corpus_platform.text.units import UnitKind, split_units

MASK = 2**64 - 1
TEXTS = st.text("ab 中文!é\U0001f600", max_size=60)
KINDS = st.sampled_from(get_args(UnitKind))


def slow_hash(units: tuple[str, ...]) -> int:
    """The arithmetic of the module's head in Python integers."""
    h = 0
    for unit in units:
        h = (h * 0xD1342543DE82EF95 + xxhash.xxh3_64_intdigest(unit.encode())) & MASK
    return slow_mix(h + len(units) * 0x9E3779B97F4A7C15)


def slow_mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow_shingles(text: str, kind: UnitKind, width: int) -> list[int]:
    units = split_units(text, kind)
    if not units:
        return [slow_mix(xxhash.xxh3_64_intdigest(text.encode(), seed=1))]
    windows = {tuple(units[i : i + width]) for i in range(max(1, len(units) - width + 1))}
    return sorted(slow_hash(window) for window in windows)


@given(TEXTS, KINDS, st.integers(1, 7))
@settings(deadline=None, max_examples=300)
def test_hashes_equal_the_written_arithmetic(text: str, kind: UnitKind, width: int) -> None:
    found = shingle_hashes(text, kind=kind, width=width)
    assert found.dtype == np.uint64
    assert found.tolist() == slow_shingles(text, kind, width)


@pytest.mark.parametrize("kind", get_args(UnitKind))
@pytest.mark.parametrize("width", [1, 2, 5, 64])
def test_block_borders_change_nothing(
    kind: UnitKind, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(f"w{i} 中{chr(0x4E00 + i)}" for i in range(90))
    whole = shingle_hashes(text, kind=kind, width=width)
    for size in (1, 3, 50):
        monkeypatch.setattr(shingles, "_BLOCK_CHARACTERS", size)
        assert np.array_equal(shingle_hashes(text, kind=kind, width=width), whole)


def test_five_character_windows_are_those_of_the_source_document() -> None:
    # "abcdef" -> {"abcde", "bcdef"}
    assert shingle_hashes("abcdef", kind="char", width=5).tolist() == (
        sorted([slow_hash(tuple("abcde")), slow_hash(tuple("bcdef"))])
    )


def test_fewer_units_than_the_width_make_one_shingle() -> None:
    assert shingle_hashes("ash tree by river", kind="auto", width=5).tolist() == (
        [slow_hash(("ash", "tree", "by", "river"))]
    )


def test_four_units_are_no_window_of_a_longer_text() -> None:
    short = shingle_hashes("a b c d", kind="auto", width=5)
    long = shingle_hashes("a b c d e f", kind="auto", width=5)
    assert not np.intersect1d(short, long).size


def test_texts_without_units_have_a_shingle_each_and_differ() -> None:
    hashes = {
        shingle_hashes(t, kind="auto", width=5).item() for t in ["!!!", "!!! !!!", "…", "👍", ""]
    }
    assert len(hashes) == 5


def test_order_of_units_matters_and_repetition_does_not() -> None:
    assert shingle_hashes("a b a b a b a b", kind="auto", width=2).size == 2
    assert not np.array_equal(
        shingle_hashes("a b", kind="auto", width=2), shingle_hashes("b a", kind="auto", width=2)
    )


def test_one_character_a_hundred_thousand_times_is_one_shingle() -> None:
    assert shingle_hashes("x" * 100_000, kind="char", width=5).size == 1
    assert shingle_hashes("中" * 100_000, kind="auto", width=5).size == 1


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="width = 0"):
        shingle_hashes("a", kind="auto", width=0)


def test_memory_is_under_fifty_bytes_a_unit() -> None:
    text = " ".join(f"{i:x}" for i in range(400_000))
    shingle_hashes("中 warm up", kind="auto", width=5)
    tracemalloc.start()
    try:
        hashes = shingle_hashes(text, kind="auto", width=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hashes.size == 399_996
    assert peak < 50 * 400_000
