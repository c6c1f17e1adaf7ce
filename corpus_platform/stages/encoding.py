"""The encoding of a corpus: its tokenizer through the fast engine where that is known to be exact.

The reference is tokenizers. fastokens is used after a sweep over code points, hostile texts and
documents has found the same ids; what was found lies in the storage, once for a tokenizer and two
versions. After that a sample of every shard is encoded by both, and the whole shard again by the
reference where they differ.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np

from corpus_platform.engines.local import cores
from corpus_platform.errors import CorpusError, MissingExtra, SettingsError
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.project import Progress, Project, quiet
from corpus_platform.stages.tables import read_batches
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.files import publish_bytes, read_if_there
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.documents import EncodedDocuments, encode_documents
from corpus_platform.tokenization.encoder import (
    Encoded,
    Encoder,
    HuggingFaceEncoder,
    load_encoder,
    take_threads,
)
from corpus_platform.tokenization.exactness import VERSION, differing, sweep
from corpus_platform.tokenization.fast import EngineFailed, load_fast

__all__ = [
    "Choice",
    "Encode",
    "Encoding",
    "EnginesDiffer",
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
LoadEngine = Callable[[bytes, HuggingFaceEncoder], Encoder]

REFERENCE, FAST = "tokenizers", "fastokens"
# A sweep takes as long as the reference takes for 24 MB of text, which is a third of that in
# shards as they are stored: a corpus of less is done sooner without the fast engine.
WORTH_BYTES = 8_000_000
SWEPT_SHARDS, SWEPT_DOCUMENTS, SWEPT_CHARS = 4, 50, 500_000  # of each shard
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


class EnginesDiffer(CorpusError):
    """The fast engine made other ids than the reference, of `count` documents of a sample."""

    def __init__(self, first: str, count: int) -> None:
        self.count = count
        super().__init__(first)


def open_encoding(
    project: Project,
    *,
    eos_token: str | None,
    bos_token: str | None = None,
    pad_token: str | None = None,
    choice: Choice = "auto",
    progress: Progress = quiet,
    load: LoadEngine = load_fast,
) -> Encoding:
    """Return the encoding of the corpus's tokenizer, which must be cleared.

    `auto` takes the fast engine where it is installed and exact, and the corpus not so small that
    finding out takes longer than it saves. Raises SettingsError where a control token is not fit
    for use, or the engine asked for by name is not; MissingExtra where it is not installed.
    """
    data = project.require("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    reference = load_encoder(data, eos_token=eos_token, bos_token=bos_token, pad_token=pad_token)
    encoding = with_engine(project, data, reference, choice=choice, progress=progress, load=load)
    take_threads(max(1, cores() // project.workers))  # a sweep had all: the other workers wait
    return encoding


def with_engine(
    project: Project,
    data: bytes,
    reference: HuggingFaceEncoder,
    *,
    choice: Choice = "auto",
    keep: bool = True,
    progress: Progress = quiet,
    load: LoadEngine = load_fast,
) -> Encoding:
    """Return the encoding of a tokenizer.json by the engine to use.

    Without `keep` nothing that is found out is written.
    """
    plain = Encoding(reference, reference, REFERENCE)
    if choice == REFERENCE:
        return plain
    try:
        record = _record_path(project, reference)
        if choice == "auto" and read_if_there(record) is None and not _is_worth(project):
            return plain
        engine = load(data, reference)
        refusal = _refusal(project, record, reference, engine, keep=keep, progress=progress)
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
        except EnginesDiffer as error:
            _log.warning("%s is encoded again by the reference: %s", shard, error)
            _retire(encoding, f"{shard}: {error}")
            differences = error.count
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


def _record_path(project: Project, reference: HuggingFaceEncoder) -> Path:
    """Return where it is kept what is known of the fast engine and this tokenizer."""
    try:
        versions = f"{FAST}-{version(FAST)}-{REFERENCE}-{version(REFERENCE)}"
    except PackageNotFoundError as error:
        raise MissingExtra("fast encoding: pip install 'corpus-platform[fast]'") from error
    return project.store.root / "engines" / f"{reference.fingerprint[:16]}-{versions}.json"


def _is_worth(project: Project) -> bool:
    """Tell whether the shards have WORTH_BYTES as they are stored, or one says nothing of its size."""
    total = 0
    for shard in project.shards().values():
        for member in shard.members:
            total += WORTH_BYTES if member.bytes is None else member.bytes
        if total >= WORTH_BYTES:
            return True
    return False


def _refusal(
    project: Project,
    path: Path,
    reference: HuggingFaceEncoder,
    engine: Encoder,
    *,
    keep: bool,
    progress: Progress,
) -> str | None:
    """Return why an engine is not to be used, None where it may be; find out what is not known."""
    if not keep:
        known = _known(path)
        return known[1] if known else _found(project, reference, engine, progress)[1]
    with project.store.lease("engines", path.stem):
        if (known := _known(path)) is not None:
            return known[1]
        texts, refusal = _found(project, reference, engine, progress)
        publish_bytes(path, _record(path, texts, refusal))
    if refusal is not None:
        _log.warning("fastokens is not used for this tokenizer, see %s: %s", path, refusal)
    return refusal


def _found(
    project: Project, reference: HuggingFaceEncoder, engine: Encoder, progress: Progress
) -> tuple[int, str | None]:
    """Return how many texts were compared, and the first difference in words."""
    done = 0

    def progressed(now: int, total: int) -> None:
        nonlocal done
        done = now
        progress(now, total)

    documents = [*_documents(project)]
    found = sweep(reference, engine, documents=documents, progress=progressed)
    return done, None if found is None else str(found)


def _documents(project: Project) -> Iterator[str]:
    """Yield the first documents of some shards, none very long."""
    shards = [*project.shards()]
    for shard in shards[:: max(1, len(shards) // SWEPT_SHARDS)][:SWEPT_SHARDS]:
        cleaned = project.artifact("cleaned_documents", shard)
        if cleaned is None or not cleaned.numbers.get("readable"):
            continue
        chars = SWEPT_CHARS
        batch = next(read_batches(cleaned.path(DOCUMENTS), ["text"], rows=SWEPT_DOCUMENTS), None)
        for text in batch.column(0).to_pylist() if batch is not None else ():
            if len(text) <= chars:
                chars -= len(text)
                yield text


def _known(path: Path) -> tuple[int, str | None] | None:
    """Return what is known of an engine; None where nothing is, or it is of other probes."""
    try:
        record = json.loads(read_if_there(path) or b"null")
        return (record["texts"], record["difference"]) if record["probes"] == VERSION else None
    except (ValueError, LookupError, TypeError):
        return None


def _record(path: Path, texts: int, difference: str | None) -> bytes:
    record = {"probes": VERSION, "texts": texts, "difference": difference, "of": path.stem}
    return (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()


def _retire(encoding: Encoding, difference: str) -> None:
    """Keep that an engine is not exact: what passed the sweep has failed on a document."""
    if encoding.record is not None:
        texts, _ = _known(encoding.record) or (0, None)
        publish_bytes(encoding.record, _record(encoding.record, texts, difference))
