import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.packing.files import cut_files


def test_pk_07_five_documents_of_five_fill_three_files_of_ten() -> None:
    cut = cut_files(np.array([5, 5, 5, 5, 5]), max_tokens=10)
    assert cut.file.tolist() == [0, 0, 1, 1, 2]
    assert cut.oversized == 0


def test_a_document_longer_than_a_file_gets_one_of_its_own() -> None:
    cut = cut_files(np.array([4, 25, 0, 4, 11, 10]), max_tokens=10)
    assert cut.file.tolist() == [0, 1, 2, 2, 3, 4]
    assert cut.oversized == 2


def test_no_documents_make_no_file() -> None:
    assert cut_files(np.array([], dtype=np.int64), max_tokens=10).file.tolist() == []


def test_lengths_beyond_32_bits_add_up() -> None:
    lengths = np.array([1_500_000_000, 1_500_000_000, 5], dtype=np.int32)
    assert cut_files(lengths, max_tokens=3_000_000_000).file.tolist() == [0, 0, 1]


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_files_are_filled_one_document_at_a_time(lengths: list[int], limit: int) -> None:
    expected, number, held, started = [], 0, 0, False
    for length in lengths:
        if started and held + length > limit:
            number, held = number + 1, 0
        held, started = held + length, True
        expected.append(number)
    assert cut_files(np.array(lengths, dtype=np.int64), max_tokens=limit).file.tolist() == expected
