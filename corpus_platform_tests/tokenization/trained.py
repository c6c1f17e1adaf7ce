"""Small tokenizers that several tests share."""

from collections.abc import Sequence
from functools import cache

from corpus_platform.tokenization.encoder import HuggingFaceEncoder, load_encoder
from corpus_platform.tokenization.training import tokenizer_bytes, train

EOS = "<|endoftext|>"


@cache
def trained(
    texts: Sequence[str] = ("the cat sat on the mat",) * 3,
    vocab_size: int = 300,
    special_tokens: Sequence[str] = (EOS,),
    *,
    single_digits: bool = False,
) -> bytes:
    """Return the bytes of a tokenizer.json trained on these texts."""
    made = train(
        texts, vocab_size=vocab_size, special_tokens=special_tokens, single_digits=single_digits
    )
    return tokenizer_bytes(made)


def cat_encoder() -> HuggingFaceEncoder:
    """Return the encoder of a tokenizer that has seen one sentence."""
    return load_encoder(trained(), eos_token=EOS)


NUMBERS = ("in 12345 and 2024, of 12345: 99 3.14",) * 5  # together 12345 is a token


def digits_encoder() -> HuggingFaceEncoder:
    """Return the encoder of a tokenizer of which each digit is a token."""
    return load_encoder(trained(NUMBERS, 320, single_digits=True), eos_token=EOS)
