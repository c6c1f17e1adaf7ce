from collections.abc import Sequence
from itertools import chain
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.text.kernels import hash_units, unit_classes
from corpus_platform.text.units import UnitKind, split_units
from corpus_platform_tests.dedup.reference import text_hash, unit_hash

KINDS = get_args(UnitKind)
ALPHABET = "abcxyz019_ .-\n\0\u0301é²ß中文々〇。ーか゛ไทย้ລາវខ្មែမြန်हिन्दीعَر한\U0001f600\U00020000\U000e0100\U00010400\U0001d7ce\U0010ffff"
# Long stretches of ASCII take another way through the kernel than the rest.
PIECES = st.one_of(
    st.text(ALPHABET, max_size=12), st.text("abcdefgh_1 ", min_size=100, max_size=300)
)
TEXTS = st.lists(PIECES, max_size=4).map("".join)


def hashed(
    texts: Sequence[str], kind: UnitKind, room: int | None = None
) -> tuple[list[int], list[int]]:
    """Return the hashes of all texts, and the number of units of each."""
    encoded = [text.encode() for text in texts]
    data, ends = np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(e) for e in encoded])
    counts = np.empty(len(texts), np.int64)
    hashes = np.zeros(data.size + len(texts) if room is None else room, np.uint64)
    found = hash_units(data, ends, unit_classes(kind), hashes, counts)
    return hashes[:found].tolist(), counts.tolist()


def expected(texts: Sequence[str], kind: UnitKind) -> tuple[list[int], list[int]]:
    units = [split_units(text, kind) for text in texts]
    pairs = zip(texts, units, strict=True)
    hashes = [[unit_hash(u) for u in found] or [text_hash(text)] for text, found in pairs]
    return [*chain.from_iterable(hashes)], [len(found) for found in units]


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(KINDS))
@settings(deadline=None, max_examples=100)
def test_units_are_those_of_the_patterns_with_the_written_hashes(
    texts: Sequence[str], kind: UnitKind
) -> None:
    assert hashed(texts, kind) == expected(texts, kind)


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(KINDS))
@settings(deadline=None, max_examples=1000)
def test_units_of_many_texts_are_those_of_the_patterns(
    texts: Sequence[str], kind: UnitKind
) -> None:
    assert hashed(texts, kind) == expected(texts, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_character_of_unicode_has_the_class_that_the_patterns_give_it(kind: UnitKind) -> None:
    # Between two letters: a character that separates makes two units, one of a run none, a lone
    # unit three.
    surrogates = range(0xD800, 0xE000)  # of no UTF-8
    points = [p for p in (*range(0x40000), *range(0xE0000, 0xE1000)) if p not in surrogates]
    text = "".join(f"a{chr(p)}a." for p in points)
    units = split_units(text, kind)
    assert hashed([text], kind)[1] == [len(units)]
    if kind != "char":
        table = unit_classes(kind)[points]
        assert len(units) == len(points) + (table == 0).sum() + 2 * (table == 2).sum()


@pytest.mark.parametrize("kind", ["auto", "word"])
def test_no_ascii_character_is_a_unit_alone(kind: UnitKind) -> None:
    assert set(unit_classes(kind)[:128].tolist()) == {0, 1}


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 127, 128, 129, 255, 256, 257, 1000])
@pytest.mark.parametrize("before", [0, 1, 100, 127, 128])
def test_words_at_the_borders_of_blocks_stay_whole(length: int, before: int) -> None:
    texts = ["." * before + "x" * length + " yy " + "é" * length + " end" + "." * 140]
    assert hashed(texts, "auto") == expected(texts, "auto")


def test_the_golden_hashes_of_some_units() -> None:
    # by the plain Python of dedup/reference.py
    hashes, counts = hashed(["a deoxyribonucleic 中文", "!!!", ""], "auto")
    assert counts == [4, 0, 0]
    assert hashes[:4] == [
        9452016943167857670,
        16195608838306791689,
        1287007489942710944,
        1306728578333947939,
    ]
    assert hashes[4:] == [4654085511554434290, 6338801694527056906]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_room_is_counted_and_not_written(kind: UnitKind) -> None:
    texts = ["one two three 中文 " + "four five " * 40, "!!!", "", "six"]
    whole, counts = hashed(texts, kind)
    for room in (0, 1, 3, 50):
        found, again = hashed(texts, kind, room)
        assert (found, again) == (whole[:room], counts)


def test_words_built_to_cancel_out_have_hashes_of_their_own() -> None:
    # Thue and Morse: their words collide in every polynomial modulo 2^64, whatever its base.
    def thue_morse(a: str, b: str) -> str:
        return "".join((a, b)[i.bit_count() % 2] for i in range(1 << 12))

    words = [thue_morse("a", "b"), thue_morse("b", "a")]
    words += [thue_morse("abcdefgh", "abcdefgi"), thue_morse("abcdefgi", "abcdefgh")]
    hashes, counts = hashed(words, "word")
    assert counts == [1, 1, 1, 1]
    assert len(set(hashes)) == 4


def test_a_hundred_thousand_short_units_collide_nowhere() -> None:
    words = [f"{i:x}" for i in range(50_000)] + [f"w{i}" for i in range(50_000)]
    hashes, _ = hashed([" ".join(words)], "word")
    assert len(set(hashes)) == len(set(words))
    assert len({h & 0xFFFFFFFF for h in hashes}) > len(set(words)) - 10
