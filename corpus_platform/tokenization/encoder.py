"""Texts <-> token ids, through whichever engine; the reference engine is Hugging Face tokenizers.

Text is data: a document that spells a special token is encoded as text, and the end token is
never part of an encoding. Whoever packs documents appends it by id.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tokenizers

from corpus_platform.errors import SettingsError
from corpus_platform.tokenization.training import fingerprint

__all__ = [
    "Encoded",
    "Encoder",
    "HuggingFaceEncoder",
    "encode_texts",
    "load_encoder",
    "read_tokenizer",
]

# The engine takes up to 280 bytes of memory per character of a call; this bounds a call to
# about 100 MB (single documents without any place to cut excepted), at no cost in speed.
PIECE_CHARS = 1 << 17
BATCH_CHARS = 1 << 18

# Before a blank or line feed that follows anything but white space the byte-level pre-tokenizer
# always starts a new word: cutting there leaves the ids as they are. True for each of the
# 1,112,035 code points that are not white space, in tokenizers 0.23.3.
_SAFE_CUT = re.compile(r"(?<=\S)[ \n]")


class Encoded(NamedTuple):
    """Ids of documents back to back (uint32), and where each ends (int64, exclusive)."""

    flat: np.ndarray
    ends: np.ndarray


class Encoder(Protocol):
    """What the packing of documents needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        ...

    @property
    def eos_id(self) -> int:
        """Id of the end token."""
        ...

    @property
    def fingerprint(self) -> str:
        """The sha256 of tokenizer.json."""
        ...

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, without an end token."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids, special tokens spelled out."""
        ...


class HuggingFaceEncoder:
    """The reference encoder."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, eos_id: int, fingerprint: str) -> None:
        self._tokenizer = tokenizer
        self.eos_id, self.fingerprint = eos_id, fingerprint
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, without an end token."""
        return encode_texts(self._tokenizer, texts)

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids, special tokens spelled out."""
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def load_encoder(data: bytes, *, eos_token: str) -> HuggingFaceEncoder:
    """Return the encoder of a tokenizer.json.

    Raises SettingsError where it cannot be read, lacks the end token, or would make the end
    token out of text.
    """
    tokenizer = read_tokenizer(data)
    eos_id = tokenizer.token_to_id(eos_token)
    if eos_id is None:
        raise SettingsError(
            f"tokenizer.json: no end token {eos_token!r} among its"
            f" {tokenizer.get_vocab_size()} tokens; train it with that special token"
        )
    if eos_id in encode_texts(tokenizer, [eos_token]).flat:
        raise SettingsError(
            f"tokenizer.json: {eos_token!r} is no special token: a text that spells it would end"
            " there; mark it as special"
        )
    return HuggingFaceEncoder(tokenizer, eos_id=eos_id, fingerprint=fingerprint(data))


def read_tokenizer(data: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer of a tokenizer.json, set to take special tokens in text for text."""
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except ValueError as error:
        raise SettingsError(f"tokenizer.json: cannot be read: {error}") from error
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode_texts(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> Encoded:
    """Return the ids of each text; texts go to the engine in bounded batches."""
    cuttable = _is_cuttable(tokenizer)
    blocks: list[np.ndarray] = [np.empty(0, dtype=np.uint32)]
    lengths: list[int] = []
    owners: list[int] = []
    for batch in _batches(texts, cut=cuttable):
        pieces = [piece for _, piece in batch]
        for encoding in tokenizer.encode_batch_fast(pieces, add_special_tokens=False):
            blocks.append(np.array(encoding.ids, dtype=np.uint32))
            lengths.append(len(blocks[-1]))
        owners += [owner for owner, _ in batch]
    totals = np.zeros(len(texts), dtype=np.int64)
    np.add.at(totals, owners, lengths)
    return Encoded(np.concatenate(blocks), np.cumsum(totals))


def _is_cuttable(tokenizer: tokenizers.Tokenizer) -> bool:
    # pre_tokenizer state is asked for, not the whole JSON: that takes 20 ms.
    if tokenizer.normalizer is not None or tokenizer.pre_tokenizer is None:
        return False
    rule = json.loads(tokenizer.pre_tokenizer.__getstate__())
    added = tokenizer.get_added_tokens_decoder().values()
    return (
        rule["type"] == "ByteLevel"
        and rule["use_regex"]
        and not rule["add_prefix_space"]
        and all(token.special for token in added)
    )


def _batches(texts: Sequence[str], *, cut: bool) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    chars = 0
    for owner, text in enumerate(texts):
        for piece in _pieces(text) if cut else (text,):
            if batch and chars + len(piece) > BATCH_CHARS:
                yield batch
                batch, chars = [], 0
            batch.append((owner, piece))
            chars += len(piece)
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        place = _SAFE_CUT.search(text, start + PIECE_CHARS)
        if place is None:
            break
        yield text[start : place.start()]
        start = place.start()
    yield text[start:]
