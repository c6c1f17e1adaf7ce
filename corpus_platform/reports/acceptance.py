"""The acceptance list of a release: nine questions to answer before a model is trained on it.

Figures in, a line for each question out: what was found, whether that is as it should be, and where
it comes from. Most are held by gates too, which block; what stands here is for a person, and says
warn where it may be meant so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Checked", "Compression", "Decoded", "Figures", "acceptance"]

# An estimate from some hundred texts is good to a few per cent; the source adds as much headroom [S1].
ESTIMATE_NEAR, ESTIMATE_FAR = 0.05, 0.5
STRANGE_SHARE = 0.05  # of the characters of a text that reads well, those that nobody can read
EOS_NEAR, EOS_FAR = 0.1, 0.5
HIGH_DROP, ABSURD_DROP = 0.3, 0.5  # a rule that drops most of the documents is wrong [S1]
FEW_DOCUMENTS = 100
LEAST_CHARS = 0.5  # of a token: below, a character takes several [S1]
SMALL_BYTES = 1_000_000_000  # a corpus of this size is run through in minutes [S1]
WANTED_LANGUAGES = ("zh", "en")
Status = Literal["pass", "warn", "fail"]


class Decoded(NamedTuple):
    """What some tokens decode to; `strange`: the share of characters that nobody can read."""

    file: str
    position: int
    text: str
    strange: float


class Compression(NamedTuple):
    """Text of one language: documents, tokens, characters, bytes."""

    documents: int
    tokens: int
    chars: int
    bytes: int


@dataclass(frozen=True)
class Figures:
    """What the list looks at. Tokens do not count padding.

    `estimated_tokens` are those that the kept text should make, `tokens` those of both splits and
    `cut` those that a limit took away; `sample_…` are of the first tokens of train.
    """

    tokens: int
    cut: int
    estimated_tokens: float
    token_bytes: int
    validation_wanted: bool
    train_documents: int
    train_tokens: int
    validation_documents: int
    decoded: Sequence[Decoded]
    round_trip_texts: int
    round_trip_failures: int
    ends: bool  # documents end in an end token
    sample_tokens: int
    sample_eos: int
    cleaned_from: int
    dropped: Mapping[str, int]
    before_documents: int
    before_bytes: int
    after_documents: int
    after_bytes: int
    compression: Mapping[str, Compression]
    in_both: int


class Checked(NamedTuple):
    """One line of the list."""

    question: str
    status: Status
    figure: str
    source: str


def acceptance(figures: Figures) -> list[Checked]:
    """Return the list, in the order of the source document."""
    return [check(figures) for check in _CHECKS]


def _size(f: Figures) -> Checked:
    made, wanted = f.tokens + f.cut, f.estimated_tokens
    off = abs(made / wanted - 1.0) if wanted else float(made > 0)
    cut = f" and {f.cut:,} cut off" if f.cut else ""
    figure = (
        f"{f.tokens:,} tokens of {f.token_bytes} bytes{cut}; {wanted:,.0f} were estimated"
        f" ({'+' if made >= wanted else '-'}{off:.1%})"
    )
    status = _graded(off, ESTIMATE_NEAR, ESTIMATE_FAR)
    if not f.train_documents:
        status, figure = "fail", f"no train document; {figure}"
    elif f.validation_wanted and not f.validation_documents:
        status, figure = "warn" if status == "pass" else status, f"no validation document; {figure}"
    source = "bytes of the kept texts by the tokenizer's bytes per token; the token files"
    return Checked("train and validation are there, of the size that was estimated", status, figure, source)  # fmt: skip


def _decodes(f: Figures) -> Checked:
    strange = sum(d.strange > STRANGE_SHARE for d in f.decoded)
    figure = f"{len(f.decoded) - strange} of {len(f.decoded)} read well"
    worst: Status = "fail" if 2 * strange > len(f.decoded) or not f.decoded else "warn"
    status: Status = worst if strange or not f.decoded else "pass"
    source = (
        "tokens at random positions, below; the gate `decodes` holds documents against their texts"
    )
    return Checked("text at ten random positions is readable", status, figure, source)


def _round_trip(f: Figures) -> Checked:
    figure = f"{f.round_trip_failures:,} of {f.round_trip_texts:,} texts change"
    status: Status = "pass" if not f.round_trip_failures and f.round_trip_texts else "fail"
    source = "report.json of the tokenizer: documents, and hostile strings with Chinese and emoji"
    return Checked("encoding and decoding loses nothing", status, figure, source)


def _eos(f: Figures) -> Checked:
    question = "end tokens are as dense as documents are long"
    source = f"the first {f.sample_tokens:,} tokens of train"
    if not f.ends:
        return Checked(question, "warn", "documents have no end token (pack.eos_token)", source)
    if not f.sample_tokens or not f.train_documents:
        return Checked(question, "fail", "there are no tokens", source)
    mean = f.train_tokens / f.train_documents
    density = f.sample_eos / f.sample_tokens
    off = abs(density * mean - 1.0)
    figure = f"{f.sample_eos:,} end tokens: one in {1 / density if density else 0:,.1f}; a document has {mean:,.1f} on average"  # fmt: skip
    return Checked(question, _graded(off, EOS_NEAR, EOS_FAR), figure, source)


def _rules(f: Figures) -> Checked:
    shares = {rule: n / f.cleaned_from for rule, n in f.dropped.items() if f.cleaned_from}
    worst = max(shares, key=lambda rule: (shares[rule], rule), default=None)
    status: Status = "pass" if f.dropped else "warn"
    figure = "no rule is in force"
    if worst is not None:
        figure = f"the most, {shares[worst]:.1%} of {f.cleaned_from:,} documents, by {worst}"
        status = _graded(shares[worst], HIGH_DROP, ABSURD_DROP)
        if status == "fail" and f.cleaned_from < FEW_DOCUMENTS:
            status = "warn"
    elif f.dropped:
        figure = "there was no document"
    return Checked("what each rule drops is recorded, and none drops absurdly much", status, figure, "manifests of cleaned_documents; the table below")  # fmt: skip


def _dedup(f: Figures) -> Checked:
    figure = (
        f"{f.before_documents:,} documents of {f.before_bytes:,} bytes before,"
        f" {f.after_documents:,} of {f.after_bytes:,} after"
    )
    status: Status = "pass" if f.after_documents else "fail"
    source = "cleaned_documents and dedup_verdicts; the table below"
    return Checked(
        "documents and bytes before and after dedup are recorded", status, figure, source
    )


def _compression(f: Figures) -> Checked:
    parts, poor, missing = [], [], []
    for language in WANTED_LANGUAGES:
        found = f.compression.get(language)
        if found is None or not found.tokens:
            missing.append(language)
            continue
        chars, size = found.chars / found.tokens, found.bytes / found.tokens
        parts.append(f"{language} {chars:.2f} characters and {size:.2f} bytes a token")
        poor += [language] if chars < LEAST_CHARS else []
    parts += [f"{language} has no documents in the sample" for language in missing]
    parts += [f"in {language} a character takes several tokens" for language in poor]
    status: Status = "warn" if poor or missing else "pass"
    return Checked("compression is measured for Chinese and English", status, "; ".join(parts), f"the first {f.sample_tokens:,} tokens of train; the table below")  # fmt: skip


def _apart(f: Figures) -> Checked:
    figure = f"{f.in_both:,} of {f.validation_documents:,} validation documents are listed in train"
    status: Status = "pass" if not f.in_both else "fail"
    source = "documents.parquet; the gate `validation` compares tokens, `leaks` finds near-copies"
    return Checked("no validation document is in train", status, figure, source)


def _small(f: Figures) -> Checked:
    question = "a small corpus went the same way before"
    if f.after_bytes <= SMALL_BYTES:
        figure = f"this one is small itself: {f.after_bytes:,} bytes of text"
        return Checked(question, "pass", figure, "bytes of the kept texts")
    figure = "nothing here tells of it; `corpus sample` and `corpus run` take minutes"
    return Checked(question, "warn", figure, "")


def _graded(value: float, near: float, far: float) -> Status:
    return "pass" if value <= near else "warn" if value <= far else "fail"


_CHECKS: tuple[Callable[[Figures], Checked], ...] = (
    _size,
    _decodes,
    _round_trip,
    _eos,
    _rules,
    _dedup,
    _compression,
    _apart,
    _small,
)
