"""Train the byte-level BPE tokenizer, and choose the documents it is trained on.

No normalizer, no unknown token: every text can be encoded and comes back byte for byte. The
result depends on the texts and the settings, not on their order or on the number of threads.
Whether a tokenizer is fit for use is judged in `acceptance`.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpus_platform.errors import SettingsError

__all__ = [
    "MAX_SAMPLE_BYTES",
    "MAX_WORD_CHARS",
    "choose_sample",
    "fingerprint",
    "tokenizer_bytes",
    "train",
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


def train(
    texts: Iterable[str], *, vocab_size: int, special_tokens: Sequence[str]
) -> tokenizers.Tokenizer:
    """Return a tokenizer with the special tokens first, then 256 byte tokens, then merges.

    It has fewer than `vocab_size` tokens where the texts hold too few different pairs. Words
    longer than MAX_WORD_CHARS count as several. Raises SettingsError above MAX_SAMPLE_BYTES.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_bounded(texts), trainer)
    return tokenizer


def tokenizer_bytes(tokenizer: tokenizers.Tokenizer) -> bytes:
    """Return the JSON that is stored as tokenizer.json, with a final newline."""
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def fingerprint(data: bytes) -> str:
    """Return the sha256 of a tokenizer.json, by which token files name their tokenizer."""
    return hashlib.sha256(data).hexdigest()


def choose_sample(
    digests: Sequence[bytes] | np.ndarray, sizes: np.ndarray, *, limit_bytes: int, seed: int
) -> np.ndarray:
    """Mark the documents to train on: a random sample of at most `limit_bytes`.

    `digests` are 32-byte content hashes. Documents are taken by rising keyed hash until the next
    one does not fit, so the choice hangs on the set of documents and not on its order; those that
    are larger than the limit by themselves never count. All are taken when all fit.
    """
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 4)
    sizes = np.asarray(sizes, dtype=np.int64)
    candidates = np.flatnonzero(sizes <= limit_bytes)
    ranked = candidates[_keyed_order(words[candidates], seed)]
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[ranked[np.cumsum(sizes[ranked]) <= limit_bytes]] = True
    return chosen


def _keyed_order(words: np.ndarray, seed: int) -> np.ndarray:
    # The digests are uniform already; the multipliers make another seed another order.
    key = np.frombuffer(hashlib.sha256(f"sample {seed}".encode()).digest(), dtype="<u8")
    ranks = words[:, 0] * (key[0] | np.uint64(1)) + words[:, 1] * (key[1] | np.uint64(1))
    return np.lexsort((*words.T, ranks))


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
