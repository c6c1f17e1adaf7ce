"""The index of a folder of exported shards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.hdf5 import Hdf5Writer
from corpus_platform.formats.shards_json import (
    ShardEntry,
    ShardIndex,
    parse_index,
    read_index,
    verify_shards,
)

TOKENIZER, HASH = "5e" * 32, "ab" * 32
EMPTY = ShardIndex(tokenizer_sha256=TOKENIZER, vocab_size=1000, eos_id=0, dtype="uint16", window=4)
GOLDEN = """{
  "dtype": "uint16",
  "eos_id": 0,
  "files": "hdf5",
  "format": "corpus-token-shards",
  "shards": [
    {
      "bytes": 8000,
      "docs": 3,
      "path": "2026-40/a.h5",
      "sha256": "abababababababababababababababababababababababababababababababab",
      "shard": "2026-40/a",
      "tokens": 12
    }
  ],
  "tokenizer_sha256": "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e",
  "version": 1,
  "vocab_size": 1000,
  "window": 4
}
"""


def entry(path: str = "2026-40/a.h5", *, tokens: int = 12) -> ShardEntry:
    return ShardEntry(path, tokens, 3, HASH, 8000, "2026-40/a")


def test_the_index_is_the_golden_bytes() -> None:
    index = EMPTY.with_shard(entry())
    assert index.to_json().decode() == GOLDEN
    assert parse_index(GOLDEN.encode(), "x") == index


def test_offsets_are_where_shards_begin_and_where_the_last_ends() -> None:
    index = EMPTY
    for number, tokens in enumerate([5, 0, 1 << 40, 7]):
        index = index.with_shard(entry(f"{number}.h5", tokens=tokens))
    offsets = index.offsets()
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [0, 5, 5, 1099511627781, 1099511627788]
    assert EMPTY.offsets().tolist() == [0]


def test_a_shard_that_is_listed_already_changes_nothing() -> None:
    index = EMPTY.with_shard(entry())
    assert index.with_shard(entry()) is index


def test_another_shard_of_a_listed_path_is_refused() -> None:
    with pytest.raises(StorageError, match=r"path '2026-40/a.h5' is listed twice"):
        EMPTY.with_shard(entry()).with_shard(entry(tokens=13))


@pytest.mark.parametrize(
    "path",
    ["../a.h5", "a/../../b.h5", "/etc/a.h5", "", ".", "a/", "a//b", "./a", "C:a", "..\\a", "a\nb"],
)
def test_paths_stay_in_the_folder(path: str) -> None:
    with pytest.raises(StorageError, match="does not lie in the folder"):
        EMPTY.with_shard(entry(path))
    data = GOLDEN.replace('"2026-40/a.h5"', json.dumps(path)).encode()
    with pytest.raises(StorageError, match=r"x/shards.json: path .* does not lie in the folder"):
        parse_index(data, "x/shards.json")


FAULTS = {
    "no JSON": ("{", "[", "Expecting"),
    "a key twice": ('"eos_id": 0', '"eos_id": 0, "eos_id": 1', "a key stands there twice"),
    "of others": ("corpus-token-shards", "x", "format"),
    "later version": ('"version": 1', '"version": 2', "version"),
    "no version": ('"version": 1,\n', "", "version is missing"),
    "unknown key": ('"docs"', '"documents"', "documents"),
    "no tokens": (',\n      "tokens": 12', "", "tokens"),
    "tokens no number": ('"tokens": 12', '"tokens": "12"', r"\$.shards\[0\].tokens"),
    "tokens below 0": ('"tokens": 12', '"tokens": -1', r"\$.shards\[0\].tokens"),
    "tokens true": ('"tokens": 12', '"tokens": true', r"\$.shards\[0\].tokens"),
    "too many": ('"tokens": 12', '"tokens": 9223372036854775808', "less than 2"),
    "no hash": ("abab", "ABAB", r"\$.shards\[0\].sha256"),
    "type": ('"uint16"', '"uint32"', "dtype is 'uint32', but vocab_size 1000 makes it 'uint16'"),
    "end token": ('"eos_id": 0', '"eos_id": 1000', "eos_id 1000 is outside"),
    "a window of nothing": ('"window": 4', '"window": 0', r"\$.window"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_index_that_cannot_be_is_refused(fault: str) -> None:
    old, new, words = FAULTS[fault]
    assert old in GOLDEN
    with pytest.raises(StorageError, match=f"here: .*{words}"):
        parse_index(GOLDEN.replace(old, new).encode(), "here")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(StorageError, match="here: no index of token shards"):
        parse_index(b"\xff\xfe\xfd", "here")


def test_a_folder_without_an_index_is_no_finished_export(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be read: .* is the export finished"):
        read_index(tmp_path)


# Shards that are what the index says, or not


def make(folder: Path, name: str, tokens: list[int], **options: Any) -> ShardEntry:
    usual: dict[str, Any] = {"vocab_size": 1000, "eos_id": 0, "tokenizer_sha256": TOKENIZER}
    with Hdf5Writer(folder / name, **{**usual, **options}, chunk_tokens=4) as file:
        file.append(np.array(tokens), np.array([len(tokens)]))
    (written,) = file.written
    return ShardEntry(
        name, written.tokens, written.documents, file.tokens_sha256, written.bytes, name
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of four shards."""
    pytest.importorskip("h5py", reason="needs the extra hdf5")
    index = EMPTY
    for i in range(4):
        index = index.with_shard(make(tmp_path, f"{i}.h5", [i + 1, i + 2, i + 3, i + 4, 0]))
    (tmp_path / "shards.json").write_bytes(index.to_json())
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 3, None])
def test_shards_that_are_whole_have_no_faults(folder: Path, jobs: int | None) -> None:
    sizes = []
    assert verify_shards(folder, jobs=jobs, checked=sizes.append) == []
    assert sorted(sizes) == sorted(entry.bytes for entry in read_index(folder).shards)


def test_each_shard_that_is_not_whole_is_named(folder: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "0.h5", "r+") as file:
        file["tokens"][2] = 999
    (folder / "2.h5").unlink()
    (folder / "3.h5").write_bytes((folder / "3.h5").read_bytes()[:-1])
    size = read_index(folder).shards[3].bytes
    damaged, gone, cut = verify_shards(folder, jobs=2)
    assert damaged.startswith(f"{folder / '0.h5'}: sha256 of tokens is ")
    assert gone.startswith(f"{folder / '2.h5'}: cannot be read: ")
    assert cut.startswith(f"{folder / '3.h5'}: {size - 1} bytes, expected {size}")


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        ([1, 2, 3, 9, 0], {}, "sha256 of its tokens is"),
        ([1, 2, 3, 4, 5], {"eos_id": 1}, "eos_id is 1, shards.json says 0"),
        ([1, 2, 3, 4, 5], {"tokenizer_sha256": HASH}, f"tokenizer_sha256 is {HASH}, shards.json"),
        ([1, 2, 3, 4, 5], {"vocab_size": 999}, "vocab_size is 999, shards.json says 1000"),
        ([1, 2, 3, 4], {}, "tokens is 4, shards.json says 5"),
    ],
)
def test_a_whole_file_that_is_another_shard_is_named(
    folder: Path, tokens: list[int], options: dict[str, Any], words: str
) -> None:
    make(folder, "1.h5", tokens, **options)
    (fault,) = verify_shards(folder)
    assert fault.startswith(f"{folder / '1.h5'}: {words}")


def test_no_jobs_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="jobs 0: at least 1 is wanted"):
        verify_shards(folder, jobs=0)
