"""The shingle sets of the documents that are to be compared, gathered in one sequential pass over
each shard and laid on local scratch, so that memory does not grow with the candidates.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.engines.local import map_pieces
from corpus_platform.stages.project import Progress
from corpus_platform.stages.tables import read_batches
from corpus_platform.text.folding import fold

__all__ = ["ShinglesOnDisk", "gather_shingles"]


class _Piece(NamedTuple):
    cleaned: Path
    rows: np.ndarray  # ascending
    target: Path
    dedup: DedupSettings


class ShinglesOnDisk:
    """Shingle sets by document number; the files are removed when the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where: dict[int, tuple[np.ndarray, int, int]] = {}

    def add(self, path: Path, documents: np.ndarray, ends: np.ndarray) -> None:
        """Take in a file of sets laid end to end, those of `documents` in order."""
        if not len(ends) or not ends[-1]:
            return
        flat = np.memmap(path, np.uint64, mode="r")
        starts = np.concatenate(([0], ends[:-1]))
        for document, start, end in zip(
            documents.tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            self._where[document] = (flat, start, end)

    def of(self, document: int) -> np.ndarray:
        """Return the ascending shingle hashes of a document."""
        flat, start, end = self._where[document]
        return np.asarray(flat[start:end])

    def __enter__(self) -> "ShinglesOnDisk":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._where.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def gather_shingles(
    shards: Sequence[tuple[Path, np.ndarray, np.ndarray]],
    scratch: Path,
    *,
    dedup: DedupSettings,
    workers: int,
    progress: Progress,
) -> ShinglesOnDisk:
    """Gather the sets of some documents: of each shard its cleaned file, their numbers and rows."""
    scratch.mkdir(parents=True)
    found = ShinglesOnDisk(scratch)
    work = [(p, d, r) for p, d, r in shards if len(r)]
    pieces = [
        _Piece(path, rows, scratch / f"{i:06d}.u64", dedup)
        for i, (path, _, rows) in enumerate(work)
    ]
    gathered = map_pieces(_gather, pieces, workers=workers)
    for count, ((_, documents, _), piece, ends) in enumerate(
        zip(work, pieces, gathered, strict=True)
    ):
        found.add(piece.target, documents, ends)
        progress(count + 1, len(pieces))
    return found


def _gather(piece: _Piece) -> np.ndarray:
    """Write the sets of the piece's rows to its file; return their ends."""
    ends, end, wanted = [], 0, set(piece.rows.tolist())
    with piece.target.open("wb") as file:
        for batch in read_batches(piece.cleaned, ["row", "text"]):
            hits = [i for i, row in enumerate(batch.column("row").to_pylist()) if row in wanted]
            for i in hits:
                text = fold(batch.column("text")[i].as_py())
                hashes = shingle_hashes(text, kind=piece.dedup.shingle, width=piece.dedup.width)
                file.write(hashes.tobytes())
                end += len(hashes)
                ends.append(end)
    return np.array(ends, np.int64)
