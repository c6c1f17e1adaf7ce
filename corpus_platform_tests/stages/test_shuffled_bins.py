"""Tests of the release: the documents of all shards, once each, in one seeded order."""

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import shuffled_bins, shuffling
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.collecting import look
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import (
    publish_release,
    release_in_force,
    shuffle_scratch,
)
from corpus_platform_tests.small import SHARDS
from corpus_platform_tests.stages.releases import empty_project


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


def _folder(project: Project) -> Path:
    return project.present("shuffled_bins", None).folder


def _texts(folder: Path, listed: pl.DataFrame) -> dict[tuple[str, int], bytes]:
    """Return the token bytes of each listed document."""
    files = {name: np.fromfile(folder / name, "<u2") for name in listed["file"].unique()}
    columns = ("file", "start", "tokens", "shard", "row")
    return {
        (shard, row): files[file][start : start + count].tobytes()
        for file, start, count, shard, row in listed.select(columns).iter_rows()
    }


def test_a_second_call_does_nothing(project: Project) -> None:
    assert publish_release(project).made is False


def test_the_release_holds_the_packed_documents_token_by_token(project: Project) -> None:
    listed = pl.read_parquet(_folder(project) / "documents.parquet")
    packed: dict[tuple[str, int], bytes] = {}
    for shard in SHARDS:
        artifact = project.present("packed_bins", shard)
        packed |= _texts(artifact.folder, pl.read_parquet(artifact.path("documents.parquet")))
    assert _texts(_folder(project), listed) == packed
    assert len(listed) == len(packed) == 241


def test_files_are_filled_back_to_back_in_the_listed_order(project: Project) -> None:
    folder = _folder(project)
    assert pq.read_schema(folder / "documents.parquet").equals(RELEASE_DOCUMENTS)
    listed = pl.read_parquet(folder / "documents.parquet")
    for name in ("train-00000", "val-00000"):
        part = listed.filter(pl.col("file") == f"{name}.bin")
        ends = part["tokens"].cum_sum()
        assert part["start"].to_list() == (ends - part["tokens"]).to_list()
        assert np.fromfile(folder / f"{name}.index", "<u8").tolist() == ends.to_list()
        assert (folder / f"{name}.bin").stat().st_size == 2 * ends[-1]


def test_documents_of_all_shards_are_mixed(project: Project) -> None:
    listed = pl.read_parquet(_folder(project) / "documents.parquet")
    train = listed.filter(pl.col("file") == "train-00000.bin")
    assert set(train["shard"].head(60)) == set(SHARDS)
    assert train["shard"].rle().len() > 60  # of 231; sorted by shard there were 3 runs


def test_another_seed_is_another_order_of_the_same_documents(
    project: Project, finished: Path
) -> None:
    before = pl.read_parquet(_folder(project) / "documents.parquet")
    with finished.open("a", encoding="utf-8") as file:
        file.write("shuffle: {seed: 43}\n")
    report = publish_release(open_project(load_settings(finished)))
    after = pl.read_parquet(report.artifact.path("documents.parquet"))
    assert report.made
    key = ["shard", "row"]
    assert before.select(key).rows() != after.select(key).rows()
    assert sorted(before.select(key).rows()) == sorted(after.select(key).rows())


def test_files_end_before_the_document_that_would_pass_the_limit(finished: Path) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("shuffle: {max_tokens_per_file: 50000}\n")
    report = publish_release(open_project(load_settings(finished)))
    sizes = {o.name: o.tokens for o in report.artifact.manifest.outputs if o.tokens is not None}
    train = [n for name, n in sizes.items() if name.startswith("train-")]
    assert len(train) >= 5
    assert max(train) <= 50_000
    assert not any(f.blocks for f in report.findings)


def test_headers_and_manifest_record_the_hashes_of_the_files(project: Project) -> None:
    folder = _folder(project)
    header = json.loads((folder / "train-00000.json").read_bytes())
    data = (folder / "train-00000.bin").read_bytes()
    assert header["bin"] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    tokenizer = (folder / "tokenizer.json").read_bytes()
    assert header["tokenizer_sha256"] == hashlib.sha256(tokenizer).hexdigest()
    outputs = project.present("shuffled_bins", None).manifest.outputs
    assert {o.name: o.sha256 for o in outputs} == {
        o.name: hashlib.sha256((folder / o.name).read_bytes()).hexdigest() for o in outputs
    }
    assert {p.name for p in folder.iterdir()} == {o.name for o in outputs} | {"manifest.json"}


def test_the_ledger_counts_what_is_released(project: Project) -> None:
    artifact = project.present("shuffled_bins", None)
    ledger, folder = artifact.manifest.ledger, artifact.folder
    assert (ledger["shards"], ledger["excluded"]) == (list(SHARDS), [])
    assert ledger["train_documents"] + ledger["validation_documents"] == 241
    for split, name in (("train", "train"), ("validation", "val")):
        size = (folder / f"{name}-00000.bin").stat().st_size
        assert ledger[f"{split}_tokens"] * 2 == size
        assert artifact.numbers[f"{split}_tokens"] == ledger[f"{split}_tokens"]


def test_the_release_in_force_is_named(project: Project) -> None:
    folder = _folder(project)
    content = json.loads((folder / "manifest.json").read_bytes())["content"]
    named = {"id": folder.name, "content": content, "path": str(folder)}
    assert release_in_force(project) == named


def test_what_another_corpus_has_in_the_same_scratch_folder_stays(
    finished: Path, tmp_path: Path
) -> None:
    text = finished.read_text().replace("run: {", f"run: {{scratch: {tmp_path / 'scratch'}, ")
    finished.write_text(f"{text}shuffle: {{seed: 1}}\n")
    other = shuffle_scratch(
        empty_project(tmp_path / "p", f"run: {{scratch: {tmp_path / 'scratch'}}}")
    )
    (other / "0123456789abcdef").mkdir(parents=True)
    project = open_project(load_settings(finished))
    assert publish_release(project).made is True
    assert [item.path for item in look(project, ["scratch"]).items] == []
    assert [*(tmp_path / "scratch").rglob("*")] == [other, other / "0123456789abcdef"]


def test_what_lies_between_the_passes_counts_until_the_machine_starts_anew(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished.write_text(f"{finished.read_text()}shuffle: {{seed: 1}}\n")
    project = open_project(load_settings(finished))

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    real = shuffling.gather
    monkeypatch.setattr(shuffled_bins, "boot_id", lambda: "first")
    monkeypatch.setattr(shuffling, "gather", stopped)
    with pytest.raises(KeyboardInterrupt):
        publish_release(project)
    (left,) = shuffle_scratch(project).iterdir()
    scattered = {p: p.stat().st_mtime_ns for p in left.rglob("tokens")}
    assert len(scattered) == len(SHARDS)  # of the train split
    with pytest.raises(KeyboardInterrupt):
        publish_release(project)
    assert {p: p.stat().st_mtime_ns for p in left.rglob("tokens")} == scattered
    for path in scattered:  # as if what was written had never reached the disk
        path.write_bytes(bytes(path.stat().st_size))
    monkeypatch.setattr(shuffled_bins, "boot_id", lambda: "second")
    monkeypatch.setattr(shuffling, "gather", real)
    report = publish_release(project)
    assert not [f for f in report.findings if f.blocks]
    assert not left.exists()


def test_a_scratch_folder_that_cannot_be_written_is_named_with_its_setting(finished: Path) -> None:
    text = finished.read_text().replace(
        "run: {", "shuffle: {seed: 1}\nrun: {scratch: corpus.yaml, "
    )
    finished.write_text(text)
    with pytest.raises(
        StorageError, match=r"corpus.yaml/shuffle-.*name another folder with run.scratch"
    ):
        publish_release(open_project(load_settings(finished)))


def test_a_scratch_folder_that_is_a_link_is_emptied_and_stays(
    finished: Path, tmp_path: Path
) -> None:
    finished.write_text(f"{finished.read_text()}shuffle: {{seed: 1}}\n")
    project = open_project(load_settings(finished))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    home = shuffle_scratch(project)
    home.parent.mkdir(parents=True, exist_ok=True)
    home.symlink_to(elsewhere)
    (elsewhere / "0123456789abcdef-1-earlier").mkdir()
    assert publish_release(project).made is True
    assert home.is_symlink()
    assert not [*elsewhere.iterdir()]
