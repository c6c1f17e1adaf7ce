import unicodedata
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.text import folding
from corpus_platform.text.folding import fold, fold_utf8


def test_white_space_of_all_kinds_becomes_one_blank_and_ends_are_stripped() -> None:
    assert fold("\u3000 a\t\u00a0\r\nb\x85c\u2028d\x1fe \n") == "a b c d e"


def test_zero_width_characters_are_not_white_space() -> None:
    assert fold("a\u200bb\ufeffc") == "a\u200bb\ufeffc"


def test_a_text_of_white_space_folds_to_nothing() -> None:
    assert fold(" \t\u3000\n") == ""


def test_cl_07_composed_and_decomposed_forms_fold_to_the_same_text() -> None:
    composed = "Caf\u00e9 cr\u00e8me br\u00fbl\u00e9e"
    decomposed = unicodedata.normalize("NFD", composed)
    assert len(decomposed) == 21
    assert fold(decomposed) == fold(composed) == "caf\u00e9 cr\u00e8me br\u00fbl\u00e9e"


def test_lower_case_does_not_look_at_neighbours() -> None:
    assert fold("ΟΔΥΣΣΕΥΣ ΟΔΥΣΣΕΎΣ. Σ") == "οδυσσευσ οδυσσεύσ. σ"
    assert "ΟΔΥΣΣΕΥΣ".lower() == "οδυσσευς"


def test_a_final_sigma_that_was_written_small_stays() -> None:
    assert fold("ὈΔΥΣΣΕΎς") == "ὀδυσσεύς"


def test_dotted_capital_i_becomes_one_letter() -> None:
    assert fold("İSTANBUL ISPARTA ı") == "istanbul isparta ı"


def test_compatibility_forms_are_not_unfolded() -> None:
    assert fold("ﬁne ① Ｆｕｌｌ ½ ẞ ǅ") == "ﬁne ① ｆｕｌｌ ½ ß ǆ"


def test_the_result_is_not_normalised_again() -> None:
    assert fold("J\u030c") == "j\u030c" != unicodedata.normalize("NFC", "j\u030c")


def _code_points(*, step: int) -> list[str]:
    """Return all characters of the planes that have any, and of the others some; no surrogates.

    Planes 4 to 13 are unassigned, 15 and 16 private.
    """
    planes = [*range(0x40000), *range(0xE0000, 0xF0000)]
    others = [*range(0x40000, 0xE0000, step), *range(0xF0000, 0x110000, step), 0x10FFFF]
    return [chr(p) for p in planes + others if not 0xD800 <= p <= 0xDFFF]


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_every_code_point_is_lowered_as_by_the_simple_mapping(step: int) -> None:
    # An independent way to the simple mapping: str.lower() of the letter between two digits, where
    # the rule for a final sigma does not hold; U+0130 is the only mapping to more than one.
    different = []
    for character in (*_code_points(step=step), *map(chr, range(0xD800, 0xE000))):
        if character.isspace() or unicodedata.normalize("NFC", character) != character:
            continue
        full = f"1{character}1".lower()[1:-1]
        simple = full if len(full) == 1 else full[0]
        if fold(character) != simple:
            different.append(hex(ord(character)))
    assert different == []


def test_only_u0130_has_a_lower_case_of_more_than_one_code_point() -> None:
    assert [p for p in range(0x110000) if len(chr(p).lower()) != 1] == [0x130]


@pytest.mark.parametrize("text", ["", "plain", "Ａ\u0301", "Σ\u0345", "가각", "\U0001d400"])
def test_simple_lower_case_keeps_the_number_of_code_points(text: str) -> None:
    assert len(fold(text)) == len(unicodedata.normalize("NFC", text))


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(deadline=None, max_examples=200)
def test_folding_is_step_by_step_what_the_page_says(text: str) -> None:
    lowered = (
        "i" if c == "\u0130" else "\u03c3" if c == "\u03a3" else c.lower()
        for c in unicodedata.normalize("NFC", text)
    )
    assert fold(text) == " ".join("".join(lowered).split())


@given(st.text("a\u00e9 \n\u3000\x85", max_size=30), st.integers(1, 5))
@settings(deadline=None)
def test_blocks_of_a_long_text_change_nothing(text: str, size: int) -> None:
    with mock.patch.object(folding, "_BLOCK", size):
        assert fold(text) == " ".join(text.split())


@settings(deadline=None)  # the first text may have to wait for the compiler
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_kernel_folds_as_the_plain_steps_do(text: str) -> None:
    assert fold_utf8(text) == fold(text).encode()


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_the_kernel_folds_every_code_point_as_the_plain_steps_do(step: int) -> None:
    text = "x".join(_code_points(step=step))
    assert fold_utf8(text) == fold(text).encode()


def test_the_kernel_has_room_for_letters_that_grow() -> None:
    assert fold_utf8("\u023a" * 1000) == "\u2c65".encode() * 1000


def test_a_letter_with_a_million_marks_is_folded_in_linear_time() -> None:
    """unicodedata alone would take half an hour; the marks come in the order of their classes."""
    text = "E" + "\u0315\u0300\u0327" * 333_333
    # Cedilla (202) stands before grave (230) before comma above right (232); e and cedilla are one.
    folded = "\u0229" + "\u0327" * 333_332 + "\u0300" * 333_333 + "\u0315" * 333_333
    assert fold(text) == folded
    assert fold_utf8(text) == folded.encode()


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from("aE\u00e9\u1eaf\uac00 \u0300\u0315\u0327\u0340\u0344\u0f73\u0f81\U0001e94a")
    )
    .map("".join)
    .map(lambda marks: marks * 40)
)
def test_long_runs_of_marks_have_the_form_of_unicode(text: str) -> None:
    assert folding._nfc(text) == unicodedata.normalize("NFC", text)
