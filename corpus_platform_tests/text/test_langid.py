import subprocess
import sys

import pytest

from corpus_platform.errors import SettingsError
from corpus_platform.text.langid import identify

EN = (
    "The bridge across the river was built by local workers over three summers, and most of the"
    " stone came from a quarry that has since been closed. People still use it every day to reach"
    " the market, the school and the small station on the other side."
)
DE = "Die Kinder saßen am Fenster und zählten die Kühe auf den Wiesen."
KO = "오늘은 비가 와서 집에서 책을 읽었습니다"


def _label(text: str, max_bytes: int = 2000) -> str:
    return identify([text], max_bytes=max_bytes)[0][0]


def test_lid_01_a_text_of_many_lines_is_judged_as_a_whole():
    text = "\n".join(
        [
            "Home | Login | Contact",
            "Am Morgen fuhr der Zug mit zwanzig Minuten Verspätung los.",
            DE,
            "Später gab es Brote mit Käse und eine Kanne warmen Tee.",
            "Niemand wusste, ob der Anschluss in der nächsten Stadt warten würde.",
            "Der Schaffner kam vorbei und lächelte freundlich.",
            "Am Abend waren alle müde, aber zufrieden.",
            "Cookie settings",
        ]
    )
    assert [_label(text), _label(text.replace("\n", " "))] == ["de", "de"]


def test_lid_02_little_evidence_gives_no_confident_wrong_label():
    answers = identify(["SERVICE DEPLOYMENT CHECKLIST", "OK", "12345", ""], max_bytes=2000)
    assert answers[0][0] == "en"
    assert answers[1:] == [("und", 0.0)] * 3


def test_lid_02_capitals_do_not_change_the_language():
    assert [_label(EN), _label(EN.upper())] == ["en", "en"]


@pytest.mark.parametrize("tail", ["", "a", "~", " v2"])
def test_lid_04_a_few_foreign_characters_do_not_change_the_language(tail):
    assert _label(KO + tail) == "ko"


def test_ten_letters_or_four_of_a_dense_script_are_asked_about():
    assert [_label("abcdefghi 12"), _label("春天的"), _label("!?— 42 …" * 100)] == ["und"] * 3
    assert [_label("Guten Morgen"), _label("我们喜欢")] == ["de", "zh"]


def test_only_the_first_bytes_count_and_a_character_is_not_cut_in_two():
    assert _label(DE * 10 + EN * 10, max_bytes=600) == "de"
    assert [identify([DE], max_bytes=n)[0][0] for n in range(55, 65)] == ["de"] * 10


def test_vowel_points_do_not_change_language_or_confidence():
    arabic = "ذَهَبَ الطَّالِبُ إِلَى الْمَدْرَسَةِ فِي الصَّبَاحِ الْبَاكِرِ وَقَرَأَ كِتَابًا جَمِيلًا."
    bare = "ذهب الطالب إلى المدرسة في الصباح الباكر وقرأ كتابا جميلا."
    assert identify([arabic], max_bytes=2000) == identify([bare], max_bytes=2000)
    assert identify([arabic], max_bytes=2000)[0][1] > 0.9


def test_a_text_that_spells_the_end_of_sentence_is_read_on():
    assert _label(f"x </s> {DE}") == "de"


def test_scores_stay_within_one_and_lone_surrogates_do_no_harm():
    answers = identify([EN * 5, KO * 20, "\ud800" + DE, "\x00" + DE], max_bytes=2000)
    assert [label for label, _ in answers] == ["en", "ko", "de", "de"]
    assert all(0.9 < score <= 1.0 for _, score in answers)


def test_a_missing_model_is_an_error_that_names_the_path(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.ftz"):
        identify([EN], max_bytes=2000, model=tmp_path / "none.ftz")


def test_loading_the_model_prints_nothing():
    code = (
        "from corpus_platform.text.langid import identify\n"
        "assert identify(['Am Abend waren alle müde.'], max_bytes=2000)[0][0] == 'de'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
