"""Tests of the tables' helpers: names of a column become codes."""

import numpy as np
import pyarrow as pa
import pytest

from corpus_platform.stages.tables import name_codes


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (["b", "a", "b"], [2, 1, 2]),
        (["a", None, "strange"], [1, -1, -1]),
        ([None], [-1]),
        ([], []),
    ],
)
def test_each_name_has_its_code_and_what_has_none_minus_one(
    names: list[str | None], codes: list[int]
) -> None:
    found = name_codes(pa.array(names, pa.string()), {"a": 1, "b": 2})
    assert found.tolist() == codes
    assert found.dtype == np.int64


def test_a_slice_of_a_column_has_the_codes_of_its_rows() -> None:
    column = pa.array(["a", "b", None, "b"], pa.string()).slice(1, 2)
    assert name_codes(column, {"a": 1, "b": 2}).tolist() == [2, -1]
