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
from corpus_platform.stages.tables import read_parts

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
    """Read the labels of all cleaned documents of some shards; records may be large, so by parts."""
    sources, languages = _Names(), _Names()
    rows, source, language, sizes = [], [], [], []
    for shard in shards:
        path, before = project.present("cleaned_documents", shard).path(DOCUMENTS), len(rows)
        for part in read_parts(path, ["row", "lang", "lang_score", "meta"]):
            table = pl.DataFrame(part)
            rows.append(table["row"].to_numpy())
            source.append(sources.codes(_sources(table["meta"], _crawl(shard))))
            language.append(languages.codes(table.select(_LANGUAGE).to_series()))
        sizes.append(sum(map(len, rows[before:])))
    crawls = sorted({_crawl(shard) for shard in shards})
    crawl = np.array([crawls.index(_crawl(shard)) for shard in shards], np.int32)
    return Traits(
        np.cumsum(sizes, dtype=np.int64),
        _joined(rows),
        Labels(np.repeat(crawl, sizes), crawls),
        Labels(_joined(source, np.int32), sources.names),
        Labels(_joined(language, np.int32), languages.names),
    )


_SURE = pl.col("lang_score").is_null() | (pl.col("lang_score") >= SURE_SCORE)
_LANGUAGE = pl.when(_SURE).then(pl.col("lang")).otherwise(pl.lit(UNSURE)).fill_null(UNSURE)


def _sources(meta: pl.Series, crawl: str) -> pl.Series:
    return meta.str.json_path_match("$.source").fill_null(crawl).str.slice(0, NAME_CHARS)


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
