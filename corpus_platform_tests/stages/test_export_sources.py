"""Tests of whose documents are exported: one reading of the table, whatever is asked for."""

import gzip
from pathlib import Path
from typing import Any  # arguments that are handed on

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpus_platform.errors import StageFailed
from corpus_platform.stages import export_sources, exporting
from corpus_platform.stages.export_sources import DocumentTable, FileSources
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform.stages.project import Project
from corpus_platform_tests.stages.releases import empty_project, write_release

# Documents of one token each and an end token; five train files, and one of validation.
COUNTS = {"train-00000": 3, "train-00001": 1, "train-00002": 7, "train-00003": 2, "val-00000": 4}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one release of these files."""
    project = empty_project(tmp_path / "p")
    write_release(project, {name: [[5]] * count for name, count in COUNTS.items()})
    return project


def _table(project: Project) -> Path:
    (artifact,) = project.store.generations("shuffled_bins", None)
    return artifact.path("documents.parquet")


def _export(project: Project, to: Path, *, single: bool = False) -> None:
    (artifact,) = project.store.generations("shuffled_bins", None)
    options = ExportOptions(to=str(to), single_file=single)
    export_release(project, artifact.folder.name, "olmo", options)


def _ids(path: Path) -> list[str]:
    lines = gzip.decompress(path.with_suffix(".csv.gz").read_bytes()).decode().splitlines()
    return [line.split(",")[2] for line in lines]


def _named(name: str) -> list[str]:
    return [f"{name}-{row}" for row in range(COUNTS[name])]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each batch that is read of the table, which has two at most."""
    rows = list[int]()
    real = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, *arguments: Any, **options: Any) -> Any:
        for batch in real(self, *arguments, **options):
            rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr(export_sources, "BATCH_ROWS", 2)
    return rows


@pytest.mark.parametrize("single", [False, True])
def test_the_table_is_read_once_in_batches(
    single: bool, project: Project, tmp_path: Path, read: list[int]
) -> None:
    _export(project, tmp_path / "out", single=single)
    assert (sum(read), max(read)) == (17, 2)
    for split, names in (("train", list(COUNTS)[:4]), ("val", ["val-00000"])):
        files = sorted((tmp_path / "out" / split).glob("*.npy"))
        found = [_ids(file) for file in files]
        wanted = [_named(name) for name in names]
        assert found == ([[i for ids in wanted for i in ids]] if single else wanted)


def test_an_export_that_goes_on_reads_it_once_too(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[int]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "export_json", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _export(project, tmp_path / "out")
    for name in ("train-00001", "train-00003"):
        (tmp_path / "out/train" / f"{name}.npy").unlink()
    read.clear()
    _export(project, tmp_path / "out")
    assert sum(read) <= 17
    for name in ("train-00001", "train-00003"):
        assert _ids(tmp_path / "out/train" / f"{name}.npy") == _named(name)


@pytest.mark.usefixtures("read")
def test_a_file_that_lies_before_is_found_again(project: Project) -> None:
    table = DocumentTable(_table(project))
    for name in ("train-00002", "train-00002", "train-00000", "val-00000"):
        sources = FileSources(table, name, f"{name}.bin")
        assert sources.take(np.full(COUNTS[name], 2)).ids == _named(name)


@pytest.mark.parametrize("count", [8, 9])
@pytest.mark.usefixtures("read")
def test_documents_that_the_table_does_not_list_are_an_error(count: int, project: Project) -> None:
    sources = FileSources(DocumentTable(_table(project)), "train-00002", "train-00002.bin")
    with pytest.raises(StageFailed, match="train-00002: has more documents than its table lists"):
        sources.take(np.full(count, 2))


def test_documents_of_other_lengths_than_the_table_lists_are_an_error(project: Project) -> None:
    sources = FileSources(DocumentTable(_table(project)), "train-00000", "train-00000.bin")
    with pytest.raises(StageFailed, match="documents are not as its table lists them"):
        sources.take(np.array([2, 3, 2]))
