"""Tests of which token files a path stands for, and that raw shards are none."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.stages.export_formats import FormatName
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform.stages.token_files import find_subjects, read_artifact, read_exported
from corpus_platform_tests.stages.releases import empty_project, write_release

IDS = np.array([5, 6, 0, 7, 0], np.uint16)
ENDS = np.array([3, 5])


def test_a_native_file_is_known_by_any_of_its_names(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    made = write_release(project, {"train-00000": [[5]]})
    folder = project.store.generation("shuffled_bins", None, made)
    for suffix in ("bin", "json", "index"):
        (subject,) = find_subjects(folder / f"train-00000.{suffix}") or []
        assert subject.open().format == "native"


def test_a_megatron_dataset_is_known_by_its_prefix_too(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "m", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    for name in ("m", "m.bin", "m.idx"):
        (subject,) = find_subjects(tmp_path / name) or []
        assert subject.open().format == "megatron"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["shard.bin", "shard.npy", "shard.ds", "shard.json", "shard.jsonl", "shard"])  # fmt: skip
def test_records_of_text_are_no_tokens_whatever_they_are_called(
    name: str, packed: bool, tmp_path: Path
) -> None:
    data = b'{"text": "a document"}\n' * 3
    (tmp_path / name).write_bytes(gzip.compress(data) if packed else data)
    assert find_subjects(tmp_path / name) is None


@pytest.mark.parametrize("name", ["ids.bin", "ids.ds", "ids.npy"])
def test_bare_ids_are_tokens(name: str, tmp_path: Path) -> None:
    IDS.tofile(tmp_path / name)
    (subject,) = find_subjects(tmp_path / name, dtype="uint16") or []
    assert subject.open().tokens.tolist() == IDS.tolist()


def test_what_is_not_there_stands_for_nothing(tmp_path: Path) -> None:
    assert find_subjects(tmp_path / "none") is None
    assert find_subjects(tmp_path) is None
    (tmp_path / "broken.json").write_bytes(b"\xff")
    assert find_subjects(tmp_path / "broken.json") is None


def test_a_header_of_llmc_is_known_before_its_ids_are_looked_at(tmp_path: Path) -> None:
    with LlmcWriter(tmp_path / "x.bin", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    (subject,) = find_subjects(tmp_path / "x.bin") or []
    assert subject.open().format == "llmc"


@pytest.mark.parametrize(
    ("name", "count"), [("megatron", 2), ("nanogpt", 2), ("olmo", 2), ("datatrove", 2), ("llmc", 2)]
)
def test_an_export_stands_for_its_token_files_with_what_it_says_of_them(
    name: FormatName, count: int, tmp_path: Path
) -> None:
    project = empty_project(tmp_path / "p")
    made = write_release(project, {"train-00000": [[5]], "val-00000": [[6]]})
    export_release(project, made, name, ExportOptions(to=str(tmp_path / "out")))
    subjects = find_subjects(tmp_path / "out") or []
    assert len(subjects) == count
    assert {(s.vocab_size, s.eos_id) for s in subjects} == {(100, 0)}
    assert {s.open().format for s in subjects} == {name}
    said = read_exported(tmp_path / "out")
    assert said is not None
    assert (said[0].identity["format"], said[1]) == (name, [])
    subjects[0].path.write_bytes(b"")
    said = read_exported(tmp_path / "out")
    assert said is not None
    assert "0 bytes, expected" in said[1][0]
    assert read_exported(tmp_path) is None


def test_an_artifact_stands_for_its_token_files_and_tells_damage(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    made = write_release(project, {"train-00000": [[5]], "val-00000": [[6]]})
    folder = project.store.generation("shuffled_bins", None, made)
    assert [s.path.name for s in find_subjects(folder) or []] == ["train-00000.json", "val-00000.json"]  # fmt: skip
    found = read_artifact(folder)
    assert found is not None
    assert (found[0].asset, found[1]) == ("shuffled_bins", [])
    (folder / "val-00000.bin").unlink()
    found = read_artifact(folder)
    assert found is not None
    assert "val-00000.bin: cannot be read" in found[1][0]
    assert read_artifact(tmp_path) is None


def test_an_artifact_without_tokens_stands_for_none(finished: Path) -> None:
    folder = next((finished.parent / "data" / "tokenizer").iterdir())
    assert json.loads((folder / "manifest.json").read_bytes())["asset"] == "tokenizer"
    assert find_subjects(folder) == []
