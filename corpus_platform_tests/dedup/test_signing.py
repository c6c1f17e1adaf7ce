import hashlib
import subprocess
import sys
import unicodedata
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup import signing
from corpus_platform.dedup.bands import band_hashes
from corpus_platform.dedup.minhash import Scheme
from corpus_platform.dedup.signing import Signer, scheme_of
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.text.folding import fold
from corpus_platform.text.units import UnitKind
from corpus_platform_tests.dedup.reference import fast_signature, shingles, windows

TEXTS = st.lists(st.text("aB 中ไ!é\n\U0001f600", max_size=30), max_size=6)
SMALL = DedupSettings(permutations=16, bands=4, rows=4)


def test_the_scheme_names_all_that_signatures_depend_on() -> None:
    assert scheme_of(DedupSettings()) == "fast-1/k=128/seed=1/auto-5/tree-1/sha256-folded"
    other = DedupSettings(
        scheme="datasketch", permutations=64, bands=16, rows=4, shingle="char", width=9, exact="raw"
    )
    assert scheme_of(other, seed=3) == ("datasketch-affine32/k=64/seed=3/char-9/tree-1/sha256-raw")
    assert Signer(SMALL).scheme == scheme_of(SMALL)


@given(TEXTS, st.sampled_from(get_args(UnitKind)), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_a_document_is_signed_as_written(texts: list[str], kind: UnitKind, width: int) -> None:
    dedup = SMALL.model_copy(update={"shingle": kind, "width": width})
    signed = Signer(dedup).sign(texts)
    folded = [fold(text) for text in texts]
    assert [row.tobytes() for row in signed.digests] == (
        [hashlib.sha256(text.encode()).digest() for text in folded]
    )
    assert signed.bytes.tolist() == [len(text.encode()) for text in texts]
    assert signed.shingles.tolist() == [len(windows(text, kind, width)) for text in folded]
    sketches = [fast_signature(set(shingles(text, kind, width)), 16, 1) for text in folded]
    assert signed.signatures.tolist() == sketches
    assert np.array_equal(signed.bands, band_hashes(signed.signatures, 4, 4))


def test_shapes_and_types_are_those_of_the_settings_also_for_no_text() -> None:
    for texts in ([], ["one text", "another one"]):
        signed = Signer(DedupSettings(permutations=64, bands="auto")).sign(texts)
        n, (b, _) = len(texts), DedupSettings(permutations=64, bands="auto").banding
        shapes = [(column.shape, column.dtype.name) for column in signed]
        assert shapes == [
            ((n, 32), "uint8"),
            ((n,), "int64"),
            ((n,), "int64"),
            ((n, 64), "uint32"),
            ((n, b), "uint64"),
        ]


def test_raw_digests_tell_apart_what_folding_makes_equal() -> None:
    texts = ["x = 1", "X  =\n1"]
    folded = Signer(SMALL).sign(texts)
    raw = Signer(SMALL.model_copy(update={"exact": "raw"})).sign(texts)
    assert np.array_equal(folded.digests[0], folded.digests[1])
    assert [row.tobytes() for row in raw.digests] == (
        [hashlib.sha256(text.encode()).digest() for text in texts]
    )
    assert np.array_equal(raw.signatures, folded.signatures)


@pytest.mark.parametrize("scheme", get_args(Scheme))
def test_batches_change_nothing(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {i} " * (i % 9) for i in range(60)]
    signer = Signer(SMALL.model_copy(update={"scheme": scheme}))
    whole, sets = signer.sign(texts), signer.shingle_sets(texts)
    for characters in (1, 50, 10_000):
        monkeypatch.setattr(signing, "_BATCH_CHARACTERS", characters)
        assert all(map(np.array_equal, signer.sign(texts), whole))
        assert all(map(np.array_equal, signer.shingle_sets(texts), sets))


@given(TEXTS)
@settings(deadline=None, max_examples=50)
def test_sets_are_distinct_ascending_and_sign_to_the_same(texts: list[str]) -> None:
    signer = Signer(SMALL)
    flat, ends = signer.shingle_sets(texts)
    assert flat.dtype == np.uint64
    assert ends.dtype == np.int64
    starts = [0, *ends.tolist()]
    found = [flat[a:b].tolist() for a, b in zip(starts, ends.tolist(), strict=False)]
    assert found == [shingles(fold(text), "auto", 5) for text in texts]
    assert np.array_equal(signer.signatures_of(flat, ends), signer.sign(texts).signatures)


def test_case_blanks_and_composition_do_not_count() -> None:
    text = "Caf\u00e9 cr\u00e8me, and a\n second   line"
    signed = Signer(SMALL).sign([text, unicodedata.normalize("NFD", text).upper() + " \t"])
    assert np.array_equal(signed.digests[0], signed.digests[1])
    assert np.array_equal(signed.signatures[0], signed.signatures[1])


def test_the_golden_signature_of_a_sentence() -> None:
    # by the plain Python of reference.py
    signed = Signer(DedupSettings()).sign(["The quick brown fox jumps over the lazy dog. " * 2])
    assert signed.shingles.tolist() == [14]
    assert signed.signatures[0, :4].tolist() == [1809403921, 472912002, 2884240245, 1541731068]
    assert signed.signatures[0, 4:8].tolist() == [2031729125, 156009381, 1803170117, 1861087127]
    assert signed.digests[0].tobytes().hex() == (
        # printf 'the quick brown fox jumps over the lazy dog. the quick ... dog.' | sha256sum
        "f812624690885876c62050bd283a08e914c2c89e5ab6a8b8eac3eb6baa5ca709"
    )


def test_other_seeds_give_other_signatures_of_the_same_texts() -> None:
    first, second = (Signer(SMALL, seed=seed).sign(["some words in a row"]) for seed in (1, 2))
    assert not np.any(first.signatures == second.signatures)
    assert np.array_equal(first.digests, second.digests)


def test_the_command_line_and_scheme_names_load_no_numba() -> None:
    code = (
        "import sys, corpus_platform.cli, corpus_platform.dedup.signing as s\n"
        "from corpus_platform.dedup_settings import DedupSettings\n"
        "s.scheme_of(DedupSettings())\n"
        "print('numba' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
