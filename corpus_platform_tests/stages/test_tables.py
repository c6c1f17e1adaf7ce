"""Tests of the tables: binary columns read as matrices where they lie."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from corpus_platform.stages.tables import fixed_matrix


def test_a_column_of_equal_blobs_is_a_matrix_of_its_values() -> None:
    column = pa.array([struct.pack("<2I", 1, 2), struct.pack("<2I", 3, 2**32 - 1)], pa.binary())
    found = fixed_matrix(column, "<u4", 2)
    assert found.tolist() == [[1, 2], [3, 4294967295]]
    assert not found.flags.owndata


def test_a_slice_begins_at_its_own_row() -> None:
    column = pa.array([b"odd", struct.pack("<Q", 7), struct.pack("<Q", 8)], pa.binary())
    assert fixed_matrix(column.slice(1), "<u8", 1).tolist() == [[7], [8]]
    assert fixed_matrix(column.slice(1, 1), "<u8", 1).tolist() == [[7]]


def test_no_rows_are_a_matrix_of_none() -> None:
    for column in (pa.array([], pa.binary()), pa.array([b"x"], pa.binary()).slice(1)):
        assert fixed_matrix(column, "<u8", 16).shape == (0, 16)


@pytest.mark.parametrize("blobs", [[b"1234", b"123"], [b"1234", None], [b"123456789012"]])
def test_a_row_of_another_length_raises(blobs: list[bytes | None]) -> None:
    with pytest.raises(ValueError, match="4 bytes of 1 values"):
        fixed_matrix(pa.array(blobs, pa.binary()), np.dtype("<u4").str, 1)
