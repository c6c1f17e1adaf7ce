"""The small corpus is the same on every machine and Python: numbers that other tests state rest on it."""

from corpus_platform.storage.files import text_sha256
from corpus_platform_tests.small import documents


def test_the_texts_are_the_same_everywhere() -> None:
    found = documents()
    assert len(found) == 273
    assert text_sha256("\0".join(d["text"] for d in found)) == (
        "f733b59c0783e2d2d84bc63d3a48bd8339fe7f2c36a44a1ae73359675c975ea0"
    )
