"""Examine a stored tokenizer: numbers a gate can judge, all read from the bytes that are stored.

Nothing is decided here; limits and waivers belong to the gates.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers

from corpus_platform.errors import SettingsError
from corpus_platform.tokenization.encoder import Encoded, encode_texts, read_tokenizer

__all__ = ["HOSTILE", "Acceptance", "Fertility", "examine"]

# Texts that tokenizers are known to change, by name.
HOSTILE = {
    "empty": "",
    "blank": " ",
    "leading_blank": " hello",
    "two_leading_blanks": "  hello",
    "tab_and_newline": "\thello\n",
    "300_blanks": " " * 300 + "x" + " " * 300,
    "trailing_blanks": "x \n \n\n  ",
    "nul": "a\x00b\x00",
    "control_characters": "".join(map(chr, range(32))) + "\x7f\x85",
    "crlf": "a\r\nb\r\n\r\nc\r",
    "byte_order_mark": "\ufeffa\ufeff",
    "line_separators": "a\u2028b\u2029c",
    "zero_width": "a\u200bb\u200dc\u2060d\u00ade",
    "compatibility_forms": "ﬁ ① Ａ ︰ \u00a0 e\u0301 \u200d x\r\n",
    "composed_and_decomposed": "é e\u0301 Å A\u030a",
    "family_emoji": "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪",
    "long_word": "a" * 200,
    "contractions": "don't WE'LL it's''s",
    "hindi": "हिन्दी में लिखा हुआ एक वाक्य।",
    "arabic": "مَرْحَبًا بِالعَالَم، كيف الحال؟",
    "thai": "ภาษาไทยเขียนติดกันโดยไม่เว้นวรรค",
    "chinese": "机器学习模型训练。繁體字與简体字。",
    "japanese": "日本語のテキストです。ｶﾀｶﾅ",
    "korean": "한국어 텍스트와 \u1112\u1161\u11ab",
    "cyrillic": "Привет, мир! Ёжик",
    "replacement_and_private": "\ufffd\ue000\U0010ffff\ufffe",
    "byte_letters": "Ġ Ċ ĉ ÄŁ",  # the letters that byte tokens are written with
}


class Fertility(NamedTuple):
    """How far a language's text goes; ratios are 0 where there is no token."""

    documents: int
    chars: int
    bytes: int
    tokens: int

    @property
    def chars_per_token(self) -> float:
        """Code points of text per token."""
        return self.chars / self.tokens if self.tokens else 0.0

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes of text per token."""
        return self.bytes / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class Acceptance:
    """What was found; of a sound tokenizer all that follows `texts` is empty or 0.

    `vocab_size` is the number of different ids, `hostile_failures` names entries of HOSTILE, and
    `specials_made_of_text` the special tokens that their own spelling is encoded to.
    """

    vocab_size: int
    fertility: dict[str, Fertility]
    texts: int
    round_trip_failures: int
    hostile_failures: tuple[str, ...]
    missing_special_tokens: tuple[str, ...]
    missing_bytes: int
    duplicate_ids: int
    missing_ids: int
    specials_made_of_text: tuple[str, ...]
    texts_with_special_ids: int


def examine(
    tokenizer_json: bytes,
    texts: Sequence[str],
    *,
    special_tokens: Sequence[str],
    languages: Sequence[str | None] | None = None,
) -> Acceptance:
    """Return the numbers of a tokenizer over these texts and the hostile ones.

    `languages` names the language of each text, "und" where there is none.
    """
    tokenizer = read_tokenizer(tokenizer_json)
    entries = _vocabulary(tokenizer_json)
    names, ids = {name for name, _ in entries}, {number for _, number in entries}
    special_ids = [number for name, number in entries if name in special_tokens]
    hostile = HOSTILE | {f"spells {token}": f"a {token} b{token}" for token in special_tokens}
    encoded = encode_texts(tokenizer, texts)
    return Acceptance(
        vocab_size=len(ids),
        fertility=_fertility(texts, encoded, languages or [None] * len(texts)),
        texts=len(texts),
        round_trip_failures=len(_failures(tokenizer, texts, encoded)),
        hostile_failures=_hostile_failures(tokenizer, hostile),
        missing_special_tokens=tuple(token for token in special_tokens if token not in names),
        missing_bytes=len(set(pre_tokenizers.ByteLevel.alphabet()) - names),
        duplicate_ids=len(entries) - len(ids),
        missing_ids=max(ids, default=-1) + 1 - len(ids),
        specials_made_of_text=_made_of_text(tokenizer, special_tokens, special_ids),
        texts_with_special_ids=sum(_holding(encoded, special_ids)),
    )


def _vocabulary(tokenizer_json: bytes) -> list[tuple[str, int]]:
    """Return every (token, id) as written: loading would repair clashes without a word."""
    written = json.loads(tokenizer_json)
    vocabulary = written["model"]["vocab"]
    if not isinstance(vocabulary, dict):
        raise SettingsError(
            f"tokenizer.json: model {written['model']['type']!r} has no table of ids; BPE is wanted"
        )
    added = {(token["content"], token["id"]) for token in written["added_tokens"]}
    return sorted(added | set(vocabulary.items()))


def _documents(encoded: Encoded) -> list[np.ndarray]:
    return np.split(encoded.flat, encoded.ends[:-1]) if len(encoded.ends) else []


def _failures(tokenizer: tokenizers.Tokenizer, texts: Sequence[str], encoded: Encoded) -> list[int]:
    return [
        i
        for i, (text, ids) in enumerate(zip(texts, _documents(encoded), strict=True))
        if tokenizer.decode(ids.tolist(), skip_special_tokens=False) != text
    ]


def _hostile_failures(tokenizer: tokenizers.Tokenizer, hostile: dict[str, str]) -> tuple[str, ...]:
    names, texts = list(hostile), list(hostile.values())
    failed = _failures(tokenizer, texts, encode_texts(tokenizer, texts))
    return tuple(names[i] for i in failed)


def _holding(encoded: Encoded, special_ids: Sequence[int]) -> list[bool]:
    """Say of each document whether its ids hold a special one."""
    return [bool(np.isin(document, special_ids).any()) for document in _documents(encoded)]


def _made_of_text(
    tokenizer: tokenizers.Tokenizer, special_tokens: Sequence[str], special_ids: Sequence[int]
) -> tuple[str, ...]:
    alone = _holding(encode_texts(tokenizer, special_tokens), special_ids)
    inside = encode_texts(tokenizer, [f"a {token} b{token}" for token in special_tokens])
    held = zip(special_tokens, alone, _holding(inside, special_ids), strict=True)
    return tuple(token for token, *found in held if any(found))


def _fertility(
    texts: Sequence[str], encoded: Encoded, languages: Sequence[str | None]
) -> dict[str, Fertility]:
    totals: dict[str, Fertility] = {}
    lengths = np.diff(encoded.ends, prepend=0).tolist()
    for text, language, tokens in zip(texts, languages, lengths, strict=True):
        one = (1, len(text), len(text.encode()), tokens)
        name = language or "und"
        so_far = totals.get(name, Fertility(0, 0, 0, 0))
        totals[name] = Fertility(*map(sum, zip(so_far, one, strict=True)))
    return dict(sorted(totals.items()))
