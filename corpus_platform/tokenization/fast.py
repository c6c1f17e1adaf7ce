"""Encode with fastokens, an optional engine that is many times as fast as the reference.

Whether it makes the ids of the reference is found out in `exactness`; nothing here trusts it.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from corpus_platform.errors import EngineFailed, MissingExtra
from corpus_platform.tokenization.encoder import (
    Encoded,
    HuggingFaceEncoder,
    in_batches,
    is_cuttable,
)

__all__ = ["FastEncoder", "load_fast"]

# The engine takes up to 61 bytes of memory per character of a call (random code points; 6 of
# ordinary text), beside a cache of at most 128 MB: this bounds a call to about 64 MB.
BATCH_CHARS = 1 << 20


class _Engine(Protocol):
    def no_truncation(self) -> None: ...
    def no_padding(self) -> None: ...
    def encode_batch_flat(
        self, inputs: list[str], add_special_tokens: bool = ..., split_special_tokens: bool = ...
    ) -> tuple[bytes, bytes]: ...


class FastEncoder:
    """An encoder that makes ids by fastokens, and text by the reference."""

    def __init__(self, engine: _Engine, reference: HuggingFaceEncoder) -> None:
        self._engine, self._reference = engine, reference
        self._cut = is_cuttable(reference.tokenizer)
        self.vocab_size, self.fingerprint = reference.vocab_size, reference.fingerprint
        self.eos_id, self.bos_id, self.pad_id = (
            reference.eos_id,
            reference.bos_id,
            reference.pad_id,
        )

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, without control tokens."""
        return in_batches(texts, self._encode, cut=self._cut, chars=BATCH_CHARS)

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids, special tokens spelled out."""
        return self._reference.decode(ids)

    def _encode(self, batch: Sequence[tuple[int, str]]) -> Encoded:
        pieces = [piece for _, piece in batch]
        try:
            ids, ends = self._engine.encode_batch_flat(pieces, split_special_tokens=True)
        except UnicodeEncodeError:
            raise
        except BaseException as error:
            if not _is_own(error):
                raise
            raise EngineFailed(f"fastokens gave up on a text: {error}") from error
        return Encoded(np.frombuffer(ids, "<u4"), np.frombuffer(ends, "<u8")[1:].astype(np.int64))


def load_fast(data: bytes, reference: HuggingFaceEncoder) -> FastEncoder:
    """Return the fast encoder of a tokenizer.json that the reference has read.

    Raises MissingExtra where fastokens is not installed, EngineFailed where it does not know such
    a tokenizer.
    """
    # One helper thread would spin beside the one that works, and gains nothing: 101 MB a CPU second
    # with it, 169 without. Read when the engine first encodes.
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    try:
        import fastokens
    except ImportError as error:
        raise MissingExtra("fast encoding: pip install 'corpus-platform[fast]'") from error
    return _load(fastokens.Tokenizer.from_json_str, data, reference)


@lru_cache(maxsize=1)
def _load(
    read: Callable[[str], _Engine], data: bytes, reference: HuggingFaceEncoder
) -> FastEncoder:
    try:
        engine = read(data.decode())
        engine.no_truncation()
        engine.no_padding()
    except BaseException as error:
        if not _is_own(error):
            raise
        raise EngineFailed(f"fastokens cannot use this tokenizer: {error}") from error
    return FastEncoder(engine, reference)


def _is_own(error: BaseException) -> bool:
    """Tell whether an error is the engine's: a panic of its language is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
