"""Train the byte-level BPE tokenizer, and choose the documents it is trained on.

No normalizer, no unknown token: every text can be encoded and comes back byte for byte. The
result depends on the texts and the settings, not on their order or on the number of threads.
Whether a tokenizer is fit for use is judged in `acceptance`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpus_platform.errors import SettingsError

__all__ = [
    "MAX_SAMPLE_BYTES",
    "MAX_WORD_CHARS",
    "Chosen",
    "Sample",
    "fingerprint",
    "tokenizer_bytes",
    "train",
    "word_rule",
]

# The trainer counts pairs in 32 signed bits: more bytes than this could wrap a count and choose
# wrong merges without an error.
MAX_SAMPLE_BYTES = 2**31 - 1

# A merge costs the trainer the length of the word for each place it applies in, so one word of
# 10^6 letters takes more than 8 minutes; cut at 256 the same text takes 0.1 s. Of 20 MB of
# documentation 171 runs are that long: table borders and blanks.
MAX_WORD_CHARS = 256

# A word of the pre-tokenizer lies within one run of letters and digits, or of anything else.
# Each branch starts at the start of a run only, so that a search stays linear.
_OVERLONG = re.compile(
    rf"(?<![^\W_])[^\W_]{{{MAX_WORD_CHARS + 1},}}|(?<![\W_])[\W_]{{{MAX_WORD_CHARS + 1},}}"
)

# The words of the byte-level pre-tokenizer (GPT-2, Radford et al. 2019), but that a digit is one by
# itself. As one rule fastokens encodes 3.5 times as fast as with the pre-tokenizer Digits before it.
_SINGLE_DIGITS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_CANDIDATE = np.dtype([("rank", "<u8"), ("words", "<u8", 4), ("size", "<i8"), ("place", "<i8", 2)])
_TOGETHER = 1 << 16  # candidates that wait at least before they are sorted in


def train(
    texts: Iterable[str],
    *,
    vocab_size: int,
    special_tokens: Sequence[str],
    single_digits: bool = False,
) -> tokenizers.Tokenizer:
    """Return a tokenizer with the special tokens first, then 256 byte tokens, then merges.

    `single_digits`: no token holds a digit and anything else. It has fewer than `vocab_size` tokens
    where the texts hold too few different pairs. Words longer than MAX_WORD_CHARS count as several.
    Raises SettingsError above MAX_SAMPLE_BYTES.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = word_rule(single_digits=single_digits)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_bounded(texts), trainer)
    return tokenizer


def word_rule(*, single_digits: bool) -> pre_tokenizers.PreTokenizer:
    """Return the rule by which texts are cut to words, which merges stay within."""
    if not single_digits:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Split(tokenizers.Regex(_SINGLE_DIGITS), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, letters])


def tokenizer_bytes(tokenizer: tokenizers.Tokenizer) -> bytes:
    """Return the JSON that is stored as tokenizer.json, with a final newline."""
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def fingerprint(data: bytes) -> str:
    """Return the sha256 of a tokenizer.json, by which token files name their tokenizer."""
    return hashlib.sha256(data).hexdigest()


class Chosen(NamedTuple):
    """The documents of a sample: places, int64 [n, 2], ascending, and bytes of each, int64."""

    places: np.ndarray
    sizes: np.ndarray


class Sample:
    """A random sample of at most `limit_bytes` of the documents that are offered, in any parts.

    Documents are taken by rising keyed hash until the next one does not fit, so the choice hangs on
    the set of documents and not on its order; those that are larger than the limit by themselves
    never count. All are taken when all fit. What can be taken no more is let go, so memory is
    bounded by the sample and the largest part that is offered.
    """

    def __init__(self, *, limit_bytes: int, seed: int) -> None:
        self._limit = limit_bytes
        key = hashlib.sha256(f"sample {seed}".encode()).digest()
        # The digests are uniform already; the multipliers make another seed another order.
        self._factors = np.frombuffer(key, dtype="<u8")[:2] | np.uint64(1)
        self._held: np.ndarray = np.empty(0, _CANDIDATE)  # by rising rank
        self._waiting: list[np.ndarray] = []

    def offer(self, digests: np.ndarray, sizes: np.ndarray, places: np.ndarray) -> None:
        """Take more documents into account.

        digests: content hashes, uint8 [n, 32]; sizes: bytes; places: int64 [n, 2], by which the
        caller knows them.
        """
        words = np.ascontiguousarray(digests).view("<u8").reshape(-1, 4)
        found: np.ndarray = np.empty(len(words), _CANDIDATE)
        found["rank"] = words[:, 0] * self._factors[0] + words[:, 1] * self._factors[1]
        found["words"], found["size"], found["place"] = words, sizes, places
        possible = found["size"] <= self._limit
        if self._is_full():
            possible &= found["rank"] <= self._held["rank"][-1]
        self._waiting.append(found[possible])
        if sum(map(len, self._waiting)) > max(len(self._held), _TOGETHER):
            self._settle()

    def chosen(self) -> Chosen:
        """Return the sample of all documents that were offered so far."""
        self._settle()
        taken: np.ndarray = self._held[: len(self._held) - self._is_full()]
        taken = taken[np.lexsort(taken["place"].T[::-1])]
        return Chosen(taken["place"], taken["size"])

    def _settle(self) -> None:
        """Hold what fits, and the first that does not: nothing that comes after it can be taken."""
        found = np.concatenate([self._held, *self._waiting])
        self._waiting.clear()
        # Stable: of equal hashes the one that was offered first goes first.
        order = np.lexsort((*found["words"].T, found["rank"]))
        fit = np.searchsorted(np.cumsum(found["size"][order]), self._limit, side="right")
        self._held = found[order[: fit + 1]]

    def _is_full(self) -> bool:
        return int(self._held["size"].sum()) > self._limit


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    total = 0
    for text in texts:
        total += len(text.encode())
        if total > MAX_SAMPLE_BYTES:
            raise SettingsError(
                f"tokenizer.sample_bytes: the training text exceeds {MAX_SAMPLE_BYTES} bytes, the"
                " most the trainer can count; set a smaller value"
            )
        yield from _cut_overlong(text)


def _cut_overlong(text: str) -> Iterator[str]:
    start = 0
    for run in _OVERLONG.finditer(text):
        for end in range(run.start() + MAX_WORD_CHARS, run.end(), MAX_WORD_CHARS):
            yield text[start:end]
            start = end
    yield text[start:]
