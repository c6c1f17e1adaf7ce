"""Tests of validation: every file hashed again, each that differs named."""

from pathlib import Path

import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.export_validation import validate_export
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform_tests.stages.releases import empty_project, write_release


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of two files and what comes with them."""
    project = empty_project(tmp_path / "p")
    made = write_release(project, {"train-00000": [[5, 6]], "val-00000": [[7]]})
    export_release(project, made, "nanogpt", ExportOptions(to=str(tmp_path / "out")))
    return tmp_path / "out"


def test_a_sound_export_has_no_fault(exported: Path) -> None:
    told = list[tuple[int, int]]()
    assert validate_export(exported, progress=lambda *said: told.append(said)) == (3, [])
    assert told[-1][0] == told[-1][1] == sum(p.stat().st_size for p in exported.iterdir()) - (exported / "export.json").stat().st_size  # fmt: skip


def test_each_file_that_differs_is_named(exported: Path) -> None:
    (exported / "train.bin").write_bytes(b"\5\0\6\0\1\0")
    (exported / "tokenizer.json").write_bytes(b"")
    (exported / "val.bin").unlink()
    count, faults = validate_export(exported)
    assert count == 3
    assert [fault.split(": ")[0].rsplit("/", 1)[1] for fault in faults] == [
        "tokenizer.json",
        "train.bin",
        "val.bin",
    ]
    assert "0 bytes, export.json says 36" in faults[0]
    assert "sha256 is " in faults[1]
    assert "cannot be read" in faults[2]


def test_shards_are_held_against_their_index(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    project, out = open_project(load_settings(finished)), tmp_path / "out"
    export_release(project, "current", "hdf5", ExportOptions(to=str(out)))
    assert validate_export(out) == (8, [])
    path = next((out / "train").rglob("part-00001*.h5"))
    data = bytearray(path.read_bytes())
    at = data.index(project.present("packed_bins", "2026-40/part-00001.jsonl.gz").path("train.bin").read_bytes()[:64])  # fmt: skip
    data[at] ^= 1
    path.write_bytes(data)
    (out / "export.json").unlink()  # a split that was copied alone
    count, (fault,) = validate_export(out)
    assert count == 5
    assert str(path) in fault
    assert "sha256" in fault


def test_a_byte_of_a_shard_that_holds_nothing_counts_too(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    project, out = open_project(load_settings(finished)), tmp_path / "out"
    export_release(project, "current", "hdf5", ExportOptions(to=str(out)))
    path = next((out / "train").rglob("part-00001*.h5"))
    data = bytearray(path.read_bytes())
    at = data.index(bytes(1000)) + 500
    data[at] = 1
    path.write_bytes(data)
    count, (fault,) = validate_export(out)
    assert (count, fault.split(": ")[0]) == (8, str(path))


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no export.json and no shards.json"):
        validate_export(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"version": 2}', b'{"version": 1, "files": [{"path": "../x", "bytes": 1, "sha256": ""}]}'],
)  # fmt: skip
def test_an_export_json_that_says_nothing_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "export.json").write_bytes(data)
    with pytest.raises(StorageError, match="does not say what was exported"):
        validate_export(tmp_path)
