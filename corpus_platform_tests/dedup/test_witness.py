"""A sound signer is confirmed, and planted faults of hashes and signatures are seen by the gate."""

import datetime
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from corpus_platform.config import ChecksSettings
from corpus_platform.dedup.shingles import Shingles
from corpus_platform.dedup.signing import Signed, Signer
from corpus_platform.dedup.witness import Witness, witness
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.gates import Finding, judge

SCHEMES = ("fast", "datasketch")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
Signatures = np.ndarray


def _texts(count: int, words: int, seed: int = 1) -> list[str]:
    """Return texts of unlike words, so that nearly all shingles differ."""
    chance = random.Random(seed)
    return [
        " ".join("".join(chance.choices(LETTERS, k=chance.randint(2, 9))) for _ in range(words))
        for _ in range(count)
    ]


def _signer(scheme: str, **settings) -> Signer:
    return Signer(DedupSettings(scheme=scheme, **settings))  # ty: ignore


def _judged(found: Witness) -> Finding:
    numbers = {
        "estimate_pairs": found.pairs,
        "estimate_ratio": found.ratio,
        "estimate_bias": found.bias,
        "witness_ratio": found.witness_ratio,
    }
    findings = judge(
        "minhash_signatures",
        "a/b",
        numbers,
        checks=ChecksSettings(),
        waivers=(),
        today=datetime.date(2026, 11, 30),
    )
    return next(f for f in findings if f.gate == "estimates")


def _witnessed(signer: Signer, texts: Sequence[str], seed: int = 5) -> Witness:
    return witness(texts, signer.sign(texts).signatures, signer, seed=seed)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shingle", ["auto", "char"])
def test_a_sound_signer_errs_as_theory_says(scheme: str, shingle: str) -> None:
    # From k shingles on: of fewer a fast sketch errs less than theory says.
    words = 150 if shingle == "auto" else 60
    found = _witnessed(_signer(scheme, shingle=shingle), _texts(200, words))
    assert found.pairs == 200
    assert 0.7 < found.ratio < 1.3  # four standard errors: 4 / sqrt(400) = 0.2
    assert abs(found.bias) < 4
    assert 0.7 < found.witness_ratio < 1.3
    assert _judged(found).passed


class _Constant(Signer):
    """All documents have one signature."""

    def sign(self, texts: Sequence[str]) -> Signed:
        found = super().sign(texts)
        return found._replace(signatures=np.zeros_like(found.signatures))


class _FourBits(Signer):
    """The hash of a shingle has 16 values."""

    def _shingles(self, folded: Sequence[bytes]) -> Shingles:
        found = super()._shingles(folded)
        return Shingles(found.hashes & np.uint64(15), found.ends)


class _Shuffled(Signer):
    """The values of a signature stand in an order of their own."""

    order = np.random.default_rng(3)

    def sign(self, texts: Sequence[str]) -> Signed:
        found = super().sign(texts)
        return found._replace(signatures=self.order.permuted(found.signatures, axis=1))


class _OnePermutation(Signer):
    """All values are made by the first permutation."""

    def sign(self, texts: Sequence[str]) -> Signed:
        found = super().sign(texts)
        first = np.repeat(found.signatures[:, :1], self.dedup.permutations, axis=1)
        return found._replace(signatures=first)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("faulty", [_Constant, _FourBits, _Shuffled, _OnePermutation])
def test_a_faulty_hash_is_seen(faulty: Callable[[DedupSettings], Signer], scheme: str) -> None:
    found = _witnessed(faulty(DedupSettings(scheme=scheme)), _texts(32, 150))  # ty: ignore
    assert found.pairs == 32
    assert _judged(found).blocks
    assert found.witness_ratio < 1.75  # datasketch is not what is wrong


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signatures_of_other_documents_are_seen(scheme: str) -> None:
    signer, texts = _signer(scheme), _texts(32, 150)
    stored = np.roll(signer.sign(texts).signatures, 1, axis=0)
    assert _judged(witness(texts, stored, signer, seed=5)).blocks


@pytest.mark.parametrize("seeds", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_fault_free_signer_passes_whatever_the_seed(scheme: str, seeds: int) -> None:
    signer, texts = _signer(scheme), _texts(16, 60)
    stored = signer.sign(texts).signatures
    found = [witness(texts, stored, signer, seed=seed) for seed in range(seeds)]
    assert {f.pairs for f in found} == {16}
    assert [f for f in found if not _judged(f).passed] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_that_are_alike_prove_no_more_than_one(scheme: str) -> None:
    (text,) = _texts(1, 150)
    pages = [f"{text} page {i}" for i in range(30)] + [text] * 30
    assert _witnessed(_signer(scheme), pages).pairs == 1


def test_texts_too_short_or_without_a_smaller_part_are_left_out() -> None:
    texts = ["", "!!!", "one two three", "the same four words " * 200, *_texts(2, 100)]
    assert _witnessed(_signer("fast"), texts).pairs == 2


def test_a_shard_without_a_fitting_text_has_no_pairs_and_passes() -> None:
    signer = _signer("fast")
    empty = np.empty((0, 128), np.uint32)
    assert witness([], empty, signer, seed=1) == (0, 0.0, 0.0, 0.0)
    assert _judged(_witnessed(signer, ["short"])).passed


def test_a_long_text_is_cut_and_signed_anew() -> None:
    signer, texts = _signer("fast"), [" ".join(_texts(40, 200))]
    stored = np.zeros((1, 128), np.uint32)  # of the whole text: not looked at
    found = witness(texts, stored, signer, seed=3)
    assert found.pairs == 1
    assert found.ratio < 4


def test_the_same_seed_gives_the_same_answer() -> None:
    signer, texts = _signer("fast"), _texts(8, 100)
    assert _witnessed(signer, texts) == _witnessed(signer, texts)
    assert _witnessed(signer, texts) != _witnessed(signer, texts, seed=6)
