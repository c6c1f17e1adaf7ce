"""What survival is counted by: crawl, source and language of each document of some shards.

The source of a document is the field `source` of its record, else its crawl. Names are whatever a
crawl holds; beyond MAX_NAMES they count together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from corpus_platform.stages.cleaned_documents import DOCUMENTS, SURE_SCORE, UNSURE
from corpus_platform.stages.project import Project

__all__ = ["Labels", "Traits", "read_traits"]

MAX_NAMES, OTHER = 10_000, "(others)"
NAME_CHARS = 80


class Labels(NamedTuple):
    """One label a document: its code, and the name of each code."""

    codes: np.ndarray
    names: Sequence[str]

    def counts(self, mask: np.ndarray | None = None) -> dict[str, int]:
        """Return by name how many documents have it, or those of a mask."""
        codes = self.codes if mask is None else self.codes[mask]
        found = np.bincount(codes, minlength=len(self.names))
        return dict(zip(self.names, found.tolist(), strict=True))


class Traits(NamedTuple):
    """By position: shards in their order, documents in that of their rows."""

    ends: np.ndarray  # [shards]: where the positions of each end
    row: np.ndarray
    crawl: Labels
    source: Labels
    language: Labels


def read_traits(project: Project, shards: Sequence[str]) -> Traits:
    """Read the labels of all cleaned documents of some shards."""
    sources, languages = _Names(), _Names()
    rows, source, language, crawl = [], [], [], []
    crawls = sorted({_crawl(shard) for shard in shards})
    for shard in shards:
        path = project.present("cleaned_documents", shard).path(DOCUMENTS)
        table = pl.read_parquet(path, columns=["row", "lang", "lang_score", "meta"])
        rows.append(table["row"].to_numpy())
        named = table["meta"].str.json_path_match("$.source").fill_null(_crawl(shard))
        source.append(sources.codes(named.str.slice(0, NAME_CHARS)))
        sure = pl.col("lang_score").is_null() | (pl.col("lang_score") >= SURE_SCORE)
        known = pl.when(sure).then(pl.col("lang")).otherwise(pl.lit(UNSURE))
        language.append(languages.codes(table.select(known.fill_null(UNSURE)).to_series()))
        crawl.append(np.full(len(table), crawls.index(_crawl(shard)), np.int32))
    return Traits(
        np.cumsum([len(r) for r in rows], dtype=np.int64),
        _joined(rows),
        Labels(_joined(crawl, np.int32), crawls),
        Labels(_joined(source, np.int32), sources.names),
        Labels(_joined(language, np.int32), languages.names),
    )


class _Names:
    """Gives names codes in the order in which they are met."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._codes)

    def codes(self, names: pl.Series) -> np.ndarray:
        distinct = names.unique(maintain_order=True)
        codes = [self._code(name) for name in distinct.to_list()]
        if not codes:
            return np.empty(0, np.int32)
        return names.replace_strict(distinct, codes, return_dtype=pl.Int32).to_numpy()

    def _code(self, name: str) -> int:
        known = name in self._codes or len(self._codes) < MAX_NAMES
        return self._codes.setdefault(name if known else OTHER, len(self._codes))


def _crawl(shard: str) -> str:
    return shard.split("/", 1)[0]


def _joined(parts: Sequence[np.ndarray], dtype: npt.DTypeLike = np.int64) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *parts])
