import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.filters import measures
from corpus_platform.filters.measures import measure
from corpus_platform_tests.filters import plain

PIECES = st.sampled_from(
    ["\n", "\n\n", "a", "aaaaaaaa", "=" * 60, "\u200b", "क", "\u093f", "\ud800"]
)
TEXTS = st.lists(st.lists(PIECES | st.text(max_size=12), max_size=8).map("".join), max_size=12)


SLOW = [pytest.param(window, marks=pytest.mark.slow) for window in (2, 64)]


@pytest.mark.parametrize("window", [1, 7, 1 << 18, *SLOW])
@given(texts=TEXTS)
@settings(deadline=None, max_examples=60)
def test_counts_do_not_depend_on_the_window(window, texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "_WINDOW", window)
        found = measure(texts)
    assert found.chars.tolist() == [len(text) for text in texts]
    assert found.alnum.tolist() == [sum(map(str.isalnum, text)) for text in texts]
    assert found.longest_run.tolist() == [plain.longest_run(text) for text in texts]


def test_a_run_does_not_reach_from_one_text_into_the_next():
    assert measure(["aaa", "aa", "", "a\n\n\na"]).longest_run.tolist() == [3, 2, 0, 1]


def test_a_run_longer_than_many_windows_is_counted_whole():
    assert measure(["x" * 3_000_000, "yy" + "x" * 2_000_000 + "y"]).longest_run.tolist() == [
        3_000_000,
        2_000_000,
    ]


def test_memory_is_one_copy_of_the_longest_text_and_a_window():
    text = "=" * 16_000_000
    measure([""])  # the table of classes is made once and is not counted here
    tracemalloc.start()
    measure([text])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000 + 12_000_000
