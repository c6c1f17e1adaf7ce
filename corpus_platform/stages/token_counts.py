"""Counts tokens without writing any: by shard, language and state, with the corpus's tokenizer or
another.

Tokens are those of the texts; every control token of a document would be one more. The language is
the one that cleaning gave a document. Shards go side by side, and their documents in batches.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.engines.local import cores, map_pieces
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.encoding import Choice, Encode, Encoding, encode_shard, with_engine
from corpus_platform.stages.fast_engine import FAST
from corpus_platform.stages.project import Progress, Project, quiet
from corpus_platform.stages.tables import read_batches, readable
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.tokenization.encoder import load_encoder, take_threads
from corpus_platform.tokenization.fast import load_fast

__all__ = ["CLEANED", "STATES", "Count", "TokenCounts", "count_tokens"]

CLEANED = "cleaned"
STATES = (CLEANED, "train", "validation")  # before dedup; kept by it, in either split
NO_LANGUAGE = "und"
BATCH_DOCUMENTS = 500


class Count(NamedTuple):
    """Documents of one shard, language and state: how many, their bytes of text and tokens."""

    shard: str
    lang: str
    state: str
    documents: int
    bytes: int
    tokens: int


@dataclass(frozen=True)
class TokenCounts:
    """Counts in the order of shards, languages and states.

    `engines` says how many shards each engine counted. `left_out` are shards that are not cleaned,
    `undecided` those that no dedup has judged: they count as cleaned only.
    """

    tokenizer: str  # sha256
    engines: Counter[str]
    counts: tuple[Count, ...]
    left_out: tuple[str, ...]
    undecided: tuple[str, ...]


class _Piece(NamedTuple):
    shard: str
    documents: Path
    verdict: Path | None
    tokenizer: Path
    engine: str
    threads: int


class _Counted(NamedTuple):
    counts: list[Count]
    engine: str


def count_tokens(
    project: Project,
    shards: Sequence[str],
    *,
    tokenizer: bytes | None = None,
    name: str = TOKENIZER_FILE,
    choice: Choice = "auto",
    progress: Progress = quiet,
) -> TokenCounts:
    """Return what each shard has in tokens; nothing is written.

    `tokenizer` is the content of a tokenizer.json that errors call by `name`, None for the corpus's
    own. `progress` hears of stored bytes, and before that of the texts by which the fast engine is
    judged, if it is not known. Raises Uncleared without a tokenizer, SettingsError where that
    cannot be read, UsageError for a shard that is none.
    """
    cleaned = {shard: found for shard in shards if (found := _readable(project, shard))}
    verdicts = {shard: project.artifact("dedup_verdicts", shard) for shard in cleaned}
    with tempfile.TemporaryDirectory() as scratch:
        path = _tokenizer_file(project, tokenizer, Path(scratch))
        data, asked = path.read_bytes(), [*cleaned]
        reference = load_encoder(data, eos_token=None, name=name)
        encoding = with_engine(
            project, data, reference, choice=choice, shards=asked, keep=False, progress=progress
        )
        workers = max(1, min(project.workers, len(cleaned)))
        common = (path, encoding.engine, max(1, cores() // workers))
        pieces = [
            _Piece(shard, found.path(DOCUMENTS), _verdict_path(verdicts[shard]), *common)
            for shard, found in cleaned.items()
        ]
        counted = _counted(pieces, workers, progress)
    return TokenCounts(
        reference.fingerprint,
        Counter(found.engine for found in counted),
        tuple(count for found in counted for count in found.counts),
        tuple(shard for shard in shards if shard not in cleaned),
        tuple(shard for shard, verdict in verdicts.items() if verdict is None),
    )


def _counted(pieces: Sequence[_Piece], workers: int, progress: Progress) -> list[_Counted]:
    """Return what was counted in each piece; `progress` hears of their bytes as they are stored."""
    sizes = np.cumsum([piece.documents.stat().st_size for piece in pieces])
    counted = []
    for i, found in enumerate(map_pieces(_count, pieces, workers=workers)):
        counted.append(found)
        progress(int(sizes[i]), int(sizes[-1]))
    return counted


def _verdict_path(verdict: Artifact | None) -> Path | None:
    return None if verdict is None else verdict.path(VERDICT_FILE)


def _readable(project: Project, shard: str) -> Artifact | None:
    """Return the cleaned documents of a shard, None where there are none; raise for no shard."""
    project.shard(shard)
    artifact = project.artifact("cleaned_documents", shard)
    return artifact if artifact is not None and artifact.numbers.get("readable") else None


def _tokenizer_file(project: Project, data: bytes | None, scratch: Path) -> Path:
    if data is None:
        return project.require("tokenizer", None).path(TOKENIZER_FILE)
    path = scratch / TOKENIZER_FILE
    path.write_bytes(data)
    return path


@lru_cache(maxsize=1)
def _encoding(path: Path, engine: str, threads: int) -> Encoding:
    """Return what a worker encodes with, loaded once for all of its shards."""
    data = path.read_bytes()
    reference = load_encoder(data, eos_token=None)
    take_threads(threads)
    return Encoding(load_fast(data, reference) if engine == FAST else reference, reference, engine)


def _count(piece: _Piece) -> _Counted:
    encoding = _encoding(piece.tokenizer, piece.engine, piece.threads)
    with readable(f"a table of {piece.shard}"):
        rows = pl.read_parquet(piece.documents, columns=["row"])["row"].to_numpy()
        splits = _splits(piece.verdict)
        written = encode_shard(
            encoding, piece.shard, rows, lambda encode: _sums(piece.documents, splits, encode)
        )
    ordered = sorted(written.value, key=lambda key: (key[0], STATES.index(key[1])))
    counts = [Count(piece.shard, *key, *written.value[key].tolist()) for key in ordered]
    return _Counted(counts, written.engine)


def _splits(verdict: Path | None) -> dict[int, str]:
    if verdict is None:
        return {}
    kept = pl.col("kept")  # for a bare name that is none of the table polars raises a TypeError
    return dict(pl.read_parquet(verdict).filter(kept).select("row", "split").iter_rows())


def _sums(path: Path, splits: dict[int, str], encode: Encode) -> dict[tuple[str, str], np.ndarray]:
    """Return documents, bytes and tokens by language and state."""
    sums: dict[tuple[str, str], np.ndarray] = {}
    for rows, languages, texts in _batches(path):
        tokens = np.diff(encode(rows, texts, [""] * len(texts)).ends, prepend=0).tolist()
        for row, lang, text, count in zip(rows.tolist(), languages, texts, tokens, strict=True):
            of_one = np.array([1, len(text.encode()), count])
            for state in {CLEANED, splits.get(row, CLEANED)}:
                key = (lang or NO_LANGUAGE, state)
                sums[key] = sums.get(key, 0) + of_one
    return sums


def _batches(path: Path) -> Iterator[tuple[np.ndarray, list[str | None], list[str]]]:
    for batch in read_batches(path, ["row", "lang", "text"], rows=BATCH_DOCUMENTS):
        rows, languages, texts = (batch.column(name) for name in ("row", "lang", "text"))
        yield rows.to_numpy(), languages.to_pylist(), texts.to_pylist()
