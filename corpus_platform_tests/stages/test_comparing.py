"""Texts as they are compared: each is cut once, in however many buckets it stands."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.dedup.signing import Signer
from corpus_platform.stages import comparing
from corpus_platform_tests.stages.near_copies import (
    changed,
    cluster,
    files,
    new_corpus,
    prose,
    signed_copy,
)


def test_a_text_that_is_compared_in_many_buckets_is_cut_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = list[str]()

    class Counting(Signer):
        def shingle_sets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
            cut.extend(texts)
            return super().shingle_sets(texts)

    texts = [prose(1), *(changed(prose(1), seed) for seed in range(1, 8)), prose(2)]
    project = new_corpus(tmp_path / "1", {"2026-40/a": texts})
    usual = cluster(project)
    monkeypatch.setattr(comparing, "Signer", Counting)
    monkeypatch.setattr(comparing, "BUCKET_BYTES", 1)  # each pair in a bucket of its own
    again = cluster(signed_copy(project, tmp_path / "2"))
    assert again.artifact.manifest.ledger["edges"] > 20
    assert sorted(cut) == sorted(texts[:8])
    assert files(again) == files(usual)
