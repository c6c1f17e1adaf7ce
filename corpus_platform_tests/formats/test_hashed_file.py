"""Tests of what all writers of token files share."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StageFailed, StorageError
from corpus_platform.formats.hashed_file import HashedFile, check_ids, checked_ends, hashed_files


def test_a_file_is_hashed_as_it_is_written(tmp_path: Path) -> None:
    file = HashedFile(tmp_path / "a")
    file.write_array(np.array([1, 65_535]), np.dtype("<u2"))
    file.write_ones(600_000)
    file.close()
    wanted = b"\x01\x00\xff\xff" + b"\x01" * 600_000
    assert (tmp_path / "a").read_bytes() == wanted
    assert file.written(tokens=2)[1:4] == (600_004, hashlib.sha256(wanted).hexdigest(), 2)


def test_a_full_disk_is_a_storage_error_that_names_the_file() -> None:
    large, small = HashedFile(Path("/dev/full")), HashedFile(Path("/dev/full"))
    with pytest.raises(StorageError, match=r"/dev/full: cannot be written: .*No space left"):
        large.write_array(np.zeros(100_000, np.uint16), np.dtype("<u2"))
    small.write(b"x")
    with pytest.raises(StorageError, match=r"/dev/full: cannot be written: .*No space left"):
        small.close()


def test_files_of_a_block_that_fails_are_gone(tmp_path: Path) -> None:
    with pytest.raises(StorageError), hashed_files(tmp_path / "a", tmp_path / "no" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", [[2, 1, 3], [1, 2], [1, 4], [-1, 3], []])
def test_ends_must_rise_to_the_tokens(ends: list[int]) -> None:
    with pytest.raises(StageFailed, match="a: piece ends must rise from 0 to the 3 tokens given"):
        checked_ends("a", np.array(ends), 3, what="piece")


def test_an_id_outside_the_vocabulary_is_told_with_its_document() -> None:
    tokens, ends = np.array([1, 2, 9, 3]), np.array([2, 4])
    with pytest.raises(StageFailed, match=r"a: token id 9 in document 8 is outside the vocabulary"):
        check_ids("a", tokens, ends, vocab_size=9, what="document", before=7)


def test_ids_that_are_no_whole_numbers_are_refused() -> None:
    with pytest.raises(StageFailed, match="a: token ids must be integers, found float64"):
        check_ids("a", np.array([1.5]), np.array([1]), vocab_size=9, what="document", before=0)
