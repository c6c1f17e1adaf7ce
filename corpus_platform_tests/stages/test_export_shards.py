"""Tests of exports by source shard: releases that follow one another, names, and what is gone."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from corpus_platform.errors import StageFailed, Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import export_shards
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.export_formats import FormatName
from corpus_platform.stages.export_validation import validate_export
from corpus_platform.stages.exporting import ExportOptions, ExportReport, export_release
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform_tests.small import SHARDS

h5py = pytest.importorskip("h5py")


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _export(project: Project, name: FormatName, to: Path, **options: object) -> ExportReport:
    return export_release(project, "current", name, ExportOptions(to=str(to), **options))  # ty: ignore[invalid-argument-type]


def _index(folder: Path, split: str = "train") -> list[dict[str, str]]:
    return json.loads((folder / split / "shards.json").read_bytes())["shards"]


def _later(finished: Path, more: str, *, packs: bool = True) -> Project:
    """Return the project after a change, with what follows from it made."""
    with finished.open("a", encoding="utf-8") as file:
        file.write(more)
    project = open_project(load_settings(finished))
    for shard in SHARDS if packs else ():
        pack_shard(project, shard)
    publish_release(project)
    return project


def test_a_later_release_keeps_the_files_of_shards_that_are_as_they_were(
    project: Project, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _export(project, "hdf5", out)
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")}
    later = _later(finished, "shuffle: {seed: 43}\n", packs=False)
    assert _export(later, "hdf5", out).written == 0
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")} == stamps
    said = json.loads((out / "export.json").read_bytes())
    assert said["release"]["id"] == later.present("shuffled_bins", None).folder.name


@pytest.mark.slow
def test_what_is_new_gets_new_names_and_a_reader_goes_on_with_the_old_file(
    project: Project, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _export(project, "hdf5", out)
    before = _index(out)
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")}
    held = h5py.File(out / "train" / before[0]["path"], "r")
    _export(_later(finished, "pack: {max_document_tokens: 1200}\n"), "hdf5", out)
    after = _index(out)
    assert [e["shard"] for e in after] == [e["shard"] for e in before]
    assert not {e["path"] for e in before} & {e["path"] for e in after}
    assert stamps.items() <= {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")}.items()
    assert held["tokens"][:5].tolist() == _first(project, SHARDS[0])
    assert validate_export(out) == (8, [])


def _first(project: Project, shard: str) -> list[int]:
    return np.fromfile(project.present("packed_bins", shard).path("train.bin"), "<u2")[:5].tolist()


def test_the_shards_are_in_key_order_and_say_what_they_are_read_by(
    project: Project, tmp_path: Path
) -> None:
    _export(project, "hdf5", tmp_path / "out", window=100, chunk=300)
    said = json.loads((tmp_path / "out/train/shards.json").read_bytes())
    assert (said["window"], said["vocab_size"], said["eos_id"]) == (100, 400, 0)
    assert [e["shard"] for e in said["shards"]] == list(SHARDS)
    with h5py.File(tmp_path / "out/train" / said["shards"][0]["path"], "r") as file:
        assert file["tokens"].chunks == (300,)
    assert said["shards"][0]["path"].startswith("2026-40/part-00000.jsonl.zst-")


def test_another_window_is_what_the_index_says_from_then_on(
    project: Project, tmp_path: Path
) -> None:
    """Chunks of 65,536 tokens hold both windows whole, so that all .h5 files stay as they are."""
    out = tmp_path / "out"
    _export(project, "hdf5", out, window=2048)
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")}
    again = _export(project, "hdf5", out, window=512)
    assert (again.was_finished, again.written) == (False, 2)
    said = [json.loads((out / split / "shards.json").read_bytes())["window"] for split in ("train", "val")]  # fmt: skip
    assert said == [512, 512]
    options = json.loads((out / "export.json").read_bytes())["options"]
    assert options == {"window": 512, "chunk": 65536, "compression": None}
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.h5")} == before
    assert _export(project, "hdf5", out, window=512).was_finished
    assert validate_export(out) == (8, [])


def test_packed_chunks_hold_the_same_and_have_names_of_their_own(
    project: Project, tmp_path: Path
) -> None:
    _export(project, "hdf5", tmp_path / "out")
    plain = _index(tmp_path / "out")
    _export(project, "hdf5", tmp_path / "out", compression="gzip")
    packed = _index(tmp_path / "out")
    assert [e["sha256"] for e in packed] == [e["sha256"] for e in plain]
    assert not {e["path"] for e in plain} & {e["path"] for e in packed}


@pytest.mark.parametrize("name", ["hdf5", "parquet"])
def test_a_generation_that_is_gone_refuses_the_export(
    name: FormatName, project: Project, tmp_path: Path
) -> None:
    asset = "packed_bins" if name == "hdf5" else "cleaned_documents"
    project.present(asset, SHARDS[1]).manifest_path.unlink()
    with pytest.raises(Uncleared, match=f"{asset}.*is not there any more"):
        _export(project, name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_text_that_reads_back_otherwise_is_an_error(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = export_shards._write_texts

    def faulty(*arguments: object) -> object:
        files = real(*arguments)  # ty: ignore[invalid-argument-type]
        path = Path(str(arguments[3])) / files[0].path
        frame = pl.read_parquet(path)
        texts = [frame["text"][0] + "!", *frame["text"][1:]]
        frame.with_columns(text=pl.Series(texts)).write_parquet(path)
        return files

    monkeypatch.setattr(export_shards, "_write_texts", faulty)
    with pytest.raises(StageFailed, match=r"train-00000-of-00003.parquet: read again.*is another"):
        _export(project, "parquet", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_names_of_texts_have_no_word_but_their_split(project: Project, tmp_path: Path) -> None:
    _export(project, "parquet", tmp_path / "out")
    assert sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.parquet")) == [
        "train/train-00000-of-00003.parquet",
        "train/train-00001-of-00003.parquet",
        "train/train-00002-of-00003.parquet",
        "validation/validation-00000-of-00002.parquet",
        "validation/validation-00001-of-00002.parquet",
    ]  # fmt: skip
