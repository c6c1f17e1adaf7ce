from corpus_platform.dedup.exact import text_digest
from corpus_platform.text.folding import fold


def test_the_digest_is_sha256_of_the_utf_8_bytes() -> None:
    # printf 0 | sha256sum
    assert text_digest("0").hex() == (
        "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
    )


def test_cl_07_the_digest_of_the_composed_phrase_is_that_of_its_bytes() -> None:
    composed, decomposed = "Caf\u00e9 cr\u00e8me", "Cafe\u0301 cre\u0300me"
    assert text_digest(fold(composed)) == text_digest(fold(decomposed))
    assert text_digest(composed) != text_digest(decomposed)
