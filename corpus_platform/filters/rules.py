"""The five rules: a value for each document, and the threshold that drops it.

    too_short            code points                                below min_chars
    dup_lines            1 - distinct lines / lines                 above max_share
    char_repeat          longest run of one character, no "\\n"      above max_run
    low_alnum            letters and numbers / code points          below min_share
    low_lang_confidence  score of the language, NaN where exempt    below min_score

A batch goes in, one float64 per document comes out. Which rule owns a drop is decided in
verdicts.py.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from corpus_platform.filters.batch import Batch
from corpus_platform.filters.languages import Languages, tell
from corpus_platform.rule_settings import (
    CharRepeat,
    DupLines,
    LowAlnum,
    LowLangConfidence,
    RuleSettings,
    TooShort,
)
from corpus_platform.text.code_points import INVISIBLE, classes

__all__ = ["hits_of", "threshold_of", "values_of"]


def values_of(rule: RuleSettings, batch: Batch, languages: Languages | None = None) -> np.ndarray:
    """Return what the rule looks at, for each document; `languages` are told anew where None."""
    match rule:
        case TooShort():
            return batch.measures.chars.astype(np.float64)
        case DupLines(count_blank=True):
            return _dup_lines(text.split("\n") for text in batch.texts)
        case DupLines():
            return _dup_lines(map(_visible_lines, batch.texts, batch.measures.invisible > 0))
        case CharRepeat():
            return batch.measures.longest_run.astype(np.float64)
        case LowAlnum():
            counted = batch.measures.word if rule.count_marks else batch.measures.alnum
            return counted / np.maximum(batch.measures.chars, 1)
        case LowLangConfidence():
            told = languages or tell(batch, rule)
            return np.where(told.exempt, np.nan, np.array(told.scores, dtype=np.float64))


def threshold_of(rule: RuleSettings) -> float:
    """Return the number that the values of the rule are held against."""
    match rule:
        case TooShort():
            return float(rule.min_chars)
        case DupLines():
            return rule.max_share
        case CharRepeat():
            return float(rule.max_run)
        case LowAlnum():
            return rule.min_share
        case LowLangConfidence():
            return rule.min_score


def hits_of(rule: RuleSettings, values: np.ndarray) -> np.ndarray:
    """Return which documents the rule drops; a value at the threshold and NaN are kept."""
    if isinstance(rule, DupLines | CharRepeat):
        return values > threshold_of(rule)
    return values < threshold_of(rule)


def _dup_lines(documents: Iterable[list[str]]) -> np.ndarray:
    """Return 1 - distinct / all for each list of lines, 0 where there is none."""
    # A set per document, not a sort of hashes: exact, and 170 MB/s, as fast as the counts.
    shares = (1 - len(set(lines)) / len(lines) if lines else 0.0 for lines in documents)
    return np.fromiter(shares, dtype=np.float64)


def _visible_lines(text: str, has_invisible: bool) -> list[str]:
    lines = list(filter(str.strip, text.split("\n")))
    return list(filter(_visible(), lines)) if has_invisible else lines


@cache
def _visible() -> Callable[[str], object]:
    """Return a search for a character that is neither white space nor invisible."""
    hidden = "".join(map(chr, np.flatnonzero(classes() & INVISIBLE)))
    return re.compile(rf"[^\s{re.escape(hidden)}]").search
