"""The language of each document: what its record says, else what the model says, else code.

Says also which documents the language rule leaves alone. Whether a score is too low is its own
question (rules.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from corpus_platform.filters.batch import Batch
from corpus_platform.rule_settings import LowLangConfidence
from corpus_platform.text.langid import identify

__all__ = ["CODE", "Languages", "tell"]

CODE = "code"


@dataclass(frozen=True, eq=False)
class Languages:
    """Label and score of each document, and whether the language rule leaves it alone."""

    labels: Sequence[str]
    scores: Sequence[float | None]  # None where the model was not asked
    exempt: np.ndarray


def tell(batch: Batch, rule: LowLangConfidence | None, *, model: Path | None = None) -> Languages:
    """Return the language of every document, under the defaults where the rule is not in force.

    A given language is the label whatever the model says. The model is asked where none is given
    and where the rule wants a score. A document that is code by its address and no text that the
    model is sure of has the label `code`: program text gets any language, at 0.2 to 0.8.
    """
    rule = rule or LowLangConfidence()
    given = [lang.strip() if lang else "" for lang in batch.langs]
    exempt = np.array(
        [
            bool(lang and rule.trust_given)
            or (rule.exempt_code and (lang == CODE or _is_code(url, rule.code_suffixes)))
            for lang, url in zip(given, batch.urls, strict=True)
        ],
        dtype=bool,
    )
    asked = [i for i, lang in enumerate(given) if not (lang and exempt[i])]
    answers = identify((batch.texts[i] for i in asked), max_bytes=rule.max_bytes, model=model)
    labels = given.copy()
    scores: list[float | None] = [None] * len(batch)
    for i, (label, score) in zip(asked, answers, strict=True):
        scores[i] = score
        labels[i] = given[i] or (CODE if exempt[i] and score < rule.min_score else label)
    return Languages(labels, scores, exempt)


def _is_code(url: str | None, suffixes: tuple[str, ...]) -> bool:
    if not url:
        return False
    try:
        path = urlsplit(url).path
    except ValueError:  # e.g. an unclosed [ in the host; such an address proves nothing
        return False
    return path.lower().endswith(tuple(map(str.lower, suffixes)))
