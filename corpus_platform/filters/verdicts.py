"""Which documents stay, and which rule owns each drop: the first one that hits, in their order.

Every rule judges every document, so that each can be counted by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpus_platform.filters.batch import Batch
from corpus_platform.filters.languages import tell
from corpus_platform.filters.rules import hits_of, threshold_of, values_of
from corpus_platform.rule_settings import DupLines, LowAlnum, LowLangConfidence, RuleSettings

__all__ = ["KEPT", "Verdicts", "cost_of_faults", "judge"]

KEPT = -1


@dataclass(frozen=True, eq=False)
class Verdicts:
    """One entry per document of the batch; `names` are the rules in the order of judgement."""

    names: tuple[str, ...]
    rule: np.ndarray  # int8: index in `names` of the rule that owns the drop, or KEPT
    value: np.ndarray  # float64: what that rule saw, NaN where kept
    threshold: np.ndarray  # float64: what it was held against, NaN where kept
    hits: dict[str, int]  # documents that each rule would drop by itself
    lang: Sequence[str]
    lang_score: Sequence[float | None]  # of the model, None where it was not asked

    @property
    def kept(self) -> np.ndarray:
        """Whether each document stays."""
        return self.rule == KEPT

    @property
    def dropped(self) -> dict[str, int]:
        """Documents by the rule that owns their drop, zeros included."""
        counts = np.bincount(self.rule[~self.kept], minlength=len(self.names))
        return dict(zip(self.names, counts.tolist(), strict=True))


def judge(batch: Batch, rules: dict[str, RuleSettings], *, model: Path | None = None) -> Verdicts:
    """Return what becomes of each document under the rules in their order."""
    language_rules = (r for r in rules.values() if isinstance(r, LowLangConfidence))
    languages = tell(batch, next(language_rules, None), model=model)
    owner = np.full(len(batch), KEPT, dtype=np.int8)
    value, threshold = np.full((2, len(batch)), np.nan)
    hits = {}
    for index, (name, rule) in enumerate(rules.items()):
        values = values_of(rule, batch, languages)
        hit = hits_of(rule, values)
        hits[name] = int(np.count_nonzero(hit))
        first = hit & (owner == KEPT)
        owner[first], value[first], threshold[first] = index, values[first], threshold_of(rule)
    return Verdicts(tuple(rules), owner, value, threshold, hits, languages.labels, languages.scores)


def cost_of_faults(batch: Batch, rules: dict[str, RuleSettings]) -> dict[str, int]:
    """Return how many documents a rule hits for nothing but a known fault of its definition.

    The faults: `dup_lines` counts blank lines, `low_alnum` takes marks for junk. Rules that are
    not in force, or in force without the fault, are left out.
    """
    cost = {}
    for name, rule in rules.items():
        repaired = _without_fault(rule)
        if repaired is not None:
            hit = hits_of(rule, values_of(rule, batch))
            still = hits_of(repaired, values_of(repaired, batch))
            cost[name] = int(np.count_nonzero(hit & ~still))
    return cost


def _without_fault(rule: RuleSettings) -> RuleSettings | None:
    match rule:
        case DupLines(count_blank=True):
            return rule.model_copy(update={"count_blank": False})
        case LowAlnum(count_marks=False):
            return rule.model_copy(update={"count_marks": True})
        case _:
            return None
