"""The headers of the files of a split: their hashes are taken while the files are written.

A hash takes longer than the writing, and one file is hashed from its beginning to its end. So with
several workers each file has a thread that follows it, up to where all of it is there.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from corpus_platform.formats.token_bin import Header
from corpus_platform.formats.token_bin_parts import PartsSeal, TokenBinParts
from corpus_platform.packing.placement import Filled

__all__ = ["Sealing"]


class Sealing:
    """Hashes files that grow one after the other; with one worker nothing goes on beside.

    A context manager: after the block nothing goes on either.
    """

    def __init__(self, files: Sequence[TokenBinParts], *, workers: int) -> None:
        self._seals = [PartsSeal(file) for file in files]
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self._reached = [SimpleQueue[Filled | None]() for _ in files]
        self._followed = list[Future[None]]()
        self._stopped = False

    def reach(self, number: int, filled: Filled) -> None:
        """Hear that the first tokens and entries of a file are written, and all files before it."""
        if self._pool is None:
            self._seals[number].reach(filled.tokens, filled.entries)
            return
        if self._followed and self._followed[-1].done():
            self._followed[-1].result()  # it has no end before ours but an error
        for begun in range(len(self._followed), number + 1):
            self._end(begun - 1)
            self._followed.append(self._pool.submit(self._follow, begun))
        self._reached[number].put(filled)

    def _end(self, number: int) -> None:
        if number >= 0:
            self._reached[number].put(None)

    def _follow(self, number: int) -> None:
        while (filled := self._reached[number].get()) is not None and not self._stopped:
            self._seals[number].reach(filled.tokens, filled.entries)

    def headers(self, documents: Sequence[int], padding: Sequence[int]) -> list[Header]:
        """Write the headers, when all files are whole, and return them."""
        self._end(len(self._followed) - 1)
        for followed in self._followed:
            followed.result()
        return [
            seal.write_header(documents=d, padding=p)
            for seal, d, p in zip(self._seals, documents, padding, strict=True)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped = kind is not None  # much may be waiting, of which nobody wants the hash
        if self._pool is not None:
            self._end(len(self._followed) - 1)
            self._pool.shutdown(wait=True, cancel_futures=True)
