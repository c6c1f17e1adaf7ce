"""A token file written in parts hashes to what lies on the disk, taken while it grows."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.formats.slices import Slices
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.formats.token_bin_parts import PartsSeal, TokenBinParts
from corpus_platform.formats.token_bin_writer import Policy

POLICY = Policy(5_000, "5e" * 32, eos_id=None)
TOKENS = np.arange(10, dtype="<u2")


def _file(folder: Path) -> TokenBinParts:
    file = TokenBinParts(folder, "train-00000", POLICY, tokens=10, entries=3, masked=True)
    file.create()
    return file


def _write(file: TokenBinParts, first: int, ends: list[int], entry: int) -> None:
    part = Slices.whole(TOKENS[first : first + ends[-1]])
    file.write(first, entry, part, np.array(ends))


def test_parts_are_written_in_any_order_and_hashed_from_the_front(tmp_path: Path) -> None:
    file = _file(tmp_path)
    seal = PartsSeal(file)
    _write(file, 7, [3], 2)
    _write(file, 0, [4, 7], 0)
    seal.reach(7, 2)
    seal.reach(7, 2)
    header = seal.write_header(documents=3, padding=0)
    bin_ = open_token_bin(tmp_path, "train-00000")
    assert bin_.tokens.tolist() == TOKENS.tolist()
    assert bin_.ends.tolist() == [4, 7, 10]
    assert bin_.loss is not None
    assert bin_.loss.tolist() == [1] * 10
    for end, said in (("bin", header.bin), ("index", header.index), ("loss", header.loss)):
        data = file.path(end).read_bytes()
        assert said == (len(data), hashlib.sha256(data).hexdigest())


def test_a_file_that_became_shorter_meanwhile_is_named(tmp_path: Path) -> None:
    file = _file(tmp_path)
    _write(file, 0, [4, 7, 10], 0)
    file.path("index").write_bytes(b"12345678")
    with pytest.raises(StorageError, match=r"train-00000\.index: it ends at byte 8, not 24"):
        PartsSeal(file).write_header(documents=3, padding=0)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = TokenBinParts(tmp_path / "gone", "train-00000", POLICY, 10, 3, masked=False)
    with pytest.raises(StorageError, match=r"gone/train-00000\.bin: cannot be written"):
        file.create()
    with pytest.raises(StorageError, match=r"gone/train-00000\.bin: cannot be written"):
        _write(file, 0, [10], 0)
