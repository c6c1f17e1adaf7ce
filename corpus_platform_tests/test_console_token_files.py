"""Tests of what `corpus inspect` prints of token files, artifacts and comparisons."""

import json

from corpus_platform.console_token_files import (
    artifact_lines,
    comparison_lines,
    exported_lines,
    token_json,
    token_lines,
)
from corpus_platform.stages.export_json import Finished
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.token_inspection import Comparison, TokenInspection
from corpus_platform.storage.manifest import Manifest, Output


def _found(**changes: object) -> TokenInspection:
    values = {"path": "x.bin", "format": "native", "dtype": "uint16", "tokens": 12, **changes}
    return TokenInspection(**values)  # ty: ignore[invalid-argument-type]


def test_of_a_bare_file_little_is_said() -> None:
    assert list(token_lines(_found(format="nanogpt", max_id=7))) == [
        "token file: x.bin: nanogpt, ids of uint16",
        "12 tokens",
        "largest id: 7",
    ]


def test_rows_faults_and_beginnings_are_said_and_steer_no_terminal() -> None:
    found = _found(
        documents=2, documents_by="index", entries=4, row_tokens=4, padding=1, vocab_size=10,
        lengths={"0%": 1, "100%": 4}, max_id=12, eos_id=0, eos_by="header", eos_count=2,
        mean_length=3.0, without_loss=3, header={"version": 2}, faults=["an id is outside"],
        beginnings=[(0, "first \x1b[31mred\nsecond")],
    )  # fmt: skip
    assert list(token_lines(found)) == [
        "token file: x.bin: native, ids of uint16",
        "  version: 2",
        "12 tokens; 2 documents by the index begin in 3 rows of 4; 4 pieces, 1 tokens of padding",
        "tokens of an entry, at shares of all: 0% 1, 100% 4",
        "largest id: 12 of a vocabulary of 10",
        "end token 0 (by the header): 2, one in 6.0 tokens",
        "without loss: 3 tokens (25.0%)",
        "fault: an id is outside",
        "document 0:",
        "  first \\x1b[31mred",
        "  second",
    ]


def test_rows_of_a_file_that_does_not_tell_pieces_from_padding_are_said() -> None:
    found = _found(format="hdf5", entries=4, row_tokens=4)
    assert list(token_lines(found))[1] == "12 tokens in 3 rows of 4; 4 pieces, with padding"


def test_json_has_every_field_and_the_density() -> None:
    whole = json.loads(json.dumps(token_json(_found(eos_id=0, eos_count=3))))
    assert (whole["eos_count"], whole["eos_density"], whole["faults"]) == (3, 0.25, [])
    assert token_json(_found())["eos_density"] is None


def test_an_artifact_is_said_by_its_manifest() -> None:
    outputs = (Output("a.bin", 1500, "x", tokens=750), Output("b.parquet", 9, "y", rows=1234), Output("c", 1, "z"))  # fmt: skip
    manifest = Manifest("packed_bins", "2026-40/a", 2, {}, {}, outputs, {"documents": 3}, {})
    assert list(artifact_lines(manifest)) == [
        f"artifact: packed_bins[2026-40/a], content {manifest.content}",
        "  documents: 3",
        "file: a.bin: 1.5 kB, 750 tokens",
        "file: b.parquet: 9 bytes, 1,234 rows",
        "file: c: 1 byte",
    ]


def test_of_what_thousands_of_shards_have_only_the_number_is_said() -> None:
    shards = [f"2026-40/{number}" for number in range(10_000)]
    ledger = {
        "shards": shards,
        "excluded": ["2026-40/x"],
        "by_shard": {shard: {} for shard in shards},
    }
    manifest = Manifest("shuffled_bins", None, 2, {}, {}, (), ledger, {})
    assert list(artifact_lines(manifest))[1:] == [
        "  shards: 10,000 entries",
        "  excluded: ['2026-40/x']",
        "  by_shard: 10,000 entries",
    ]


def test_an_export_is_said_by_its_export_json() -> None:
    identity = {"format": "olmo", "release": "7e19", "options": {"single_file": False}}
    file = ExportedFile("train/a.npy", 2000, "x", "train", 1000, 3)
    rows = list(exported_lines(Finished(identity, {file.path: file}, "uint16", 9, 0, 4)))
    assert rows[1] == "file: train/a.npy: 2.0 kB, 3 pieces"
    assert list(exported_lines(Finished(identity, {file.path: file}, "uint16", 9, 0))) == [
        "export: olmo of the release with content 7e19; single_file False",
        "file: train/a.npy: 2.0 kB, 3 documents",
    ]


def test_a_comparison_says_what_it_did_not_compare() -> None:
    found = Comparison("token 3: 7 here and 8 there", ["masks: llmc has no place for one"])
    assert list(comparison_lines(found, "a", "b")) == [
        "not compared: masks: llmc has no place for one",
        "different: a (here) and b (there): token 3: 7 here and 8 there",
    ]
    assert list(comparison_lines(Comparison(None, []), "a", "b")) == ["equal: a and b"]
