"""Tests of the manifest: what its two hashes cover, and that a changed file is not believed."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from corpus_platform.errors import StorageError
from corpus_platform.storage.manifest import Manifest, Output, generation_key, read_manifest

MANIFEST = Manifest(
    asset="cleaned_documents",
    partition="2026-40/ä.jsonl",
    version=1,
    settings={"rules": {"too_short": {"min_chars": 200}}},
    inputs={"raw_shards": "aa"},
    outputs=(Output("documents.parquet", 10, "bb", rows=3), Output("train.bin", 4, "cc", tokens=2)),
    ledger={"lines": 3, "kept": 3},
    numbers={"documents": 3.0},
    measured={"seconds": 0.5},
)


def _written(folder: Path, manifest: Manifest = MANIFEST) -> Path:
    path = folder / "manifest.json"
    path.write_bytes(manifest.to_bytes())
    return path


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    assert read_manifest(_written(tmp_path)) == MANIFEST


def test_the_file_is_json_with_sorted_keys_and_leaves_out_what_is_not_counted() -> None:
    whole = json.loads(MANIFEST.to_bytes())
    assert list(whole) == sorted(whole)
    assert whole["outputs"] == [
        {"name": "documents.parquet", "bytes": 10, "sha256": "bb", "rows": 3},
        {"name": "train.bin", "bytes": 4, "sha256": "cc", "tokens": 2},
    ]
    assert "ä" in MANIFEST.to_bytes().decode()


@pytest.mark.parametrize(
    "change",
    [
        {"asset": "x"},
        {"partition": None},
        {"version": 2},
        {"settings": {}},
        {"inputs": {"raw_shards": "ab"}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_goes_in_changes_key_and_content(change: dict) -> None:
    other = dataclasses.replace(MANIFEST, **change)
    assert other.key != MANIFEST.key
    assert other.content != MANIFEST.content


@pytest.mark.parametrize(
    "change",
    [{"outputs": MANIFEST.outputs[:1]}, {"ledger": {"lines": 4}}],
    ids=lambda c: next(iter(c)),
)
def test_what_comes_out_changes_the_content_and_not_the_key(change: dict) -> None:
    other = dataclasses.replace(MANIFEST, **change)
    assert other.key == MANIFEST.key
    assert other.content != MANIFEST.content


@pytest.mark.parametrize(
    "change", [{"numbers": {"documents": 4.0}}, {"measured": {"host": "x"}}], ids=str
)
def test_what_is_merely_measured_changes_neither(change: dict) -> None:
    other = dataclasses.replace(MANIFEST, **change)
    assert (other.key, other.content) == (MANIFEST.key, MANIFEST.content)


def test_the_hash_of_the_whole_file_is_that_of_all_its_other_fields() -> None:
    whole = json.loads(MANIFEST.to_bytes())
    recorded = whole.pop("sha256")
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert recorded == hashlib.sha256(text.encode()).hexdigest()


def test_values_that_json_changes_still_read_as_they_were_written(tmp_path: Path) -> None:
    odd = dataclasses.replace(MANIFEST, measured={"by_count": {10: 1e-7, 9: (1, 2.0)}})
    read = read_manifest(_written(tmp_path, odd))
    assert read.measured == {"by_count": {"10": 1e-7, "9": [1, 2.0]}}


def test_the_order_of_keys_is_no_part_of_a_hash() -> None:
    one = generation_key("a", None, 1, {"x": 1, "y": 2}, {"i": "1", "j": "2"})
    assert one == generation_key("a", None, 1, {"y": 2, "x": 1}, {"j": "2", "i": "1"})
    assert len(one) == 64


def _edited(path: Path, key: str, value: object) -> None:
    whole = json.loads(path.read_bytes())
    whole[key] = value
    path.write_text(json.dumps(whole), encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ledger", {"lines": 3, "kept": 2}),
        ("settings", {}),
        ("outputs", []),
        ("content", "00"),
        ("key", "00"),
        ("format", 2),
        ("version", 7),
        ("numbers", {"documents": 4.0}),
        ("measured", {"seconds": 0.6}),
        ("sha256", "00"),
        ("unknown", 1),
    ],
)
def test_a_manifest_that_was_edited_is_not_believed(
    key: str, value: object, tmp_path: Path
) -> None:
    path = _written(tmp_path)
    _edited(path, key, value)
    with pytest.raises(StorageError, match="content hash does not fit"):
        read_manifest(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pytest.param(b"[" * 9999, id="deep"),
        b"{",
        b"[]",
        b"null",
        b'{"asset": "x"}',
        b"\xff\xfe",
        b'{"outputs": 3}',
    ],
)
def test_what_is_no_manifest_is_named_so(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(data)
    with pytest.raises(StorageError, match="not a manifest"):
        read_manifest(path)


def test_a_manifest_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path)
    data = path.read_bytes().rstrip()
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        with pytest.raises(StorageError):
            read_manifest(path)


def test_no_file_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_manifest(tmp_path / "manifest.json")
