"""Tests of the signatures: one row per cleaned document, in its order, and what is in it."""

import hashlib
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpus_platform.config import DedupSettings
from corpus_platform.document import SIGNATURES
from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import minhash_signatures
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.minhash_signatures import band_rows, sign_documents, signature_values
from corpus_platform_tests.small import SHARDS

THIRD = SHARDS[2]


def test_a_second_call_does_nothing(finished: Path) -> None:
    assert sign_documents(open_project(load_settings(finished)), THIRD).made is False


def test_each_cleaned_document_has_one_row_in_the_same_order(finished: Path) -> None:
    project = open_project(load_settings(finished))
    cleaned, signed = (project.artifact(a, THIRD) for a in ("cleaned_documents", "minhash_signatures"))  # fmt: skip
    assert cleaned is not None
    assert signed is not None
    table = pq.read_table(signed.path("signatures.parquet"))
    assert table.schema.equals(SIGNATURES)
    documents = pq.read_table(cleaned.path("documents.parquet"))
    assert table.select(["row", "id"]).to_pylist() == documents.select(["row", "id"]).to_pylist()
    assert signed.manifest.ledger == {"documents": 37}
    counted = {
        "documents": 37,
        "signed": 37,
        "uncovered": 0,
        "wrong_digests": 0,
        "wrong_signatures": 0,
        "wrong_bands": 0,
    }
    assert {name: signed.numbers[name] for name in counted} == counted
    assert signed.numbers["estimate_pairs"] > 10


def test_a_row_holds_128_values_in_16_bands_and_the_hash_of_the_folded_text(
    finished: Path,
) -> None:
    project = open_project(load_settings(finished))
    cleaned, signed = (project.artifact(a, THIRD) for a in ("cleaned_documents", "minhash_signatures"))  # fmt: skip
    assert cleaned is not None
    assert signed is not None
    text = pq.read_table(cleaned.path("documents.parquet"))["text"][0].as_py()
    row = pq.read_table(signed.path("signatures.parquet")).slice(0, 1).to_pylist()[0]
    values = np.load(signed.path("values.npy"))
    assert (values.dtype, values.shape) == (np.dtype("<u4"), (37, 128))
    bands = band_rows(signed.folder, project.settings.dedup).read(15)
    assert bands.keys.shape == (37, 8)
    assert sorted(bands.documents.tolist()) == list(range(37))
    assert row["bytes"] == len(text)
    plain = " ".join(text.lower().split())  # of ASCII that is the folding
    assert text.isascii()
    assert row["digest"] == hashlib.sha256(plain.encode()).digest()
    assert row["shingles"] > 100


def test_another_unicode_is_another_generation_with_that_reason(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = open_project(load_settings(finished)).artifact("minhash_signatures", THIRD)
    assert signed is not None
    assert signed.manifest.settings["_unicode"] == unicodedata.unidata_version
    newer = SimpleNamespace(unidata_version="99.0.0")
    monkeypatch.setattr(minhash_signatures, "unicodedata", newer)
    reason = open_project(load_settings(finished)).difference("minhash_signatures", THIRD, signed)
    assert (
        f"setting unicode changed from {signed.manifest.settings['_unicode']} to 99.0.0" in reason
    )


def test_of_long_settings_that_begin_alike_the_reason_says_where_they_differ(
    finished: Path,
) -> None:
    signed = open_project(load_settings(finished)).artifact("minhash_signatures", THIRD)
    assert signed is not None
    settings = load_settings(finished)
    raw = settings.model_copy(update={"dedup": DedupSettings(exact="raw")})
    reason = open_project(raw).difference("minhash_signatures", THIRD, signed)
    before, after = reason.split("setting scheme changed from ")[1].split(" to ")[:2]
    assert before.startswith("…folded")
    assert after.startswith("…raw")


def test_other_permutations_are_another_generation(finished: Path) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("dedup: {permutations: 64, bands: 16, rows: 4}\n")
    report = sign_documents(open_project(load_settings(finished)), THIRD)
    assert report.made
    assert np.load(report.artifact.path("values.npy")).shape[1] == 64


def test_bands_of_another_scheme_are_refused_by_name(finished: Path) -> None:
    signed = open_project(load_settings(finished)).artifact("minhash_signatures", THIRD)
    assert signed is not None
    with pytest.raises(StorageError, match=r"datasketch.*cannot be mixed"):
        band_rows(signed.folder, DedupSettings(scheme="datasketch"))
    with pytest.raises(StorageError, match=r"bands=32x4.*cannot be mixed"):
        band_rows(signed.folder, DedupSettings(bands=32, rows=4))


def test_signatures_of_another_scheme_are_refused_by_name(finished: Path) -> None:
    signed = open_project(load_settings(finished)).artifact("minhash_signatures", THIRD)
    assert signed is not None
    with pytest.raises(StorageError, match=r"fast-1/k=128.*datasketch.*cannot be mixed"):
        signature_values(signed.folder, DedupSettings(scheme="datasketch"))
    with pytest.raises(StorageError, match=r"auto-5.*auto-9.*cannot be mixed"):
        signature_values(signed.folder, DedupSettings(width=9))
