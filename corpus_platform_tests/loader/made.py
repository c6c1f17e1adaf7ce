"""Streams and releases of a few tokens for tests; few imports, so that other processes begin soon."""

import dataclasses
import json
import multiprocessing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpus_platform.formats.token_arrays import TokenFile
from corpus_platform.loader.batches import Batch, Batches
from corpus_platform.loader.release import Release
from corpus_platform.loader.stream import Stream

__all__ = ["MemoryPart", "counted", "in_processes", "places", "release_of", "stream_of", "text"]

Documents = Sequence[Sequence[int]]


@dataclasses.dataclass(frozen=True)
class MemoryPart:
    """A file that is none: documents as they are, control tokens too."""

    name: str
    documents: Documents
    mask: Sequence[int] | None = None

    @property
    def tokens(self) -> int:
        return sum(len(document) for document in self.documents)

    def open(self) -> TokenFile:
        flat = np.array([i for d in self.documents for i in d], np.uint16)
        ends = np.cumsum([len(d) for d in self.documents], dtype=np.uint64)
        loss = None if self.mask is None else np.array(self.mask, np.uint8)
        return TokenFile(Path(self.name), "memory", flat, ends=ends, loss=loss)


def stream_of(*files: Documents, masks: Sequence[Sequence[int] | None] = ()) -> Stream:
    """Return a stream of files, each a list of documents."""
    given = [*masks, *[None] * (len(files) - len(masks))]
    parts = [
        MemoryPart(f"train-{n:05d}", d, m)
        for n, (d, m) in enumerate(zip(files, given, strict=True))
    ]
    return Stream(parts, np.dtype("<u2"))


def release_of(*files: Documents, **more: Any) -> Release:
    """Return a release of files, whose documents end in 0 where nothing else is said."""
    stream = stream_of(*files, masks=more.pop("masks", ()))
    usual: dict[str, Any] = {"vocab_size": 65_536, "tokenizer_sha256": "5e" * 32, "eos_id": 0}
    documents = sum(len(file) for file in files)
    return Release("r1", "c1", "train", Path("r1"), stream, documents, **{**usual, **more})


def counted(tokens: int) -> Release:
    """Return a release of the tokens 0, 1, 2, … in one document."""
    return release_of([range(tokens)])


def places(batches: Iterable[Batch]) -> list[int]:
    """Return the places of all lines of some batches."""
    return [place for batch in batches for place in batch.places.tolist()]


def text(state: object) -> Any:
    """Return a state as a file of JSON gives it back."""
    return json.loads(json.dumps(state))


def in_processes(batches: Batches, workers: int, way: str) -> list[list[int]]:
    """Return the windows that worker processes read of what is left of an epoch, in any order."""
    context: Any = multiprocessing.get_context(way)  # which way is known when it runs
    results = context.Queue()
    begun = [
        context.Process(target=_send_windows, args=(batches, worker, workers, results))
        for worker in range(workers)
    ]
    for process in begun:
        process.start()
    found = [line for _ in begun for line in results.get(timeout=60)]
    for process in begun:
        process.join()
    return found


def _send_windows(batches: Batches, worker: int, workers: int, results: Any) -> None:
    results.put([line for b in batches.of_worker(worker, workers) for line in b.x.tolist()])
