"""Tests of `corpus inspect` on token files: exit codes, JSON, comparisons; shards as before."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform_tests.small import SHARDS

IDS, ENDS = np.array([5, 6, 0, 7, 0], np.uint16), np.array([3, 5])


def _corpus(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, ["inspect", *(str(a) for a in arguments)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with m.bin and m.idx of Megatron, and n.bin of nanoGPT."""
    with MegatronWriter(tmp_path / "m", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    with NanogptWriter(tmp_path / "n.bin", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    return tmp_path


def test_a_token_file_needs_no_settings(files: Path) -> None:
    result = _corpus(files / "m", "--config", files / "none.yaml")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"token file: {files}/m: megatron, ids of uint16",
        "  version: 1",
        "  dtype_code: 8",
        "  sequences: 2",
        "  document_indices: 3",
        "5 tokens; 2 documents by the index",
        "tokens of a document, at shares of all: 0% 2, 5% 2, 25% 2, 50% 2, 75% 3, 95% 3, 100% 3",
        "largest id: 7",
        "end token 0 (by the ends of documents): 2, one in 2.5 tokens; documents have 2.5 on average",
    ]


def test_faults_end_with_1_and_stand_in_json(files: Path) -> None:
    result = _corpus(files / "n.bin", "--vocab-size", "7", "--json")
    assert result.exit_code == 1
    whole = json.loads(result.output)
    assert whole["faults"] == []
    (file,) = whole["files"]
    assert file["faults"] == ["1 ids outside the vocabulary 0..6, the first is 7 at token 3"]
    assert (file["format"], file["tokens"], file["documents"]) == ("nanogpt", 5, None)
    (files / "m.idx").write_bytes(b"MMIDIDX\0\0")
    cut = _corpus(files / "m.bin")
    assert cut.exit_code == 3
    assert "m.idx: 9 bytes" in cut.output


def test_two_files_are_compared(files: Path) -> None:
    same = _corpus(files / "m", "--against", files / "n.bin")
    assert same.exit_code == 0
    assert same.output.endswith(f"equal: {files}/m and {files}/n.bin\n")
    changed = IDS.copy()
    changed[3] = 8
    changed.tofile(files / "n.bin")
    result = _corpus(files / "m", "--against", files / "n.bin", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "difference": "document 1, token 0 of it (token 3 here): 7 here and 8 there",
        "not_compared": ["documents: nanogpt has no index", "masks: megatron has no place for one"],
    }
    assert "different: " in _corpus(files / "m", "--against", files / "n.bin").output


@pytest.mark.parametrize("end", ["npy", "bin"])
def test_a_width_is_that_of_both_files_unless_one_tells_its_own(end: str, files: Path) -> None:
    IDS.astype("<u4").tofile(files / f"a.{end}")
    IDS.astype("<u4").tofile(files / f"b.{end}")
    for other in (f"b.{end}", "m"):  # m is Megatron's, of int32 or uint16
        result = _corpus(files / f"a.{end}", "--dtype", "uint32", "--against", files / other)
        assert result.exit_code == 0, result.output


def test_a_release_is_shown_with_what_it_is_and_how_documents_begin(finished: Path) -> None:
    (release,) = [p for p in (finished.parent / "data" / "releases").iterdir() if p.is_dir()]
    result = _corpus(release)
    assert result.exit_code == 0
    assert result.output.startswith("artifact: shuffled_bins, content ")
    assert result.output.count("token file: ") == 2
    assert "235 documents by the index" in result.output
    assert "document 2:\n" in result.output
    (release / "train-00000.index").unlink()
    damaged = _corpus(release)
    assert damaged.exit_code == 1
    assert "fault: " in damaged.output


def test_an_export_is_shown(finished: Path, tmp_path: Path) -> None:
    arguments = ["export", "current", "--format", "nanogpt", "--to", str(tmp_path / "out")]
    CliRunner().invoke(main, [*arguments, "--config", str(finished)])
    result = _corpus(tmp_path / "out")
    assert result.exit_code == 0
    assert result.output.startswith("export: nanogpt of the release with content ")
    assert "file: train.bin: 411.7 kB, 235 documents" in result.output
    assert "235 documents by the end tokens" in result.output
    assert "end token 0 (by the export.json): 235" in result.output
    result = _corpus(tmp_path / "out", "--dtype", "uint8", "--config", finished)
    assert result.exit_code == 2
    assert "say how wide ids are; leave it out" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m", "--all"], "--all is for shards of text"),
        (["m", "--against", "none"], "compares two token files, and none is not one"),
        (["m", "--against", "n.bin", "--vocab-size", "9"], "takes no tokenizer and no vocabulary"),
        (["x.jsonl", "--vocab-size", "9"], "--vocab-size is for token files, and x.jsonl is none"),
        (["x.jsonl", "--against", "m"], "--against is for token files"),
        (["none"], "'none' is no file, and no folder of an artifact or an export"),
        (["n.bin", "--tokenizer", "x.jsonl"], "x.jsonl: cannot be read"),
    ],
)
def test_a_wrong_call_ends_with_2(
    arguments: list[str], words: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "x.jsonl").write_text('{"text": "a"}\n')
    monkeypatch.chdir(files)
    monkeypatch.delenv("CORPUS_CONFIG", raising=False)
    result = _corpus(*arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_a_shard_is_shown_as_before(finished: Path) -> None:
    path = finished.parent / "source" / "crawl=2026-40" / "part-00001.jsonl.gz"
    for shard in (path, SHARDS[1]):
        result = _corpus(shard, "--config", finished)
        assert result.exit_code == 0
        assert "stored as gzip, holds lines" in result.output
