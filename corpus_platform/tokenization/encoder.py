"""Texts <-> token ids, through whichever engine; the reference engine is Hugging Face tokenizers.

Text is data: a document that spells a special token is encoded as text, and control tokens are
never part of an encoding. Whoever packs documents adds them by id.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import tokenizers

from corpus_platform.errors import SettingsError, StageFailed
from corpus_platform.tokenization.training import fingerprint, word_rule

__all__ = [
    "Encoded",
    "Encoder",
    "HuggingFaceEncoder",
    "Spanned",
    "encode_texts",
    "in_batches",
    "is_cuttable",
    "load_encoder",
    "read_tokenizer",
    "take_threads",
]

# The engine takes up to 280 bytes of memory per character of a call; this bounds a call to
# about 100 MB (single documents without any place to cut excepted), at no cost in speed.
PIECE_CHARS = 1 << 17
BATCH_CHARS = 1 << 18

# Where the byte-level pre-tokenizer always starts a new word, so that cutting leaves the ids as they
# are. Before a blank or line feed that follows anything but white space: true for each of the
# 1,112,035 code points that are not white space, in tokenizers 0.23.3. And where no blank may be for
# megabytes: no word holds a letter and then a digit or a mark of punctuation, or a digit and then a
# letter. Letters that all versions of Unicode know as such: ASCII, kana, Han, Hangul. All this is as
# true where each digit is a word by itself.
_LETTERS = "A-Za-z\u3041-\u3096\u30a1-\u30fa\u3400-\u4db5\u4e00-\u9fa5\uac00-\ud7a3"
_PUNCTUATION = r"!-/:-@\[-`{-~\u3001-\u3003\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
_SAFE_CUT = re.compile(rf"(?<=\S)[ \n]|(?<=[{_LETTERS}])[0-9{_PUNCTUATION}]|(?<=[0-9])[{_LETTERS}]")
_SINGLE_DIGITS = json.loads(word_rule(single_digits=True).__getstate__())


class Encoded(NamedTuple):
    """Ids of documents back to back (uint32), and where each ends (int64, exclusive)."""

    flat: np.ndarray
    ends: np.ndarray


class Spanned(NamedTuple):
    """Ids, ends, and of each token the last character of its text that it stands for (int64).

    -1 where it stands for none.
    """

    flat: np.ndarray
    ends: np.ndarray
    last: np.ndarray


class Encoder(Protocol):
    """What the packing of documents needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        ...

    @property
    def eos_id(self) -> int | None:
        """Id of the end token; None where documents get none."""
        ...

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a document; None where documents get none."""
        ...

    @property
    def pad_id(self) -> int | None:
        """Id of the token that fills rows up; None where none was asked for."""
        ...

    @property
    def fingerprint(self) -> str:
        """The sha256 of tokenizer.json."""
        ...

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, without control tokens."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids, special tokens spelled out."""
        ...


class HuggingFaceEncoder:
    """The reference encoder."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        fingerprint: str,
        eos_id: int | None = None,
        bos_id: int | None = None,
        pad_id: int | None = None,
    ) -> None:
        self.tokenizer, self.fingerprint = tokenizer, fingerprint
        self.eos_id, self.bos_id, self.pad_id = eos_id, bos_id, pad_id
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, without control tokens."""
        return encode_texts(self.tokenizer, texts)

    def encode_spanned(self, texts: Sequence[str]) -> Spanned:
        """Return the same ids as `encode`, and where in its text each token ends."""
        last = [np.empty(0, dtype=np.int64)]
        at = _Starts()

        def encode(batch: Sequence[tuple[int, str]]) -> Encoded:
            found = self.tokenizer.encode_batch([p for _, p in batch], add_special_tokens=False)
            for (owner, piece), encoding in zip(batch, found, strict=True):
                last.append(_last_characters(encoding, at.start(owner, piece)))
            return _joined(found)

        flat, ends = in_batches(texts, encode, cut=is_cuttable(self.tokenizer))
        return Spanned(flat, ends, np.concatenate(last))

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids, special tokens spelled out."""
        return self.tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def load_encoder(
    data: bytes,
    *,
    eos_token: str | None,
    bos_token: str | None = None,
    pad_token: str | None = None,
    name: str = "tokenizer.json",
) -> HuggingFaceEncoder:
    """Return the reference encoder of a tokenizer.json; a control token of None is not used.

    The same bytes give the same object: loading takes longer than a small shard. Raises
    SettingsError where it cannot be read, lacks a control token, or would make one out of text.
    """
    return _load(data, eos_token, bos_token, pad_token, name)


@lru_cache(maxsize=2)
def _load(
    data: bytes, eos: str | None, bos: str | None, pad: str | None, name: str
) -> HuggingFaceEncoder:
    tokenizer = read_tokenizer(data, name=name)
    ids = {}
    for role, token in (("end", eos), ("begin", bos), ("padding", pad)):
        ids[role] = None if token is None else _control_id(tokenizer, role, token, name)
    return HuggingFaceEncoder(
        tokenizer,
        fingerprint=fingerprint(data),
        eos_id=ids["end"],
        bos_id=ids["begin"],
        pad_id=ids["padding"],
    )


def _control_id(tokenizer: tokenizers.Tokenizer, role: str, token: str, name: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise SettingsError(
            f"{name}: no {role} token {token!r} among its {tokenizer.get_vocab_size()} tokens;"
            " train it with that special token, or name another one"
        )
    if number in encode_texts(tokenizer, [token]).flat:
        raise SettingsError(
            f"{name}: the {role} token {token!r} is no special token: a text that spells it would"
            " make it; mark it as special"
        )
    return number


def read_tokenizer(data: bytes, *, name: str = "tokenizer.json") -> tokenizers.Tokenizer:
    """Return the tokenizer of a tokenizer.json, set to take special tokens in text for text."""
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except ValueError as error:
        raise SettingsError(f"{name}: cannot be read: {error}") from error
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = None  # it adds control tokens, and may trim blanks off offsets
    return tokenizer


def take_threads(count: int) -> None:
    """Have the engines use so many threads from now on, where the environment does not say.

    Processes that encode side by side take one each, or they wait for each other.
    """
    if count == 1:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    else:
        os.environ.setdefault("RAYON_NUM_THREADS", str(count))  # read once, by the first call


def encode_texts(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> Encoded:
    """Return the ids of each text; texts go to the engine in bounded batches."""

    def encode(batch: Sequence[tuple[int, str]]) -> Encoded:
        pieces = [piece for _, piece in batch]
        return _joined(tokenizer.encode_batch_fast(pieces, add_special_tokens=False))

    return in_batches(texts, encode, cut=is_cuttable(tokenizer))


def in_batches(
    texts: Sequence[str],
    encode: Callable[[Sequence[tuple[int, str]]], Encoded],
    *,
    cut: bool,
    chars: int | None = None,
) -> Encoded:
    """Return what an engine makes of texts that it gets in batches of about so many characters.

    `encode` gets pieces with the number of the text each is of; long texts are cut where that
    leaves the ids as they are. Raises StageFailed where a text is none: it has a lone surrogate.
    """
    blocks = [np.empty(0, dtype=np.uint32)]
    totals = np.zeros(len(texts), dtype=np.int64)
    for batch in _batches(texts, cut=cut, chars=chars or BATCH_CHARS):
        try:
            flat, ends = encode(batch)
        except (TypeError, UnicodeEncodeError):
            _refuse_surrogates(texts)
            raise
        blocks.append(flat)
        np.add.at(totals, [owner for owner, _ in batch], np.diff(ends, prepend=0))
    return Encoded(np.concatenate(blocks), np.cumsum(totals))


def is_cuttable(tokenizer: tokenizers.Tokenizer) -> bool:
    """Tell whether a tokenizer's words begin where a text may be cut."""
    # pre_tokenizer state is asked for, not the whole JSON: that takes 20 ms.
    if tokenizer.normalizer is not None or tokenizer.pre_tokenizer is None:
        return False
    rule = json.loads(tokenizer.pre_tokenizer.__getstate__())
    added = tokenizer.get_added_tokens_decoder().values()
    return (rule == _SINGLE_DIGITS or _is_byte_level(rule)) and all(t.special for t in added)


def _is_byte_level(rule: dict) -> bool:
    return rule["type"] == "ByteLevel" and rule["use_regex"] and not rule["add_prefix_space"]


class _Starts:
    """Where in its text each piece starts, for pieces in order."""

    def __init__(self) -> None:
        self._owner, self._chars = -1, 0

    def start(self, owner: int, piece: str) -> int:
        if owner != self._owner:
            self._owner, self._chars = owner, 0
        self._chars += len(piece)
        return self._chars - len(piece)


def _joined(encodings: Sequence[tokenizers.Encoding]) -> Encoded:
    parts = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return Encoded(np.concatenate(parts), ends)


def _last_characters(encoding: tokenizers.Encoding, start: int) -> np.ndarray:
    spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return np.where(spans[:, 1] > 0, spans[:, 1] - 1 + start, -1)


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise StageFailed(
                f"text {number} of {len(texts)} cannot be encoded: character {error.start} is the"
                f" lone surrogate U+{ord(text[error.start]):04X}, which is no text; quarantine such"
                " documents when they are cleaned"
            ) from error


def _batches(texts: Sequence[str], *, cut: bool, chars: int) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    held = 0
    for owner, text in enumerate(texts):
        for piece in _pieces(text) if cut else (text,):
            if batch and held + len(piece) > chars:
                yield batch
                batch, held = [], 0
            batch.append((owner, piece))
            held += len(piece)
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
