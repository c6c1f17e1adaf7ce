import unicodedata
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.text.units import UnitKind, split_units

ALPHABET = "ab1_ .-'\u0301\u00e9\u00b2\u00bd中文々〇。ーか゛ไทย้ລາវខ្មែမြန်हिन्दीعَر\U0001f600\U00020000\U000e0100\U00010400\U0001d7ce"
SCRIPTS = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def slow_units(text: str, kind: str) -> list[str]:
    """The rule of the design, one character after the other."""
    units: list[str] = []
    joined = False
    for character in text:
        category = unicodedata.category(character)
        counts = category[0] in "LM" or category == "Nd" or character == "_"
        name = unicodedata.name(character, "")
        unspaced = kind == "auto" and (name.startswith(SCRIPTS) or character in "々〇ーか゛")
        if unspaced and (counts or category == "Nl"):
            units.append(character)
            joined = False
        elif counts:
            units[-1:] = [units[-1] + character] if joined else [*units[-1:], character]
            joined = True
        else:
            joined = False
    return units


def test_words_are_runs_of_letters_digits_and_underscores() -> None:
    assert split_units("don't snake_case 3.14 x-ray", "auto") == (
        ["don", "t", "snake_case", "3", "14", "x", "ray"]
    )


def test_marks_belong_to_the_word() -> None:
    assert split_units("हिन्दी भाषा", "auto") == ["हिन्दी", "भाषा"]
    assert split_units("عَرَبِيّ", "auto") == ["عَرَبِيّ"]


def test_superscripts_fractions_and_emoji_separate() -> None:
    assert split_units("m² 1½ a👍🏽b", "auto") == ["m", "1", "a", "b"]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("机器学习 2026年。", ["机", "器", "学", "习", "2026", "年"]),
        ("二〇二六年 人々", ["二", "〇", "二", "六", "年", "人", "々"]),
        ("コーヒー・ひと", ["コ", "ー", "ヒ", "ー", "ひ", "と"]),
        ("ไทย฿", ["ไ", "ท", "ย"]),
        ("ลิ้น", ["ล", "ิ", "้", "น"]),
        ("ລາວ", ["ລ", "າ", "ວ"]),
        ("ខ្មែរ។", ["ខ", "្", "ម", "ែ", "រ"]),
        ("မြန်မာ", ["မ", "ြ", "န", "်", "မ", "ာ"]),
        ("\U00020000\U0002ebe0", ["\U00020000", "\U0002ebe0"]),
    ],
)
def test_each_character_of_an_unspaced_script_is_a_unit(text: str, units: list[str]) -> None:
    assert split_units(text, "auto") == units


def test_an_unspaced_character_is_a_unit_also_inside_a_run() -> None:
    assert split_units("gpt模型v2ไทยx", "auto") == ["gpt", "模", "型", "v2", "ไ", "ท", "ย", "x"]


def test_words_know_no_unspaced_scripts() -> None:
    assert split_units("gpt模型v2 ไทยx", "word") == ["gpt模型v2", "ไทยx"]


def test_hangul_has_blanks_and_is_cut_at_them() -> None:
    assert split_units("기계 학습", "auto") == ["기계", "학습"]


def test_characters_are_all_characters_of_the_folded_text() -> None:
    assert split_units("a b,中", "char") == ["a", " ", "b", ",", "中"]


@pytest.mark.parametrize("kind", get_args(UnitKind))
def test_an_empty_text_has_no_units(kind: UnitKind) -> None:
    assert split_units("", kind) == []


def test_letters_beyond_u_ffff_make_runs_with_others() -> None:
    assert split_units("a\U00010400b \U0001d7ce1 \U0001f600x", "auto") == (
        ["a\U00010400b", "\U0001d7ce1", "x"]
    )


@given(st.text(ALPHABET, max_size=40), st.sampled_from(["auto", "word"]))
@settings(deadline=None, max_examples=250)
def test_units_equal_the_rule_applied_character_by_character(text: str, kind: UnitKind) -> None:
    assert split_units(text, kind) == slow_units(text, kind)
