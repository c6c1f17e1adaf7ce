import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.filters.batch import Batch
from corpus_platform.filters.rules import hits_of, threshold_of, values_of
from corpus_platform.rule_settings import (
    CharRepeat,
    DupLines,
    LowAlnum,
    LowLangConfidence,
    TooShort,
)
from corpus_platform_tests.filters import plain

PIECES = ["\n", "\n\n", " ", "a", "x\n", "x\n", "é", "क", "\u093f", "\u064e", "\u200b\n", "\ufeff"]
LINES = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=14).map("".join)


def _batch(*texts: str) -> Batch:
    return Batch(texts, [None] * len(texts), [None] * len(texts))


@given(texts=st.lists(LINES | st.text(st.characters(), max_size=30), max_size=6))
@settings(deadline=None, max_examples=100)
def test_values_equal_the_plain_definitions_on_any_text(texts):
    _hold_against_the_plain_definitions(texts)


@pytest.mark.slow
@given(texts=st.lists(LINES | st.text(st.characters(), max_size=30), max_size=6))
@settings(deadline=None, max_examples=1000)
def test_values_equal_the_plain_definitions_on_many_texts(texts):
    _hold_against_the_plain_definitions(texts)


def _hold_against_the_plain_definitions(texts):
    batch = _batch(*texts)
    for blank in (True, False):
        expected = [plain.dup_lines(text, count_blank=blank) for text in texts]
        assert values_of(DupLines(count_blank=blank), batch).tolist() == expected
    for marks in (True, False):
        expected = [plain.alnum_share(text, count_marks=marks) for text in texts]
        assert values_of(LowAlnum(count_marks=marks), batch).tolist() == expected
    assert values_of(CharRepeat(), batch).tolist() == [plain.longest_run(text) for text in texts]
    assert values_of(TooShort(), batch).tolist() == [len(text) for text in texts]


@pytest.mark.parametrize(
    ("rule", "last_kept", "first_hit"),
    [
        (TooShort(min_chars=200), "é" * 200, "é" * 199),
        (DupLines(max_share=0.25), "a\nb\nc\nc", "a\nb\nb\nb"),
        (CharRepeat(max_run=50), "=" * 50, "=" * 51),
        (LowAlnum(min_share=0.5), "ab..", "a.b.."),
    ],
)
def test_a_value_at_the_threshold_is_kept(rule, last_kept, first_hit):
    assert hits_of(rule, values_of(rule, _batch(last_kept, first_hit))).tolist() == [False, True]


def test_an_exempt_document_has_no_value_and_is_not_hit():
    rule = LowLangConfidence()
    batch = Batch(["?" * 300, "?" * 300], ["en", None], [None, None])
    values = values_of(rule, batch)
    assert np.isnan(values[0])
    assert values[1] == 0.0
    assert hits_of(rule, values).tolist() == [False, True]


def test_thresholds_are_the_settings():
    rules = [TooShort(), DupLines(), CharRepeat(), LowAlnum(), LowLangConfidence()]
    assert [threshold_of(rule) for rule in rules] == [200.0, 0.3, 50.0, 0.5, 0.8]


def test_line_breaks_make_no_run():
    assert values_of(CharRepeat(), _batch("a" + "\n" * 60 + "b", "\r" * 60)).tolist() == [1, 60]


def test_cl_03_blank_lines_between_paragraphs_are_no_duplicates():
    text = "\n\n".join(f"Sentence number {n} stands alone." for n in range(10))
    assert values_of(DupLines(), _batch(text)).tolist() == [0.0]
    assert values_of(DupLines(count_blank=True), _batch(text)).tolist() == [1 - 11 / 19]


def test_cl_05_texts_without_content_raise_nothing():
    texts = ["", "   ", "\n\n", "\u00a0\u3000", "\u200b\u200b", "\ufeff", "!!!"]
    batch = _batch(*texts)
    assert values_of(DupLines(), batch).tolist() == [0.0] * 7
    assert values_of(LowAlnum(), batch).tolist() == [0.0] * 7
    assert values_of(CharRepeat(), batch).tolist() == [0, 3, 0, 1, 2, 1, 3]
    assert values_of(LowLangConfidence(), batch).tolist() == [0.0] * 7


def test_lines_of_white_space_and_invisible_characters_are_blank():
    text = "one\n \u200b\n\ufeff\ntwo\n\u00a0\n\r\nthree\n\u200b \n\x00"
    assert values_of(DupLines(), _batch(text)).tolist() == [0.0]
    assert values_of(DupLines(), _batch("one\none\n\u200b\n\u200b")).tolist() == [0.5]
