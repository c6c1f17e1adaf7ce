"""Ten documents of a release, found by random positions in its files, held against their texts."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.packed_bins import encoder_of, policy_of
from corpus_platform.stages.project import Project

__all__ = ["undecodable"]

POSITIONS, SEED = 10, 0


def undecodable(project: Project, bins: Mapping[str, TokenBin], lines: pl.DataFrame) -> int:
    """Count documents at ten random positions of the files whose tokens are not their text.

    `lines` are those of all files, with the names of shards.
    """
    encoder = encoder_of(project)
    policy = policy_of(encoder)
    begin, end = int(policy.bos_id is not None), int(policy.eos_id is not None)
    wrong = 0
    for shard, row in _drawn(lines):
        pieces = lines.filter((pl.col("shard") == shard) & (pl.col("row") == row)).sort("offset")
        tokens = np.concatenate(
            [
                bins[file.removesuffix(".bin")].tokens[start : start + count]
                for file, start, count in pieces.select("file", "start", "tokens").iter_rows()
            ]
        )
        ids, text = tokens[begin : len(tokens) - end], _text(project, shard, row)
        if text is None or encoder.decode(ids) != text:
            # A document that was cut may end within a character: then its tokens are compared.
            whole = encoder.encode([text or ""]).flat
            wrong += not (0 < len(ids) < len(whole) and np.array_equal(ids, whole[: len(ids)]))
    return wrong


def _drawn(lines: pl.DataFrame) -> list[tuple[str, int]]:
    """Return the documents at some positions: long ones are met more often, as in training."""
    ends = np.cumsum(lines["tokens"].to_numpy())
    if not len(ends) or not ends[-1]:
        return []
    places = np.random.default_rng(SEED).integers(0, ends[-1], POSITIONS)
    found = lines[np.searchsorted(ends, places, side="right")].select("shard", "row")
    return found.unique(maintain_order=True).rows()


def _text(project: Project, shard: str, row: int) -> str | None:
    path: Path = project.present("cleaned_documents", shard).path(DOCUMENTS)
    found = pl.scan_parquet(path).filter(pl.col("row") == row).select("text").collect()
    return found["text"][0] if len(found) else None
