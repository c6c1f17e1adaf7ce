import pytest

from corpus_platform.filters.batch import Batch
from corpus_platform.filters.languages import tell
from corpus_platform.rule_settings import LowLangConfidence

DE = "Am Morgen fuhr der Zug mit zwanzig Minuten Verspätung los, und niemand wusste, warum."


# Program text, about which the model is unsure.
CODE = "fn main() { let v: Vec<u8> = xs.iter().map(|x| x ^ 0x5a).collect(); fmt::w(&v[..])?; }"


def _tell(
    rule: LowLangConfidence | None = None,
    *,
    text: str = DE,
    lang: str | None = None,
    url: str | None = None,
) -> tuple[str, bool, bool]:
    """Return the label, whether the model was asked, and whether the rule leaves it alone."""
    told = tell(Batch([text], [lang], [url]), rule)
    return told.labels[0], told.scores[0] is not None, bool(told.exempt[0])


def test_a_trusted_language_is_taken_as_given():
    assert _tell(LowLangConfidence(), lang="fr") == ("fr", False, True)


def test_a_given_language_that_is_not_trusted_stays_the_label_and_the_model_gives_the_score():
    assert _tell(LowLangConfidence(trust_given=False), lang="fr") == ("fr", True, False)


@pytest.mark.parametrize("lang", [None, "", " "])
def test_a_document_without_language_is_identified(lang):
    assert _tell(LowLangConfidence(), lang=lang) == ("de", True, False)


def test_a_document_is_identified_where_the_rule_is_not_in_force():
    assert _tell(None) == ("de", True, False)
    assert _tell(None, lang="fr") == ("fr", False, True)


@pytest.mark.parametrize(
    "url",
    [
        "https://host.example/src/main.rs",
        "https://host.example/src/main.rs?raw=1#L10",
        "https://host.example/PLOT.R",
        "src/setup.py",
    ],
)
def test_code_is_known_by_the_path_of_its_address(url):
    unsure = LowLangConfidence(trust_given=False)
    assert _tell(unsure, text=CODE, url=url) == ("code", True, True)
    assert _tell(unsure, text=CODE, lang="fr", url=url) == ("fr", False, True)
    assert _tell(LowLangConfidence(exempt_code=False), text=CODE, url=url)[2] is False


def test_a_text_at_an_address_of_code_keeps_the_language_the_model_is_sure_of():
    url = "https://host.example/poems/1.json"
    assert _tell(LowLangConfidence(), url=url) == ("de", True, True)


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.rs",
        "https://host.example/page?file=main.rs",
        "https://host.example/page#main.rs",
        "https://host.example/scores",
        "http://[broken/main.rs",
        "",
    ],
)
def test_a_suffix_elsewhere_than_in_the_path_proves_nothing(url):
    assert _tell(LowLangConfidence(), url=url) == ("de", True, False)


def test_given_code_is_exempt_unless_the_settings_say_otherwise():
    strict = LowLangConfidence(trust_given=False, exempt_code=False)
    assert _tell(LowLangConfidence(trust_given=False), lang="code") == ("code", False, True)
    assert _tell(strict, lang="code") == ("code", True, False)
