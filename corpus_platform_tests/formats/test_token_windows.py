"""Tests of windows: none that is legal is lost, none reaches over the end."""

import logging

import numpy as np
import pytest

from corpus_platform.formats.token_windows import (
    random_starts,
    told_windows,
    unused_labels,
    window,
    window_count,
)

CASES = [(17, 8), (16, 8), (9, 8), (8, 8), (0, 8), (100, 16)]


def test_pk_06_windows_starts_and_unused_labels_are_those_that_were_counted_by_hand() -> None:
    assert [window_count(n, t) for n, t in CASES] == [2, 1, 1, 0, 0, 6]
    assert [random_starts(n, t) for n, t in CASES] == [9, 8, 1, 0, 0, 84]
    assert [unused_labels(n, t) for n, t in CASES] == [0, 7, 0, 7, 0, 3]


@pytest.mark.parametrize(("tokens", "length"), CASES)
def test_pk_06_every_window_has_its_last_label(tokens: int, length: int) -> None:
    stream = np.arange(tokens)
    for start in range(random_starts(tokens, length)):
        inputs, labels = window(stream, start, length)
        assert inputs.tolist() == list(range(start, start + length))
        assert labels.tolist() == list(range(start + 1, start + length + 1))
    with pytest.raises(IndexError, match=f"{tokens} tokens have"):
        window(stream, random_starts(tokens, length), length)


def test_pk_09_a_file_too_small_for_a_window_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = [told_windows(f"train-{n}.bin", n, 8) for n in (0, 5, 8, 9)]
    assert found == [0, 0, 0, 1]
    assert [r.getMessage() for r in caplog.records] == [
        "train-5.bin: 5 tokens make no window of 8, which needs 9",
        "train-8.bin: 8 tokens make no window of 8, which needs 9",
    ]
