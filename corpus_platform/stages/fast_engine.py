"""Whether the fast engine may be used for a tokenizer: found out once, and kept in the storage.

What was found lies in engines/<tokenizer>-<engine>-<versions>.json; another version of either
engine is another question. Several processes may ask at once: one finds out, the others wait.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from corpus_platform.errors import MissingExtra
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.project import Progress, Project
from corpus_platform.stages.tables import read_batches
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import publish_bytes, read_if_there
from corpus_platform.tokenization.encoder import Encoder, HuggingFaceEncoder, read_tokenizer
from corpus_platform.tokenization.exactness import VERSION, sweep
from corpus_platform.tokenization.training import fingerprint

__all__ = ["FAST", "REFERENCE", "is_worth", "record_path", "refusal_of", "retire"]

_log = logging.getLogger(__name__)
REFERENCE, FAST = "tokenizers", "fastokens"
# A sweep takes as long as the reference takes for 24 MB of text, which is a third of that as it is
# stored: a smaller corpus is done sooner without the fast engine.
WORTH_BYTES = 8_000_000
MEASURED = 50  # shards that stand for all when the size of a corpus is told
SWEPT_SHARDS, SWEPT_DOCUMENTS, SWEPT_CHARS = 4, 50, 500_000  # of each shard


def record_path(project: Project, reference: HuggingFaceEncoder) -> Path:
    """Return where it is kept what is known of the fast engine and this tokenizer."""
    try:
        versions = f"{FAST}-{version(FAST)}-{REFERENCE}-{version(REFERENCE)}"
    except PackageNotFoundError as error:
        raise MissingExtra("fast encoding: pip install 'corpus-platform[fast]'") from error
    return project.store.root / "engines" / f"{reference.fingerprint[:16]}-{versions}.json"


def is_worth(project: Project, shards: Sequence[str]) -> bool:
    """Tell whether the documents of these shards have about WORTH_BYTES as they are stored."""
    sizes = [cleaned.path(DOCUMENTS).stat().st_size for cleaned in _some(project, shards, MEASURED)]
    return len(sizes) > 0 and sum(sizes) / len(sizes) * len(shards) >= WORTH_BYTES


def refusal_of(
    project: Project,
    path: Path,
    data: bytes,
    engine: Encoder,
    *,
    keep: bool,
    progress: Progress,
) -> str | None:
    """Return why an engine is not to be used, None where it may be; find out what is not known."""
    if (known := _known(path)) is not None:
        return known[1]
    if not keep:
        return _found(project, data, engine, progress)[1]
    with project.store.lease("engines", path.stem):
        if (known := _known(path)) is not None:
            return known[1]
        texts, refusal = _found(project, data, engine, progress)
        publish_bytes(path, _record(path, texts, refusal))
    if refusal is not None:
        _log.warning("fastokens is not used for this tokenizer, see %s: %s", path, refusal)
    return refusal


def retire(path: Path, difference: str) -> None:
    """Keep that an engine is not exact: what passed the sweep has failed on a document."""
    texts, _ = _known(path) or (0, None)
    publish_bytes(path, _record(path, texts, difference))


def _found(
    project: Project, data: bytes, engine: Encoder, progress: Progress
) -> tuple[int, str | None]:
    """Return how many texts were compared, and the first difference in words."""
    done = 0

    def progressed(now: int, total: int) -> None:
        nonlocal done
        done = now
        progress(now, total)

    documents = [*_documents(project)]
    # One of its own: it remembers the first 10,000 words that it meets, and those of the sweep are
    # of no use to texts.
    reference = HuggingFaceEncoder(read_tokenizer(data), fingerprint=fingerprint(data))
    found = sweep(reference, engine, documents=documents, progress=progressed)
    return done, None if found is None else str(found)


def _documents(project: Project) -> Iterator[str]:
    """Yield the first documents of some shards, none very long."""
    for cleaned in _some(project, [*project.shards()], SWEPT_SHARDS):
        chars = SWEPT_CHARS
        batch = next(read_batches(cleaned.path(DOCUMENTS), ["text"], rows=SWEPT_DOCUMENTS), None)
        for text in batch.column(0).to_pylist() if batch is not None else ():
            if len(text) <= chars:
                chars -= len(text)
                yield text


def _some(project: Project, shards: Sequence[str], count: int) -> Iterator[Artifact]:
    """Yield the cleaned documents of so many shards at most, from first to last."""
    for shard in shards[:: -(-len(shards) // count) or 1]:
        cleaned = project.artifact("cleaned_documents", shard)
        if cleaned is not None and cleaned.numbers.get("readable"):
            yield cleaned


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
