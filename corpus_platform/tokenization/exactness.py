"""Whether an engine makes the very ids of the reference: every code point, hostile texts, documents.

A sweep takes the reference about 10 seconds, the engine under one. What is done with its result is
decided in `stages.encoding`.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from corpus_platform.errors import EngineFailed
from corpus_platform.tokenization.acceptance import HOSTILE
from corpus_platform.tokenization.encoder import Encoded, Encoder, HuggingFaceEncoder

__all__ = ["VERSION", "Difference", "differing", "first_difference", "sweep"]

VERSION = 1  # of the probes: a result of other ones says nothing

# Both sides of a letter, a digit, a mark, a blank and itself: wherever a word may begin or end.
CONTEXTS = "a{0} 1{0}!{0}{0} {0}b"
# Planes 4 to 13 hold no character yet, 15 and 16 none but private ones: one place must do.
FEW_CONTEXTS = "a{0} "
PLANES = ((range(0x40000), CONTEXTS), (range(0xE0000, 0xF0000), CONTEXTS))
REST = ((range(0x40000, 0xE0000), FEW_CONTEXTS), (range(0xF0000, 0x110000), FEW_CONTEXTS))
CODE_POINTS = (*PLANES, *REST)
TOGETHER = 64  # code points of a text: one a text takes the reference four times as long
BATCH = 64  # texts of a call
LONG = 100_000  # characters
SEED = 1

Probes = tuple[str, Sequence[str]]  # what they are, and texts


class Difference(NamedTuple):
    """A text on which two engines differ, and the ids that either makes of it.

    `found` is None where the engine gave up; `where` says why.
    """

    where: str
    text: str
    wanted: np.ndarray
    found: np.ndarray | None

    def __str__(self) -> str:
        """Say in words what differs, the texts and ids no longer than a line."""
        found = "none" if self.found is None else _shown(self.found)
        text, wanted = ascii(self.text[:60]), _shown(self.wanted)
        more = f" and {len(self.text) - 60} more characters" if len(self.text) > 60 else ""
        return f"{self.where}: {text}{more} is {wanted} to the reference, {found} to the engine"


def sweep(
    reference: HuggingFaceEncoder,
    engine: Encoder,
    *,
    documents: Sequence[str],
    progress: Callable[[int, int], None],
) -> Difference | None:
    """Return the first difference over all probes and some documents, None where there is none.

    `progress` hears of the texts that were compared, and of all.
    """
    added = [token.content for token in reference.tokenizer.get_added_tokens_decoder().values()]
    probes = [*_edges(), *_spelled(added), ("a document", documents), *_code_points()]
    total, done = sum(len(texts) for _, texts in probes), 0
    for where, texts in probes:
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            found = first_difference(reference, engine, part, where=where)
            if found is not None:
                return _narrowed(reference, engine, found)
            done += len(part)
            progress(done, total)
    return None


def first_difference(
    reference: HuggingFaceEncoder, engine: Encoder, texts: Sequence[str], *, where: str
) -> Difference | None:
    """Return the first of some texts on which two engines differ, None where there is none."""
    wanted = reference.encode(texts)
    try:
        found = engine.encode(texts)
    except EngineFailed as error:
        return Difference(f"{where}: {error}", texts[0], _ids(wanted, 0), None)
    for i in differing(wanted, found):
        return Difference(where, texts[i], _ids(wanted, i), _ids(found, i))
    return None


def differing(wanted: Encoded, found: Encoded) -> list[int]:
    """Return the numbers of the documents whose ids are not the same in two encodings."""
    if np.array_equal(wanted.flat, found.flat) and np.array_equal(wanted.ends, found.ends):
        return []
    count = len(wanted.ends)
    return [i for i in range(count) if not np.array_equal(_ids(wanted, i), _ids(found, i))]


def _ids(encoded: Encoded, i: int) -> np.ndarray:
    return encoded.flat[encoded.ends[i - 1] if i else 0 : encoded.ends[i]]


def _narrowed(reference: HuggingFaceEncoder, engine: Encoder, found: Difference) -> Difference:
    """Return the difference on a single code point of a text of many, if it is one."""
    if not found.where.startswith("code points"):
        return found
    for code in sorted(map(ord, set(found.text) - set(CONTEXTS))):
        where = f"code point U+{code:04X}"
        texts = [context.format(chr(code)) for context in (CONTEXTS, FEW_CONTEXTS)]
        if (one := first_difference(reference, engine, texts, where=where)) is not None:
            return one
    return found


def _edges() -> Iterator[Probes]:
    for name, text in HOSTILE.items():
        yield name, [text]
    for unit in ("a", " ", "\n", "\r\n", "\t", "7", "中", "-", "é", "\u0301", "👩‍👩‍👧 ", "\x00"):
        yield f"a run of {unit!a}", [unit * n for n in (2, 3, 7, 64, LONG // len(unit))]
    dice = random.Random(SEED)
    yield "random letters", ["".join(dice.choices("abcdefghij", k=LONG // 10))]
    drawn = [dice.randbytes(LONG // 10) for _ in range(4)]
    yield "random bytes", [part.decode("utf-8", "replace") for part in drawn]
    yield "random characters", [_random_text(dice, LONG // 10) for _ in range(4)]
    mixed = "aZ09 \n\t'.,-_é中🙂\u0301\u200d\u00a0"
    yield "random mixtures", ["".join(dice.choices(mixed, k=40)) for _ in range(1000)]


def _random_text(dice: random.Random, chars: int) -> str:
    codes = [dice.randrange(0x110000 - 0x800) for _ in range(chars)]
    return "".join(chr(code if code < 0xD800 else code + 0x800) for code in codes)


def _spelled(added: Sequence[str]) -> Iterator[Probes]:
    for token in added:
        cut = [token[:-1], token[1:], token.upper(), token + token, f"{token[:2]}{token}"]
        around = [token, f"a{token}b", f"a {token} b", f"\n{token}\n", token * 100, *cut]
        yield f"the spelling of {token}", around


def _code_points() -> Iterator[Probes]:
    for codes, context in CODE_POINTS:
        texts = []
        for start in range(codes.start, codes.stop, TOGETHER):
            chosen = [
                c for c in codes[start - codes.start :][:TOGETHER] if not 0xD800 <= c < 0xE000
            ]
            texts.append("".join(context.format(chr(c)) for c in chosen))
        yield f"code points {codes.start:04X} to {codes.stop - 1:04X}", texts


def _shown(ids: np.ndarray) -> str:
    numbers = ids.tolist()
    return str(numbers[:12])[:-1] + (f", … {len(numbers)} in all]" if len(numbers) > 12 else "]")
