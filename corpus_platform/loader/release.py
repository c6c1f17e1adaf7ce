"""A split of a release as a training run reads it: a stream of tokens, and batches of it.

Needs numpy alone. A release, and all that is made of it, may be pickled and forked. How it is found,
fetched and checked stands in `opening`.
"""

import dataclasses
import logging
from pathlib import Path

import numpy as np

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_windows import told_windows
from corpus_platform.loader.batches import Batches, Pin
from corpus_platform.loader.orders import Order, RandomStarts, Rows, Windows
from corpus_platform.loader.sequences import MaskBoundary, RowReader, WindowReader
from corpus_platform.loader.stream import Stream

__all__ = ["Release"]

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Release:
    """The tokens of one split as a stream, and what is known of them.

    `id` and `content` say which release it is; `folder` is where its files lie on this machine.
    `row_tokens` is the length of a row, None where documents lie back to back.
    """

    id: str
    content: str
    split: str
    folder: Path
    stream: Stream
    documents: int
    vocab_size: int
    tokenizer_sha256: str
    eos_id: int | None
    bos_id: int | None = None
    pad_id: int | None = None
    row_tokens: int | None = None
    has_loss: bool = False  # some token counts for nothing

    def __len__(self) -> int:
        """The tokens of the stream, padding counted in."""
        return len(self.stream)

    @property
    def name(self) -> str:
        """How messages name it."""
        names = [part.name for part in self.stream.parts]
        files = (
            names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else "nothing"
        )
        return f"{self.folder} ({files})"

    def get_slice(self, start: int, stop: int) -> np.ndarray:
        """Return the tokens of [start, stop) as stored, without a copy where one file holds them."""
        return self.stream.get_slice(start, stop)

    def document_borders(self, start: int, length: int) -> np.ndarray:
        """Return the borders of documents in a window (int32): 0, each border, `length`."""
        inside = self.stream.borders(start, start + length) - start
        return np.concatenate(([0], inside, [length])).astype(np.int32)

    def windows(
        self,
        seq_len: int,
        batch: int,
        seed: int,
        *,
        jitter: bool = False,
        random_starts: bool = False,
        mask_boundary: MaskBoundary = False,
        borders: bool = False,
        drop_last: bool = False,
        dtype: np.dtype | type | None = np.int64,
    ) -> Batches:
        """Return all windows of `seq_len` tokens side by side, each once an epoch, in random order.

        `jitter` shifts them by a random phase in each epoch; `random_starts` draws every window from
        all places instead. `mask_boundary` takes labels at borders of documents out of the loss: the
        end token ("end"), what comes behind it ("begin"), or both (True). `borders` gives batches
        their `cu_seqlens`. `dtype` None: ids as stored.
        """
        if jitter and random_starts:
            raise UsageError("jitter and random_starts: one of them; random starts have no grid")
        order: Order = Windows(len(self), seq_len, jitter=jitter)
        if random_starts:
            order = RandomStarts(len(self), seq_len)
        reader = self._windows(seq_len, mask_boundary, borders, dtype)
        return self._batches(order, reader, batch, seed, drop_last=drop_last)

    def sequential(
        self,
        seq_len: int,
        batch: int,
        *,
        mask_boundary: MaskBoundary = False,
        borders: bool = False,
        drop_last: bool = False,
        dtype: np.dtype | type | None = np.int64,
    ) -> Batches:
        """Return all windows side by side, in the order of the stream; for the rest see `windows`."""
        order = Windows(len(self), seq_len, in_order=True)
        reader = self._windows(seq_len, mask_boundary, borders, dtype)
        return self._batches(order, reader, batch, 0, drop_last=drop_last)

    def rows(
        self,
        batch: int,
        seed: int | None,
        *,
        mask_boundary: bool = True,
        drop_last: bool = False,
        dtype: np.dtype | type | None = np.int64,
    ) -> Batches:
        """Return all rows, each once an epoch: in random order, without a seed in their own.

        By default no label counts that is the first token of another piece: in a row it does not
        follow from what stands before it.
        """
        if self.row_tokens is None:
            raise UsageError(
                f"{self.name}: documents back to back, not rows; take windows, or a release of"
                " pack.strategy best_fit or pad"
            )
        count = len(self) // self.row_tokens
        reader = RowReader(
            self.stream, self.row_tokens, self._dtype(dtype), self.pad_id or 0, mask_boundary
        )
        if not count:
            _log.warning("%s: no tokens, so no rows", self.name)
        order = Rows(count, in_order=seed is None)
        return self._batches(order, reader, batch, seed or 0, drop_last=drop_last)

    def _windows(
        self,
        seq_len: int,
        mask_boundary: MaskBoundary,
        borders: bool,
        dtype: np.dtype | type | None,
    ) -> WindowReader:
        if self.row_tokens is not None:
            raise UsageError(
                f"{self.name}: rows of {self.row_tokens} tokens; take rows(batch, seed)"
            )
        if seq_len < 1:
            raise UsageError(f"seq_len {seq_len}: at least 1 is wanted")
        if mask_boundary not in (False, True, "end", "begin"):
            raise UsageError(f"mask_boundary {mask_boundary!r}: False, True, 'end' or 'begin'")
        if not len(self):
            _log.warning("%s: no tokens, so no window of %d", self.name, seq_len)
        told_windows(self.name, len(self), seq_len)
        return WindowReader(
            self.stream,
            seq_len,
            self._dtype(dtype),
            mask_boundary=mask_boundary,
            borders=borders,
            has_loss=self.has_loss,
            control_ends=self.eos_id is not None,
        )

    def _dtype(self, dtype: np.dtype | type | None) -> np.dtype:
        """Return the type that ids are given in, which must hold them all."""
        wanted = self.stream.dtype if dtype is None else np.dtype(dtype)
        bits = 8 * wanted.itemsize - (wanted.kind == "i")
        if wanted.kind not in "iu" or self.vocab_size > 1 << bits:
            raise UsageError(f"dtype {wanted}: does not hold ids up to {self.vocab_size - 1}")
        return wanted

    def _batches(
        self,
        order: Order,
        reader: WindowReader | RowReader,
        batch: int,
        seed: int,
        *,
        drop_last: bool,
    ) -> Batches:
        pin = Pin(self.id, self.content, self.split)
        return Batches(order, reader, pin, batch=batch, seed=seed, drop_last=drop_last)
