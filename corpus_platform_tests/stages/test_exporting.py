"""Tests of exports: each format read back by a reader of its own, kills, damage, and refusals."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import merge_megatron
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import export_streams, exporting
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.export_formats import FormatName
from corpus_platform.stages.exporting import ExportOptions, ExportReport, export_release
from corpus_platform.stages.project import Project
from corpus_platform.storage import hashes
from corpus_platform_tests.stages import plain_readers
from corpus_platform_tests.stages.releases import (
    empty_project,
    policy_of,
    write_release,
    write_rows,
)

TWO_FILES = {
    "train-00000": [[5, 6, 7], [8]],
    "train-00001": [[9, 10]],
    "val-00000": [[11, 12], [13]],
}
ROWS = {
    "train-00000": [
        [(0, 0, [5, 6, 7, 8])],
        [(1, 0, [5, 0]), (0, 4, [6, 0])],
        [(2, 0, [7, 8, 0]), (-1, 0, [9])],
    ],
    "val-00000": [[(0, 0, [5, 0]), (-1, 0, [9, 9])]],
}


@pytest.fixture
def project(finished: Path) -> Project:
    """The finished small corpus."""
    return open_project(load_settings(finished))


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """A project with one release, of two train files."""
    project = empty_project(tmp_path / "small")
    write_release(project, TWO_FILES)
    return project


def _id(project: Project) -> str:
    (artifact,) = project.store.generations("shuffled_bins", None)
    return artifact.folder.name


def _export(
    project: Project, name: FormatName, to: Path | None = None, **options: object
) -> ExportReport:
    chosen = ExportOptions(to=None if to is None else str(to), **options)  # ty: ignore[invalid-argument-type]
    return export_release(project, _id(project), name, chosen)


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


READERS: dict[str, tuple[str, Callable[[Path, str], list[list[int]]]]] = {
    "megatron": ("{}-00000", lambda f, s: plain_readers.megatron(f / f"{s}-00000")),
    "datatrove": ("{0}/000_{0}.ds", lambda f, s: plain_readers.datatrove(f / s / f"000_{s}.ds")),
    "nanogpt": ("{}.bin", lambda f, s: plain_readers.nanogpt(f / f"{s}.bin", 0)),
    "llmc": ("", lambda f, s: plain_readers.llmc(f / f"corpus_{s}_000000.bin", 0)),
    "olmo": ("", lambda f, s: plain_readers.olmo(f / s / f"{s}-00000.npy")),
}


@pytest.mark.parametrize("name", list(READERS))
def test_a_plain_reader_finds_the_documents_of_the_release_in_their_order(
    name: FormatName, project: Project, tmp_path: Path
) -> None:
    report = _export(project, name, tmp_path / "out")
    release = project.present("shuffled_bins", None).folder
    for split in ("train", "val"):
        documents = READERS[name][1](tmp_path / "out", split)
        assert documents == plain_readers.native(release / f"{split}-00000")
    assert report.counts.documents == 241


def test_hdf5_holds_the_packed_documents_of_each_shard(project: Project, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    _export(project, "hdf5", tmp_path / "out")
    for split in ("train", "val"):
        index = json.loads((tmp_path / "out" / split / "shards.json").read_bytes())
        for entry in index["shards"]:
            packed = project.present("packed_bins", entry["shard"]).folder
            documents = plain_readers.hdf5(tmp_path / "out" / split / entry["path"])
            assert documents == plain_readers.native(packed / split)
        assert [e["shard"] for e in index["shards"]] == sorted(e["shard"] for e in index["shards"])
    assert len(index["shards"]) == 2  # no document of the third is held out


def test_parquet_holds_the_kept_texts_of_each_split(project: Project, tmp_path: Path) -> None:
    _export(project, "parquet", tmp_path / "out")
    found = pl.read_parquet(tmp_path / "out" / "*" / "*.parquet")
    listed = pl.read_parquet(project.present("shuffled_bins", None).path("documents.parquet"))
    split = pl.col("file").str.starts_with("val").replace_strict({True: "validation", False: "train"})  # fmt: skip
    key = ["shard", "row", "id", "split"]
    wanted = listed.with_columns(split.alias("split")).select(key).sort(key)
    assert found.select(key).sort(key).equals(wanted)
    assert found.columns == ["id", "url", "text", "lang", "lang_score", "meta", "row", "shard", "split"]  # fmt: skip
    texts = pl.concat(
        pl.read_parquet(project.present("cleaned_documents", s).path("documents.parquet")).with_columns(shard=pl.lit(s))
        for s in listed["shard"].unique()
    )  # fmt: skip
    same = found.join(texts, on=["shard", "row", "text", "meta", "id"], how="semi")
    assert len(same) == len(found) == 241


def test_files_are_named_as_each_reader_wants_them(small: Project, tmp_path: Path) -> None:
    wanted = {
        "megatron": "train-00000.bin train-00000.idx train-00001.bin train-00001.idx val-00000.bin val-00000.idx",
        "datatrove": "train/000_train.ds train/000_train.ds.index train/000_train.ds.metadata"
        " train/001_train.ds train/001_train.ds.index train/001_train.ds.metadata"
        " train/train.ds.metadata val/000_val.ds val/000_val.ds.index val/000_val.ds.metadata"
        " val/val.ds.metadata",
        "nanogpt": "train-00000.bin train-00001.bin val.bin",
        "llmc": "corpus_train_000000.bin corpus_train_000001.bin corpus_val_000000.bin",
        "olmo": "train/train-00000.csv.gz train/train-00000.npy train/train-00001.csv.gz"
        " train/train-00001.npy val/val-00000.csv.gz val/val-00000.npy",
    }  # fmt: skip
    for name, files in wanted.items():
        _export(small, name, tmp_path / name)  # ty: ignore[invalid-argument-type]
        assert _names(tmp_path / name) == {*files.split(), "export.json", "tokenizer.json"}


def test_without_a_place_it_lies_in_the_storage_folder(small: Project) -> None:
    report = _export(small, "nanogpt")
    assert Path(report.where) == small.settings.storage_path / "exports" / f"{_id(small)}-nanogpt"
    assert not list(Path(report.where).glob(".*"))


def test_one_file_is_the_merge_of_the_single_ones(small: Project, tmp_path: Path) -> None:
    _export(small, "megatron", tmp_path / "each")
    _export(small, "megatron", tmp_path / "one", single_file=True)
    merge_megatron([tmp_path / "each" / f"train-0000{i}" for i in (0, 1)], tmp_path / "merged")
    for suffix in (".bin", ".idx"):
        merged = (tmp_path / f"merged{suffix}").read_bytes()
        assert (tmp_path / "one" / f"train{suffix}").read_bytes() == merged
    assert plain_readers.megatron(tmp_path / "one" / "train") == [[5, 6, 7, 0], [8, 0], [9, 10, 0]]
    assert plain_readers.megatron(tmp_path / "one" / "val") == [[11, 12, 0], [13, 0]]


def test_the_same_release_makes_the_same_bytes(small: Project, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        _export(small, "olmo", tmp_path / folder)
    for name in _names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_olmo_says_whose_each_document_is(small: Project, tmp_path: Path) -> None:
    import gzip

    _export(small, "olmo", tmp_path / "out")
    lines = gzip.decompress((tmp_path / "out/train/train-00000.csv.gz").read_bytes()).decode()
    assert lines.split() == [
        "0,4,train-00000-0,2026-40/a.jsonl,1",
        "4,6,train-00000-1,2026-40/a.jsonl,2",
    ]


def test_export_json_says_all(small: Project, tmp_path: Path) -> None:
    _export(small, "megatron", tmp_path / "out")
    said = json.loads((tmp_path / "out" / "export.json").read_bytes())
    assert said["release"]["id"] == _id(small)
    assert (said["tokens"], said["documents"]) == ({"train": 9, "validation": 5}, {"train": 3, "validation": 2})  # fmt: skip
    assert (said["dtype"], said["vocab_size"], said["eos_id"]) == ("uint16", 100, 0)
    assert (said["padding"], said["rows"]) == (None, None)
    assert [loss["kind"] for loss in said["lost"]] == ["provenance", "header"]
    listed = {file["path"]: file for file in said["files"]}
    assert listed.keys() == _names(tmp_path / "out") - {"export.json"}
    for path, file in listed.items():
        assert file["bytes"] == (tmp_path / "out" / path).stat().st_size
    assert (listed["train-00001.bin"]["split"], listed["train-00001.bin"]["tokens"]) == ("train", 3)


def test_a_second_call_does_nothing_and_damage_is_made_whole(
    small: Project, tmp_path: Path
) -> None:
    assert _export(small, "megatron", tmp_path / "out").written == 7
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    assert _export(small, "megatron", tmp_path / "out").written == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")} == before
    with (tmp_path / "out" / "train-00000.bin").open("ab") as file:
        file.write(b"\0\0")
    assert _export(small, "megatron", tmp_path / "out").written == 2
    assert plain_readers.megatron(tmp_path / "out" / "train-00000") == [[5, 6, 7, 0], [8, 0]]
    assert _export(small, "megatron", tmp_path / "out").written == 0


@pytest.mark.parametrize("name", ["megatron", "hdf5"])
def test_damage_at_equal_size_is_told_and_made_whole(
    name: FormatName, project: Project, tmp_path: Path
) -> None:
    if name == "hdf5":
        pytest.importorskip("h5py")
    _export(project, name, tmp_path / "out")
    _export(project, name, tmp_path / "whole")
    pattern = "*.bin" if name == "megatron" else "shards.json"
    path = sorted((tmp_path / "out").rglob(pattern))[0]
    inside = path.relative_to(tmp_path / "out")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = _export(project, name, tmp_path / "out")
    assert not report.was_finished
    assert report.written == (2 if name == "megatron" else 1)
    assert [fault.split(": sha256 ")[0] for fault in report.damaged] == [str(inside)]
    assert path.read_bytes() == (tmp_path / "whole" / inside).read_bytes()
    again = _export(project, name, tmp_path / "out")
    assert (again.was_finished, again.damaged) == (True, ())


def test_a_finished_export_is_hashed_only_where_it_looks_otherwise(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _export(small, "megatron", tmp_path / "out")
    (tmp_path / "out" / "val-00000.idx").touch()
    hashed = list[str]()
    real = hashes.file_sha256
    monkeypatch.setattr(hashes, "file_sha256", lambda p: (hashed.append(p.name), real(p))[1])
    assert _export(small, "megatron", tmp_path / "out").was_finished
    assert _export(small, "megatron", tmp_path / "out").was_finished
    assert hashed == ["val-00000.idx"]


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("after", range(7))
def test_an_export_that_is_killed_goes_on_where_it_ended(
    after: int, small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _export(small, "megatron", tmp_path / "whole")
    out, calls = tmp_path / "out", [0]
    real = os.replace

    def killing(source: Path, target: Path) -> None:
        if Path(target).is_relative_to(out) and "state" not in Path(target).name:
            if calls[0] == after:
                raise _Killed
            calls[0] += 1
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killing)
        # The state is that of a kill: nothing is cleaned up.
        patch.setattr(exporting.Folder, "close", lambda self, finished: None)
        with pytest.raises(_Killed):
            _export(small, "megatron", out)
    whole = _names(tmp_path / "whole")
    for name in _names(out) & whole:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "export.json" not in _names(out)
    report = _export(small, "megatron", out)
    # A file that got its name and was not yet noted is written again with its companions.
    assert report.written <= 7 - after + after % 2 + 1
    assert _names(out) == whole
    for name in whole:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_files_that_are_there_are_not_written_again(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "export_json", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _export(small, "datatrove", tmp_path / "out")
    stamps = {p: p.stat().st_ino for p in (tmp_path / "out").rglob("*.ds*")}
    assert _export(small, "datatrove", tmp_path / "out").written == 0
    assert {p: p.stat().st_ino for p in (tmp_path / "out").rglob("*.ds*")} == stamps
    assert (tmp_path / "out" / "export.json").exists()


def test_a_file_that_reads_back_otherwise_is_an_error_and_gets_no_name(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = export_streams._write

    def faulty(*arguments: object) -> object:
        files = real(*arguments)  # ty: ignore[invalid-argument-type]
        path = Path(str(arguments[5])) / files[0].path
        data = bytearray(path.read_bytes())
        data[2] ^= 1
        path.write_bytes(data)
        return files

    monkeypatch.setattr(export_streams, "_write", faulty)
    with pytest.raises(StageFailed, match=r"document 0 of train-00000, token 1 of it \(token 1 here\): 7 here and 6 there") as error:  # fmt: skip
        _export(small, "nanogpt", tmp_path / "out")
    assert error.value.exit_code == 3
    assert _names(tmp_path / "out") == {"tokenizer.json", ".export-state.jsonl"}


def test_what_training_would_go_by_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    write_release(
        project, {"train-00000": [[5, 6]], "val-00000": []}, masks={"train-00000": [0, 1]}
    )
    with pytest.raises(UsageError, match=r"loss-mask: tokens that are not to count.*--accept-loss loss-mask"):  # fmt: skip
        _export(project, "megatron", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = _export(project, "megatron", tmp_path / "out", accept_loss=frozenset({"loss-mask"}))
    assert [(loss.kind, loss.accepted) for loss in report.lost][:1] == [("loss-mask", True)]
    said = json.loads((tmp_path / "out" / "export.json").read_bytes())
    assert said["lost"][0]["accepted"] is True


def test_masks_travel_where_there_is_a_place_for_them(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    write_release(
        project, {"train-00000": [[5, 6], [7]], "val-00000": [[8]]}, masks={"train-00000": [0, 1, 1]}
    )  # fmt: skip
    _export(project, "datatrove", tmp_path / "d")
    _export(project, "olmo", tmp_path / "o")
    assert (tmp_path / "d/train/000_train.ds.loss").read_bytes() == b"\0\1\1\1\1"
    assert (tmp_path / "d/val/000_val.ds.loss").read_bytes() == b"\1\1"
    assert (tmp_path / "o/train/train-00000.label_mask").read_bytes() == b"\0\1\1\1\1"


def test_rows_stay_rows(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    write_rows(project, ROWS)
    accepted = frozenset({"padding"})
    _export(project, "megatron", tmp_path / "m", accept_loss=accepted)
    rows = [[5, 6, 7, 8], [5, 0, 6, 0], [7, 8, 0, 9]]
    assert plain_readers.megatron(tmp_path / "m" / "train-00000") == rows
    _export(project, "datatrove", tmp_path / "d")
    pieces = [[5, 6, 7, 8], [5, 0], [6, 0], [7, 8, 0], [9]]
    assert plain_readers.datatrove(tmp_path / "d/train/000_train.ds") == pieces
    assert (tmp_path / "d/train/000_train.ds.loss").read_bytes() == b"\1" * 11 + b"\0"
    with pytest.raises(UsageError, match="--accept-loss padding --accept-loss rows"):
        _export(project, "nanogpt", tmp_path / "n")
    report = _export(project, "llmc", tmp_path / "l", accept_loss=accepted)
    assert report.notes == ("samples follow one another: train with T = 4, so that they are rows",)


# In ROWS three documents begin in train and one in validation; the only padding are the three 9s.
@pytest.mark.parametrize("name", ["megatron", "datatrove", "llmc", "olmo"])
def test_of_rows_documents_tokens_and_padding_are_counted_whatever_the_format_has(
    name: FormatName, tmp_path: Path
) -> None:
    project = empty_project(tmp_path / "p")
    write_rows(project, ROWS)
    accepted = frozenset() if name in ("datatrove", "olmo") else frozenset({"padding"})
    report = _export(project, name, tmp_path / "out", accept_loss=accepted)
    assert report.counts == (4, 13, 3, 4)
    assert report.row_tokens == 4
    said = json.loads((tmp_path / "out" / "export.json").read_bytes())
    assert said["tokens"] == {"train": 12, "validation": 4}
    assert said["padding"] == {"train": 1, "validation": 2}
    assert said["rows"] == {"train": 3, "validation": 1}
    assert said["documents"] == {"train": 3, "validation": 1}


def test_llmc_cuts_at_its_limit_between_documents(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlmcWriter, "max_tokens", 5)
    _export(small, "llmc", tmp_path / "each")
    _export(small, "llmc", tmp_path / "joined", single_file=True)
    read = lambda f, n: plain_readers.llmc(tmp_path / f / f"corpus_train_{n:06d}.bin", 0)  # noqa: E731
    assert [read("each", n) for n in range(3)] == [[[5, 6, 7, 0]], [[8, 0]], [[9, 10, 0]]]
    assert [read("joined", n) for n in range(2)] == [[[5, 6, 7, 0]], [[8, 0], [9, 10, 0]]]


def test_a_document_that_a_format_cannot_hold_is_named(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlmcWriter, "max_tokens", 3)
    with pytest.raises(UsageError) as error:
        _export(small, "llmc", tmp_path / "out")
    assert str(error.value) == (
        "document 0 of train-00000 (record 0 of 2026-40/a.jsonl, id 'train-00000-0') has 4 tokens;"
        " llmc holds 3 a document: export to another format, or cut it with pack.max_document_tokens"
    )
    assert not (tmp_path / "out" / "export.json").exists()


def test_a_vocabulary_that_nanogpt_cannot_hold_is_refused(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    write_release(project, {"train-00000": [[5]]}, policy=policy_of(vocab_size=70_000))
    with pytest.raises(
        UsageError, match="nanogpt holds ids of a vocabulary of up to 65,536, this one has 70,000"
    ):
        _export(project, "nanogpt", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    _export(project, "llmc", tmp_path / "llmc")
    assert np.fromfile(tmp_path / "llmc" / "corpus_train_000000.bin", "<i4")[:3].tolist() == [20240801, 7, 2]  # fmt: skip


def test_ids_that_megatron_makes_wider_are_told(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    write_release(project, {"train-00000": [[65_520]]}, policy=policy_of(vocab_size=65_536))
    report = _export(project, "megatron", tmp_path / "out")
    assert report.notes == (
        "ids are int32: Megatron takes uint16 below 65,500 ids only, this vocabulary has 65,536",
    )
    assert plain_readers.megatron(tmp_path / "out" / "train-00000") == [[65_520, 0]]


def test_another_release_or_form_does_not_go_where_an_export_is(
    small: Project, tmp_path: Path
) -> None:
    where = tmp_path / "out"
    _export(small, "nanogpt", where)
    with pytest.raises(UsageError) as error:
        _export(small, "nanogpt", where, single_file=True)
    assert str(error.value) == (
        f"{where}: holds a finished export, and this one differs from it: --single-file is off there"
        " and on here; name another place with --to, or delete what is there"
    )
    with pytest.raises(UsageError, match="--format is nanogpt there and llmc here; name another place"):  # fmt: skip
        _export(small, "llmc", where)
    other = empty_project(tmp_path / "other")
    write_release(other, {"train-00000": [[5]]})
    contents = [next(p.store.generations("shuffled_bins", None)).content[:16] for p in (small, other)]  # fmt: skip
    with pytest.raises(UsageError, match=f"has the content {contents[0]}… there and {contents[1]}… here"):  # fmt: skip
        _export(other, "nanogpt", where)


def test_nothing_is_written_where_something_else_lies(small: Project, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.bin").write_bytes(b"precious")
    (tmp_path / "file").write_bytes(b"")
    for place in ("mine", "file", "file/below"):
        with pytest.raises(UsageError, match="name another"):
            _export(small, "nanogpt", tmp_path / place)
    assert (tmp_path / "mine" / "train.bin").read_bytes() == b"precious"
    assert os.listdir(tmp_path / "mine") == ["train.bin"]


@pytest.mark.parametrize("place", ["data/releases/mine", "data/new", "data/exports", "link/x"])
def test_artifacts_and_exports_do_not_lie_in_one_folder(small: Project, place: str) -> None:
    """A folder among the artifacts that is none makes `corpus verify` complain of it for ever."""
    base = small.settings.base
    (base / "link").symlink_to(base / "data" / "releases")
    with pytest.raises(UsageError, match=r"lies in the storage folder .*/exports, or outside"):
        _export(small, "llmc", base / place)
    assert _export(small, "llmc", base / "data" / "exports" / "mine").written > 0
    assert _export(small, "llmc", base / "database").written > 0


def test_a_place_where_nothing_can_be_written_is_named(small: Project, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / ".export-parts").symlink_to(tmp_path)
    with pytest.raises(StorageError, match=r"to: nothing can be written there: .*File exists"):
        _export(small, "llmc", tmp_path / "to")
    assert os.listdir(tmp_path / "to") == [".export-parts"]


@pytest.mark.parametrize("noted", ['{"export": 5}', "[" * 9999, ""], ids=["other", "deep", "empty"])
def test_notes_of_an_export_that_say_nothing_are_written_again(
    noted: str, small: Project, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".export-state.jsonl").write_text(noted)
    assert _export(small, "nanogpt", tmp_path / "out").written == 4  # with the tokenizer


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("megatron", {"window": 8}, "--window: megatron knows no such option"),
        ("nanogpt", {"compression": "gzip"}, "--compression: nanogpt"),
        ("parquet", {"single_file": True}, "--single-file: parquet"),
        ("hdf5", {"single_file": True}, "--single-file: hdf5"),
        ("hdf5", {"window": 8, "chunk": 12}, "no multiple of the window of 8"),
        (
            "hdf5",
            {"window": 1 << 31},
            "--window 2147483648: HDF5 holds 2,147,483,647 tokens a chunk",
        ),
        ("olmo", {"local_scratch": Path("x")}, "--local-scratch: is for exports to s3"),
        ("olmo", {"upload_block_bytes": 1}, "--upload-block-size: is for"),
        ("olmo", {"to": "http://host/x"}, "a folder or s3://bucket/prefix is wanted"),
        ("words", {}, "no format 'words'"),
    ],
)
def test_an_option_that_means_nothing_here_is_refused(
    name: FormatName, options: dict[str, object], words: str, small: Project, tmp_path: Path
) -> None:
    options = {"to": str(tmp_path / "out"), **options}
    with pytest.raises(UsageError, match=words):
        export_release(small, _id(small), name, ExportOptions(**options))  # ty: ignore[invalid-argument-type]
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_told_and_leaves_no_file(
    small: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("corpus_platform.stages.export_target.flush_file", full)
        with pytest.raises(StorageError, match="No space left on device"):
            _export(small, "nanogpt", tmp_path / "out")
    assert _names(tmp_path / "out") == {".export-state.jsonl"}
    _export(small, "nanogpt", tmp_path / "out")
    assert plain_readers.nanogpt(tmp_path / "out" / "val.bin", 0) == [[11, 12, 0], [13, 0]]


def test_two_exports_to_one_place_wait_for_each_other(small: Project, tmp_path: Path) -> None:
    from corpus_platform.stages.export_target import held

    told, ended = list[str](), list[int]()
    options = ExportOptions(to=str(tmp_path / "out"))
    waited = threading.Event()

    def waiting(holder: str) -> None:
        told.append(holder)
        waited.set()

    def other() -> None:
        project = open_project(small.settings)
        report = export_release(project, _id(project), "nanogpt", options, waiting=waiting)
        ended.append(report.written)

    thread = threading.Thread(target=other)
    with held(small.settings.storage_path, str(tmp_path / "out"), None):
        thread.start()
        assert waited.wait(5)
        assert ended == []
        assert not (tmp_path / "out").exists()
    thread.join()
    assert told[0].startswith(f"process {os.getpid()} on ")
    assert ended == [4]


def test_a_folder_whose_name_is_not_utf8_is_as_good_as_any(small: Project, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff out"))
    _export(small, "megatron", folder)
    assert plain_readers.megatron(folder / "val-00000") == [[11, 12, 0], [13, 0]]
    assert _export(small, "megatron", folder).written == 0


def test_progress_reaches_its_total(small: Project, tmp_path: Path) -> None:
    told = list[tuple[str, int, int]]()
    options = ExportOptions(to=str(tmp_path / "out"))
    export_release(small, _id(small), "megatron", options, progress=lambda *said: told.append(said))
    assert told[0] == ("writing train-00000.bin", 6, 28)
    assert told[1] == ("reading again train-00000.bin", 12, 28)
    assert told[-1] == ("reading again val-00000.bin", 28, 28)
