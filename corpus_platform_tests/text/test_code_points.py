import unicodedata

import numpy as np

from corpus_platform.text.code_points import (
    ALNUM,
    DENSE,
    INVISIBLE,
    LETTER,
    LOWER,
    UPPER,
    WORD,
    classes,
    encode,
)


def _members(flag: int) -> set[int]:
    return set(np.flatnonzero(classes() & flag).tolist())


def _points(belongs) -> set[int]:
    return {point for point in range(0x110000) if belongs(chr(point))}


def test_the_table_says_what_the_str_methods_say_of_every_code_point():
    assert _members(ALNUM) == _points(str.isalnum)
    assert _members(LETTER) == _points(str.isalpha)
    assert _members(UPPER) == _points(str.isupper)
    assert _members(LOWER) == _points(str.islower)


def test_words_are_made_of_letters_numbers_and_marks():
    assert _members(WORD) == _points(lambda char: unicodedata.category(char)[0] in "LNM")


def test_the_invisible_ones_are_controls_and_default_ignorables_but_not_white_space():
    # 65 controls, of which 10 are white space, and the 4174 default-ignorables of Unicode 15.
    assert len(_members(INVISIBLE)) == 65 - 10 + 4174
    assert not any(chr(point).isspace() for point in _members(INVISIBLE))
    assert {0x200B, 0xFEFF, 0x2060, 0x00AD, 0x0000, 0x3164, 0xE0020} <= _members(INVISIBLE)


def test_dense_scripts_are_letters_only():
    assert {ord(char) for char in "北ひカ한ไລကខ"} <= _members(DENSE)
    assert not {ord(char) for char in "aяαש。、๑"} & _members(DENSE)


def test_lone_surrogates_are_code_points_of_their_own():
    assert encode("a\ud800\U0001f600").tolist() == [0x61, 0xD800, 0x1F600]
