import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup import kernels
from corpus_platform.dedup.shingles import shingle_hashes, shingles_of
from corpus_platform.errors import UsageError
from corpus_platform.text.units import UnitKind
from corpus_platform_tests.dedup.reference import (
    finish,
    shingles,
    text_hash,
    unit_hash,
    window_hash,
    windows,
)

PIECES = st.one_of(
    st.text("ab 中文ไ〇!é\U0001f600\U00020000", max_size=30),
    st.text("abc 1", min_size=100, max_size=200),
)
TEXTS = st.lists(PIECES, max_size=3).map("".join)
KINDS = st.sampled_from(get_args(UnitKind))


@given(TEXTS, KINDS, st.integers(1, 64))
@settings(deadline=None, max_examples=200)
def test_hashes_equal_the_written_arithmetic(text: str, kind: UnitKind, width: int) -> None:
    found = shingle_hashes(text, kind=kind, width=width)
    assert found.dtype == np.uint64
    assert found.tolist() == shingles(text, kind, width)


@given(st.lists(TEXTS, max_size=5), KINDS, st.integers(1, 9))
@settings(deadline=None, max_examples=100)
def test_texts_of_a_batch_do_not_meet(texts: list[str], kind: UnitKind, width: int) -> None:
    found = shingles_of([text.encode() for text in texts], kind=kind, width=width)
    starts = [0, *found.ends.tolist()]
    each = [found.hashes[a:b].tolist() for a, b in zip(starts, found.ends.tolist(), strict=False)]
    assert each == [windows(text, kind, width) for text in texts]


@pytest.mark.parametrize("width", range(1, 65))
def test_every_width_joins_as_written(width: int) -> None:
    text = "中文 is written without blanks, " * 5
    assert shingle_hashes(text, kind="char", width=width).tolist() == shingles(text, "char", width)


@pytest.mark.parametrize("units", [1023, 1024, 1025, 1028, 1029, 2048, 2052])
@pytest.mark.parametrize("width", [1, 5, 64])
def test_block_borders_change_nothing(units: int, width: int) -> None:
    assert kernels._BLOCK == 1024
    text = "".join(chr(0x4E00 + i) for i in range(units))
    found = shingles_of([text.encode()], kind="auto", width=width).hashes
    assert found.tolist() == windows(text, "auto", width)


def test_the_golden_hashes_of_some_shingles() -> None:
    # by the plain Python of reference.py
    assert shingle_hashes("the cat sat on the mat", kind="auto", width=5).tolist() == (
        [8709693575917758932, 14211331758851268917]
    )
    assert shingle_hashes("中文字", kind="char", width=2).tolist() == (
        [578923188098499036, 760196623833811975]
    )


def test_five_character_windows_are_those_of_the_source_document() -> None:
    # "abcdef" -> {"abcde", "bcdef"}
    wanted = [window_hash([unit_hash(c) for c in part]) for part in ("abcde", "bcdef")]
    assert shingle_hashes("abcdef", kind="char", width=5).tolist() == sorted(wanted)


def test_fewer_units_than_the_width_make_one_shingle() -> None:
    words = [unit_hash(word) for word in ("ash", "tree", "by", "river")]
    found = shingle_hashes("ash tree by river", kind="auto", width=5)
    assert found.tolist() == [window_hash(words)]


def test_four_units_are_no_window_of_a_longer_text() -> None:
    short = shingle_hashes("a b c d", kind="auto", width=5)
    long = shingle_hashes("a b c d e f", kind="auto", width=5)
    assert not np.intersect1d(short, long).size


def test_texts_without_units_have_a_shingle_each_and_differ() -> None:
    texts = ["!!!", "!!! !!!", "…", "👍", "", "\0", "\0\0"]
    hashes = [shingle_hashes(text, kind="auto", width=5).item() for text in texts]
    assert hashes == [finish(text_hash(text), 0) for text in texts]
    assert len(set(hashes)) == 7


def test_a_text_without_units_is_no_shingle_of_another_text() -> None:
    # For `char` '!' is a unit: the same bytes, another domain.
    assert shingle_hashes("!", kind="auto", width=5) != shingle_hashes("!", kind="char", width=5)


def test_order_of_units_matters_and_repetition_does_not() -> None:
    assert shingle_hashes("a b a b a b a b", kind="auto", width=2).size == 2
    assert not np.array_equal(
        shingle_hashes("a b", kind="auto", width=2), shingle_hashes("b a", kind="auto", width=2)
    )


def test_one_character_a_hundred_thousand_times_is_one_shingle() -> None:
    assert shingle_hashes("x" * 100_000, kind="char", width=5).size == 1
    assert shingle_hashes("中" * 100_000, kind="auto", width=5).size == 1


def test_windows_built_to_cancel_out_differ() -> None:
    # Thue and Morse: as characters of a window of 64, and as words of one.
    def thue_morse(a: str, b: str) -> str:
        return "".join((a, b)[i.bit_count() % 2] for i in range(64))

    for kind, pair in (("char", ("a", "b")), ("auto", ("alpha ", "beta "))):
        texts = [thue_morse(*pair), thue_morse(*pair[::-1])]
        first, second = (shingle_hashes(t.strip(), kind=kind, width=64) for t in texts)
        assert first.size == second.size == 1
        assert first != second


def test_all_windows_of_two_letters_have_hashes_of_their_own() -> None:
    # A de Bruijn sequence holds each of the 2^16 words of 16 letters once.
    bits, seen = "0" * 16, {"0" * 16}
    while len(seen) < 1 << 16:
        ahead = next(d for d in "10" if bits[-15:] + d not in seen)
        bits += ahead
        seen.add(bits[-16:])
    hashes = shingle_hashes(bits, kind="char", width=16)
    assert hashes.size == 1 << 16
    # Low halves, which the `datasketch` scheme takes: 2^32 / 2^33 = half a pair is expected.
    assert np.unique(hashes & np.uint64(0xFFFFFFFF)).size > (1 << 16) - 6


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="width = 0"):
        shingle_hashes("a", kind="auto", width=0)


# The text is made piece by piece: the peak of the process must be that of signing it.
MEASURE = """
import resource, sys
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup_settings import DedupSettings
signer = Signer(DedupSettings(shingle=sys.argv[1]))
signer.sign(["warm up"])
text = bytearray()
for i in range(0, 5_000_000, 10_000):
    words = [f"{j:06x}" for j in range(i, i + 10_000)]
    text += (" ".join(words) + " " if sys.argv[1] == "word" else "中a" * 5_000).encode()
text = text.decode()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = signer.sign([text]).shingles.item()
print(found, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word", "char"])
def test_a_document_of_five_million_shingles_takes_150_mb_more(kind: str) -> None:
    command = [sys.executable, "-c", MEASURE, kind]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    found, more = result.stdout.split()
    assert int(found) == 4_999_996
    assert float(more) < 110  # beyond a peak that held the text twice, of 35 MB
