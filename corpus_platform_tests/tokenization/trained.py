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
) -> bytes:
    """Return the bytes of a tokenizer.json trained on these texts."""
    return tokenizer_bytes(train(texts, vocab_size=vocab_size, special_tokens=special_tokens))


def cat_encoder() -> HuggingFaceEncoder:
    """Return the encoder of a tokenizer that has seen one sentence."""
    return load_encoder(trained(), eos_token=EOS)
