"""The encoding of a corpus: its tokenizer through the fast engine where that is known to be exact.

The reference is tokenizers. fastokens is used after a sweep over code points, hostile texts and
documents has found the same ids; what was found lies in the storage, once for a tokenizer and two
versions. After that a sample of every shard is encoded by both, and the whole shard again by the
reference where they differ.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np

from corpus_platform.engines.local import cores
from corpus_platform.errors import EngineFailed, EnginesDiffer, MissingExtra, SettingsError
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages.fast_engine import (
    FAST,
    REFERENCE,
    is_worth,
    record_path,
    refusal_of,
    retire,
)
from corpus_platform.stages.project import Progress, Project, quiet
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.files import read_if_there
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.documents import EncodedDocuments, encode_documents
from corpus_platform.tokenization.encoder import (
    Encoded,
    Encoder,
    HuggingFaceEncoder,
    load_encoder,
    take_threads,
)
from corpus_platform.tokenization.exactness import differing
from corpus_platform.tokenization.fast import load_fast

__all__ = [
    "Choice",
    "Encode",
    "Encoding",
    "ShardCheck",
    "Written",
    "encode_shard",
    "open_encoding",
    "with_engine",
]

_log = logging.getLogger(__name__)
T = TypeVar("T")
Choice = Literal["auto", "tokenizers", "fastokens"]
Encode = Callable[[np.ndarray, Sequence[str], Sequence[str]], EncodedDocuments]

SAMPLED_SHARE, SAMPLED_DOCUMENTS = 1000, 50  # one document of so many, at least so many of a shard
SAMPLE_SEED = 0


@dataclass(frozen=True)
class Encoding:
    """The encoder to use, the name of its engine, and the reference, which may be the same."""

    encoder: Encoder
    reference: HuggingFaceEncoder
    engine: str
    record: Path | None = None  # what is known of an engine that is not the reference

    def documents(self, texts: Sequence[str], metas: Sequence[str]) -> EncodedDocuments:
        """Return the ids of documents, given their other fields as JSON, and which tokens count."""
        return encode_documents(self.encoder, self.reference, texts, metas)

    def by_reference(self) -> "Encoding":
        """Return the encoding of the same tokenizer without another engine."""
        return Encoding(self.reference, self.reference, REFERENCE)


@dataclass(frozen=True)
class Written(Generic[T]):
    """What became of a shard, by which engine, and how many sampled documents differed before.

    `engine_differences` above 0 says that it was done again by the reference.
    """

    value: T
    engine: str
    engine_differences: int

    def measured(self) -> Json:
        """Return what made the tokens, for the part of a manifest that is no content."""
        versions = {name: version(name) for name in {REFERENCE, self.engine}}
        return {"encoder": {"engine": self.engine, "versions": versions}}


def open_encoding(
    project: Project,
    *,
    eos_token: str | None,
    bos_token: str | None = None,
    pad_token: str | None = None,
    choice: Choice = "auto",
    progress: Progress = quiet,
) -> Encoding:
    """Return the encoding of the corpus's tokenizer, which must be cleared.

    `auto` takes the fast engine where it is installed and exact, and the corpus not so small that
    finding out takes longer than it saves. Raises SettingsError where a control token is not fit
    for use, or the engine asked for by name is not; MissingExtra where it is not installed.
    """
    data = project.require("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    reference = load_encoder(data, eos_token=eos_token, bos_token=bos_token, pad_token=pad_token)
    encoding = with_engine(project, data, reference, choice=choice, progress=progress)
    take_threads(max(1, cores() // project.workers))  # a sweep had all: the other workers wait
    return encoding


def with_engine(
    project: Project,
    data: bytes,
    reference: HuggingFaceEncoder,
    *,
    choice: Choice = "auto",
    shards: Sequence[str] | None = None,
    keep: bool = True,
    progress: Progress = quiet,
) -> Encoding:
    """Return the encoding of a tokenizer.json by the engine to use.

    `shards` are those to encode, None for all. Without `keep` nothing that is found out is written.
    """
    plain = Encoding(reference, reference, REFERENCE)
    if choice == REFERENCE:
        return plain
    try:
        record = record_path(project, reference)
        asked = [*project.shards()] if shards is None else shards
        if choice == "auto" and read_if_there(record) is None and not is_worth(project, asked):
            return plain
        engine = load_fast(data, reference)
        refusal = refusal_of(project, record, data, engine, keep=keep, progress=progress)
    except MissingExtra:
        if choice == FAST:
            raise
        return plain
    except EngineFailed as error:
        record, refusal = None, str(error)
    if refusal is None:
        return Encoding(engine, reference, FAST, record if keep else None)
    if choice == FAST:
        known = f"; found out once and kept in {record}" if record and keep else ""
        raise SettingsError(
            f"run.encoder: fastokens cannot be used with this tokenizer: {refusal}{known};"
            " set it to auto or tokenizers"
        )
    _log.info("the reference encodes, for fastokens cannot be used: %s", refusal)
    return plain


def encode_shard(
    encoding: Encoding, shard: str, rows: np.ndarray, write: Callable[[Encode], T]
) -> Written[T]:
    """Return what `write` makes of a shard's documents, given how to encode some of them.

    `rows` are those of all documents to come. Where a sample of them shows that the engine is not
    exact, `write` is called again with the reference, and has to begin anew; the engine is not
    used for this tokenizer any more.
    """
    differences = 0
    if encoding.engine != REFERENCE:
        try:
            check = ShardCheck(encoding, shard, rows)
            return Written(write(check.encode), encoding.engine, 0)
        except EngineFailed as error:
            _log.warning("%s is encoded again by the reference: %s", shard, error)
            if isinstance(error, EnginesDiffer):
                differences = error.count
                if encoding.record is not None:
                    retire(encoding.record, f"{shard}: {error}")
    reference = encoding.by_reference()
    value = write(lambda rows, texts, metas: reference.documents(texts, metas))
    return Written(value, REFERENCE, differences)


class ShardCheck:
    """Encodes the documents of one shard, a sample of them by the reference as well.

    The sample is drawn by a keyed hash of shard and row: one document of SAMPLED_SHARE, and
    SAMPLED_DOCUMENTS at least.
    """

    def __init__(self, encoding: Encoding, shard: str, rows: np.ndarray) -> None:
        self._encoding, self._shard = encoding, shard
        rows = np.asarray(rows, dtype=np.int64)
        count = min(len(rows), max(SAMPLED_DOCUMENTS, -(-len(rows) // SAMPLED_SHARE)))
        keys = document_keys(SAMPLE_SEED, shard, rows)
        self.rows = np.sort(rows[np.argsort(keys, kind="stable")[:count]])

    def encode(
        self, rows: np.ndarray, texts: Sequence[str], metas: Sequence[str]
    ) -> EncodedDocuments:
        """Return the ids of documents; raise EnginesDiffer where those of a sampled one differ."""
        encoded = self._encoding.documents(texts, metas)
        sampled = np.flatnonzero(np.isin(rows, self.rows)).tolist()
        if sampled:
            self._compare([texts[i] for i in sampled], _chosen(encoded, sampled), rows[sampled])
        return encoded

    def _compare(self, texts: Sequence[str], found: Encoded, rows: np.ndarray) -> None:
        wrong = differing(self._encoding.reference.encode(texts), found)
        if wrong:
            first = f"row {rows[wrong[0]]}: {texts[wrong[0]][:60]!a} has other ids"
            raise EnginesDiffer(f"{first}, and {len(wrong) - 1} more of its sample", len(wrong))


def _chosen(encoded: EncodedDocuments, numbers: Sequence[int]) -> Encoded:
    starts = np.concatenate(([0], encoded.ends[:-1]))
    parts = [encoded.flat[starts[i] : encoded.ends[i]] for i in numbers]
    return Encoded(np.concatenate(parts), np.cumsum([len(part) for part in parts]))
