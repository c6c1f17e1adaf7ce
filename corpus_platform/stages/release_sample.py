"""Ten documents of a release, found by random positions in its files, held against their texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.packed_bins import encoder_of, policy_of
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_lines import ReleaseLines

__all__ = ["undecodable"]

POSITIONS, SEED = 10, 0


def undecodable(project: Project, bins: Mapping[str, TokenBin], lines: ReleaseLines) -> int:
    """Count documents at ten random positions of the files whose tokens are not their text."""
    encoder = encoder_of(project)
    policy = policy_of(encoder)
    begin, end = int(policy.bos_id is not None), int(policy.eos_id is not None)
    wrong, drawn = 0, _drawn(lines)
    found = _lines_of(lines.path, drawn)
    for shard, row in drawn:
        pieces = found.filter((pl.col("shard") == shard) & (pl.col("row") == row)).sort("offset")
        tokens = _tokens(bins, pieces)
        ids = tokens[begin : len(tokens) - end]
        text = _text(project, shard, row) if lines.knows(shard) else None
        if text is None or encoder.decode(ids) != text:
            # A document that was cut may end within a character: then its tokens are compared.
            whole = encoder.encode([text or ""]).flat
            wrong += not (0 < len(ids) < len(whole) and np.array_equal(ids, whole[: len(ids)]))
    return wrong


def _drawn(lines: ReleaseLines) -> list[tuple[str, int]]:
    """Return the documents at some positions: long ones are met more often, as in training."""
    if not lines.tokens:
        return []
    places = np.random.default_rng(SEED).integers(0, lines.tokens, POSITIONS)
    found, before = dict[tuple[str, int], None](), 0
    for part in lines.named("tokens", "shard", "row"):
        ends = before + np.cumsum(part["tokens"].to_numpy())
        here = places[(before <= places) & (places < ends[-1])]
        met = part[np.searchsorted(ends, here, side="right")].select("shard", "row")
        found |= dict.fromkeys(met.iter_rows())
        before = int(ends[-1])
    return list(found)


def _lines_of(path: Path, documents: Sequence[tuple[str, int]]) -> pl.DataFrame:
    """Return the lines of some documents; more may be among them."""
    named = [
        pl.col(name).is_in([d[i] for d in documents]) for i, name in enumerate(("shard", "row"))
    ]
    lines = pl.scan_parquet(path).filter(*named)
    return lines.select("file", "start", "tokens", "shard", "row", "offset").collect(engine="streaming")  # fmt: skip


def _tokens(bins: Mapping[str, TokenBin], pieces: pl.DataFrame) -> np.ndarray:
    """Return the tokens of pieces one after the other, as far as their files are there."""
    found = [np.zeros(0, np.uint16)]
    for file, start, count in pieces.select("file", "start", "tokens").iter_rows():
        if (bin_ := bins.get(file.removesuffix(".bin"))) is not None:
            found.append(bin_.tokens[start : start + count])
    return np.concatenate(found)


def _text(project: Project, shard: str, row: int) -> str | None:
    path: Path = project.present("cleaned_documents", shard).path(DOCUMENTS)
    found = pl.scan_parquet(path).filter(pl.col("row") == row).select("text").collect()
    return found["text"][0] if len(found) else None
