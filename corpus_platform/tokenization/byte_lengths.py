"""How much text each id of a byte-level tokenizer stands for: bytes, and characters that begin in it.

Sums over the ids of a document are its bytes and characters, without decoding any.
"""

import json
from functools import lru_cache
from typing import NamedTuple

import numpy as np

__all__ = ["TextLengths", "text_ids", "text_lengths"]

_NEVER = (0xC0, 0xC1, *range(0xF5, 0x100))  # bytes that UTF-8 has no use for


class TextLengths(NamedTuple):
    """By id (int64): bytes of UTF-8, and characters whose first byte is among them.

    Control tokens stand for no text.
    """

    bytes: np.ndarray
    chars: np.ndarray


def text_lengths(tokenizer_json: bytes) -> TextLengths:
    """Return the lengths of all ids of a byte-level tokenizer.json."""
    written = json.loads(tokenizer_json)
    vocabulary: dict[str, int] = written["model"]["vocab"]
    control = {token["content"] for token in written["added_tokens"]}
    size = max([*vocabulary.values(), *(t["id"] for t in written["added_tokens"])], default=-1) + 1
    found = TextLengths(np.zeros(size, np.int64), np.zeros(size, np.int64))
    inside = _letters_inside_characters()
    for token, number in vocabulary.items():
        if token not in control:
            found.bytes[number] = len(token)
            found.chars[number] = sum(letter not in inside for letter in token)
    return found


def text_ids(tokenizer_json: bytes) -> np.ndarray:
    """Return the ids that a text may hold (int64, ascending).

    That is no control token, and no token with a byte that UTF-8 never has.
    """
    written, never = json.loads(tokenizer_json), {_letters()[byte] for byte in _NEVER}
    control = {token["content"] for token in written["added_tokens"]}
    ids = [
        number
        for token, number in written["model"]["vocab"].items()
        if token not in control and never.isdisjoint(token)
    ]
    return np.array(sorted(ids), np.int64)


def _letters_inside_characters() -> frozenset[str]:
    """Return the letters that stand for bytes 0x80 to 0xBF, which continue a character of UTF-8."""
    return frozenset(_letters()[0x80:0xC0])


@lru_cache(maxsize=1)
def _letters() -> list[str]:
    """Return the letter that stands for each byte.

    One that can be shown stands for itself as a letter of Latin-1; the others have letters from
    U+0100 on, in order (GPT-2, Radford et al. 2019).
    """
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]
