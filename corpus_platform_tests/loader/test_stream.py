"""Streams of several files: one number for each place, whichever file it is in."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StorageError
from corpus_platform_tests.loader.made import stream_of

few = settings(deadline=None, max_examples=60)
files = st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4), max_size=4)
Files = list[list[list[int]]]
THREE = [[[1, 2, 3], [4]], [], [[5, 6], [], [7]], [[]]]


def test_slices_go_over_files_and_those_without_a_token() -> None:
    stream = stream_of(*THREE)
    assert stream.offsets.tolist() == [0, 4, 4, 7, 7]
    assert stream.offsets.dtype == np.int64
    assert stream.get_slice(0, 7).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert stream.get_slice(3, 5).tolist() == [4, 5]
    assert [len(stream.get_slice(i, i)) for i in (0, 4, 7)] == [0, 0, 0]


def test_a_slice_of_one_file_is_no_copy() -> None:
    stream = stream_of(*THREE)
    assert np.shares_memory(stream.get_slice(4, 6), stream.part(2).tokens)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 8), (5, 4), (8, 8)])
def test_slices_over_an_end_are_refused(start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=f"tokens {start} to {stop} of 7"):
        stream_of(*THREE).get_slice(start, stop)


@few
@given(files, st.data())
def test_gathered_windows_are_the_slices(parts: Files, data: st.DataObject) -> None:
    stream = stream_of(*parts)
    flat = [token for file in parts for document in file for token in document]
    length = data.draw(st.integers(1, len(flat) or 1))
    places = st.integers(0, max(0, len(flat) - length))
    starts = data.draw(st.lists(places, max_size=6 if flat else 0))
    lines = stream.gather(np.array(starts, np.int64), length, np.dtype(np.int64))
    assert lines.shape == (len(starts), length)
    assert lines.tolist() == [flat[start : start + length] for start in starts]


@few
@given(files, st.data())
def test_borders_are_the_ends_of_documents_inside(parts: Files, data: st.DataObject) -> None:
    stream = stream_of(*parts)
    lengths = [len(document) for file in parts for document in file]
    start = data.draw(st.integers(0, sum(lengths)))
    stop = data.draw(st.integers(start, sum(lengths) + 2))
    every = set(np.cumsum(lengths, dtype=np.int64).tolist())
    assert stream.borders(start, stop).tolist() == [b for b in range(start + 1, stop) if b in every]


@few
@given(files, st.data())
def test_borders_of_many_windows_are_those_of_each(parts: Files, data: st.DataObject) -> None:
    """Windows may reach over the end by one token: the label behind the last input."""
    stream = stream_of(*parts)
    length = data.draw(st.integers(1, 9))
    last = min(len(stream) + 1 - length, len(stream) - 1)
    starts = data.draw(st.lists(st.integers(0, max(0, last)), max_size=5 if last >= 0 else 0))
    lines, offsets = stream.line_borders(np.array(starts, np.int64), length)
    expected = [
        (line, border - start)
        for line, start in enumerate(starts)
        for border in stream.borders(start, start + length).tolist()
    ]
    assert list(zip(lines.tolist(), offsets.tolist(), strict=True)) == expected


def test_tokens_count_where_no_file_has_a_mask_for_them() -> None:
    stream = stream_of([[1, 2]], [[3, 4]], masks=[None, [0, 1]])
    assert stream.loss(0, 4).tolist() == [True, True, False, True]


def test_what_is_pickled_are_names_and_counts() -> None:
    stream = stream_of([range(5000)])
    whole = stream.get_slice(0, 5000)
    stream.gather(np.array([1]), 3, np.dtype(np.int64))
    data = pickle.dumps(stream)
    assert whole[:100].tobytes() not in data
    assert pickle.loads(data).get_slice(0, 5000).tolist() == whole.tolist()


@pytest.mark.parametrize("wrong", [1 << 40, (1 << 64) - 1])
def test_borders_of_a_damaged_index_are_refused(wrong: int) -> None:
    """Of [3, 4, 6, 9] the second entry is another; those in (2, 8) are found by 3 and 9."""
    stream = stream_of([[1, 2, 3], [4], [5, 6], [7, 8, 9]], [[1]])
    ends = stream.part(0).ends
    assert ends is not None
    ends[1] = wrong
    for found in (stream.borders, lambda a, b: stream.line_borders(np.array([a]), b - a)):
        with pytest.raises(StorageError, match="the index of its documents does not rise"):
            found(2, 8)
