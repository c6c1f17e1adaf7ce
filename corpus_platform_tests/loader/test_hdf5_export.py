"""Exports of HDF5 files give the batches of a release of the same tokens."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.shards_json import ShardEntry, ShardIndex
from corpus_platform.loader.hdf5_export import open_hdf5_export
from corpus_platform_tests.loader.made import in_processes, places, release_of

pytest.importorskip("h5py", reason="needs the extra hdf5")
from corpus_platform.formats.hdf5 import Hdf5Writer

TOKENIZER = "5e" * 32
SHARDS = [[[5, 6, 7, 0], [8, 0]], [], [[9, 9, 9, 9, 9, 9, 0], [3, 0]]]


def write(folder: Path, shards: list[list[list[int]]], **options: Any) -> Path:
    """Write an export of one split."""
    folder.mkdir(parents=True, exist_ok=True)
    index = ShardIndex(
        tokenizer_sha256=TOKENIZER, vocab_size=1000, eos_id=0, dtype="uint16", window=4
    )
    usual: dict[str, Any] = {"vocab_size": 1000, "eos_id": 0, "tokenizer_sha256": TOKENIZER}
    for number, documents in enumerate(shards):
        flat = np.array([i for d in documents for i in d], np.int64)
        path = folder / f"{number}.h5"
        with Hdf5Writer(path, **usual, chunk_tokens=4, **options) as file:
            mask = flat % 2 == 0 if options.get("loss") else None
            file.append(flat, np.cumsum([len(d) for d in documents], dtype=np.int64), mask)
        (written,) = file.written
        counts = (written.tokens, written.documents, file.tokens_sha256, written.bytes)
        index = index.with_shard(ShardEntry(path.name, *counts, path.name))
    (folder / "shards.json").write_bytes(index.to_json())
    return folder


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"loss": True}])
def test_batches_are_those_of_a_release_of_the_same_tokens(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    export = open_hdf5_export(write(tmp_path / "train", SHARDS, **options), verify="sha256")
    masks = [[int(i % 2 == 0) for d in s for i in d] for s in SHARDS] if options.get("loss") else ()
    release = release_of(*SHARDS, masks=masks, has_loss=bool(masks))
    assert export.get_slice(0, 15).tolist() == release.get_slice(0, 15).tolist()
    made = [r.windows(3, 2, seed=4, borders=True, mask_boundary="begin") for r in (export, release)]
    for ours, theirs in zip(*made, strict=True):
        for name in ("x", "y", "loss", "places", "cu_seqlens"):
            assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    assert (export.documents, export.split, export.eos_id) == (4, "train", 0)


def test_the_folder_of_a_whole_export_has_one_for_each_split(tmp_path: Path) -> None:
    write(tmp_path / "train", SHARDS)
    write(tmp_path / "val", [[[1, 0]]])
    assert len(open_hdf5_export(tmp_path)) == 15
    assert open_hdf5_export(tmp_path, split="val").get_slice(0, 2).tolist() == [1, 0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("way", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_h5_03_workers_read_the_same_windows_after_the_parent_has_read(
    tmp_path: Path, way: str, packed: bool
) -> None:
    """100 windows, 0 and 2 workers; each process has a handle of its own."""
    options = {"compression": "gzip"} if packed else {}
    shards = [[[*range(1, 101), 0]], [[*range(100, 200), 0]]]
    export = open_hdf5_export(write(tmp_path / "train", shards, **options))
    assert export.get_slice(0, 3).tolist() == [1, 2, 3]
    batches = export.windows(2, 4, seed=1)
    expected = sorted(line for batch in batches for line in batch.x.tolist())
    assert len(expected) == 100
    batches.epoch = 0
    found = in_processes(batches, 2, way)
    assert sorted(found) == expected


def test_an_export_is_pickled_as_names_and_counts(tmp_path: Path) -> None:
    batches = open_hdf5_export(write(tmp_path / "train", SHARDS)).sequential(2, 4)
    assert places(pickle.loads(pickle.dumps(batches))) == list(range(0, 14, 2))


def test_a_shard_more_is_another_export(tmp_path: Path) -> None:
    state = open_hdf5_export(write(tmp_path / "train", SHARDS)).windows(2, 1, seed=1).state()
    longer = open_hdf5_export(write(tmp_path / "train", [*SHARDS, [[1, 0]]]))
    with pytest.raises(UsageError, match="state was made with content"):
        longer.windows(2, 1, seed=1).load_state(state)


def test_only_the_export_of_the_expected_content_is_opened(tmp_path: Path) -> None:
    """That is what sha256sum says of shards.json."""
    folder = write(tmp_path / "train", SHARDS)
    said = hashlib.sha256((folder / "shards.json").read_bytes()).hexdigest()
    assert open_hdf5_export(tmp_path, expect_content=said).content == said
    with pytest.raises(UsageError, match=rf"train/shards.json has content {said}, expected abab"):
        open_hdf5_export(tmp_path, expect_content="ab" * 32)


def test_files_that_are_not_what_the_index_says_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "train", SHARDS)
    (folder / "2.h5").write_bytes((folder / "2.h5").read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"2.h5: \d+ bytes, expected \d+ for what shards.json"):
        open_hdf5_export(folder)
    write(tmp_path / "other", [[[1, 2, 3, 0], [4, 0]]])
    (folder / "0.h5").write_bytes((tmp_path / "other" / "0.h5").read_bytes())
    (folder / "2.h5").unlink()
    with pytest.raises(StorageError) as caught:
        open_hdf5_export(folder, verify="sha256")
    first, second, _ = str(caught.value).splitlines()
    assert first.startswith(f"{folder / '0.h5'}: sha256 of its tokens is")
    assert second.startswith(f"{folder / '2.h5'}: cannot be read")


def test_another_tokenizer_and_what_is_no_export_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "train", SHARDS)
    open_hdf5_export(folder, expect_tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match="expected abab"):
        open_hdf5_export(folder, expect_tokenizer="ab" * 32)
    with pytest.raises(StorageError, match="is the export finished"):
        open_hdf5_export(tmp_path / "none")
    with pytest.raises(UsageError, match="verify 'all'"):
        open_hdf5_export(folder, verify="all")  # ty: ignore[invalid-argument-type]


def test_a_folder_that_is_none_of_an_export_to_hdf5_says_what_to_open(tmp_path: Path) -> None:
    def said(folder: Path) -> str:
        with pytest.raises(StorageError) as error:
            open_hdf5_export(folder)
        return str(error.value)

    for name in ("a", "b"):
        write(tmp_path / "exports" / name / "train", SHARDS)
    assert said(tmp_path / "exports") == (
        f"{tmp_path}/exports: is the folder above exports to HDF5, and none itself; open one of"
        f" {tmp_path}/exports/a, {tmp_path}/exports/b"
    )
    for name, words in (
        ("export.json", "is an export to another format, or has no such split; open one to HDF5"),
        ("current.json", "holds a release and no export; corpus_platform.loader.opening opens those"),
    ):  # fmt: skip
        (tmp_path / name[:6]).mkdir()
        (tmp_path / name[:6] / name).write_text("{}")
        assert said(tmp_path / name[:6]) == f"{tmp_path / name[:6]}: {words}"
