"""A look at one token file of any format: what it is, what is wrong with it, how documents begin.

All of it is read, in blocks. Against another file, of any format, it says where the two differ
first; where documents end and what counts for the loss is compared as far as both formats know.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from corpus_platform.errors import SettingsError, StorageError
from corpus_platform.formats.row_faults import row_faults
from corpus_platform.formats.token_bin import Header, open_token_bin
from corpus_platform.formats.token_file import TokenFile, faults
from corpus_platform.stages.export_blocks import BLOCK, Span, first_difference
from corpus_platform.stages.token_files import Subject, tokenizer_beside
from corpus_platform.stages.token_headers import header_fields
from corpus_platform.storage.manifest import MANIFEST_NAME, read_manifest
from corpus_platform.tokenization.encoder import HuggingFaceEncoder, load_encoder

__all__ = ["Comparison", "TokenInspection", "compare_tokens", "inspect_tokens", "load_tokenizer"]

BEGINNINGS, BEGINNING_TOKENS, BEGINNING_CHARACTERS = 3, 200, 500  # as of raw shards
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Formats in which no mask means that all tokens count; in the others nothing is known.
MASKED = {"native", "datatrove", "olmo", "hdf5"}
END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")

Progress = Callable[[int, int], None]  # tokens that were read, tokens in all


@dataclasses.dataclass
class TokenInspection:
    """What was seen of a token file; None is what neither file nor tokenizer tells.

    `documents` are those of the index, or else of the end tokens (`documents_by`); in a file of
    rows pieces and padding are `entries` of the index, and `documents` those that begin here.
    """

    path: str
    format: str
    dtype: str
    tokens: int
    documents: int | None = None
    documents_by: str | None = None
    entries: int | None = None
    row_tokens: int | None = None
    padding: int | None = None
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    mean_length: float | None = None
    max_id: int | None = None
    vocab_size: int | None = None
    eos_id: int | None = None
    eos_by: str | None = None
    eos_count: int | None = None
    without_loss: int | None = None
    tokenizer: str | None = None
    header: Mapping[str, object] = dataclasses.field(default_factory=dict)
    faults: list[str] = dataclasses.field(default_factory=list)
    beginnings: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def eos_density(self) -> float | None:
        """End tokens per token."""
        return None if self.eos_count is None or not self.tokens else self.eos_count / self.tokens


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Where two files differ first, in words, None where nowhere; and what was not compared."""

    difference: str | None
    not_compared: list[str]


def load_tokenizer(path: Path) -> HuggingFaceEncoder:
    """Return the tokenizer of a tokenizer.json; raises SettingsError."""
    return load_encoder(path.read_bytes(), eos_token=None, name=str(path))


def inspect_tokens(
    subject: Subject,
    *,
    tokenizer: Path | None = None,
    vocab_size: int | None = None,
    progress: Progress = lambda done, total: None,
) -> TokenInspection:
    """Return what a token file holds; raises StorageError where it cannot be opened.

    `tokenizer` is a tokenizer.json to decode with and to hold it against, without it the one that
    lies beside and that the file names.
    """
    file = subject.open()
    encoder = None if tokenizer is None else load_tokenizer(tokenizer)
    unreadable = list[str]()
    if encoder is None and (beside := subject.tokenizer or tokenizer_beside(file)) is not None:
        try:
            encoder = load_tokenizer(beside)
        except (SettingsError, OSError) as error:
            unreadable.append(str(error))
    limit = vocab_size or (encoder.vocab_size if encoder else None) or subject.vocab_size
    found = TokenInspection(
        str(subject.path),
        file.format,
        file.tokens.dtype.name,
        len(file.tokens),
        row_tokens=file.row_tokens,
        vocab_size=file.vocab_size if limit is None else limit,
        tokenizer=file.tokenizer,
        header=header_fields(file),
    )
    found.eos_id, found.eos_by = _end_token(file, subject, encoder)
    _count(found, file, progress)
    found.faults = unreadable + faults(file, vocab_size=limit)
    if file.format == "native" and file.row_tokens is not None and not found.faults:
        found.faults += row_faults(open_token_bin(file.path.parent, file.path.stem))
    found.faults += _contradictions(found, file, encoder)
    if encoder is not None and not found.faults:
        found.beginnings = list(_beginnings(file, found.eos_id, encoder))
    return found


def _end_token(
    file: TokenFile, subject: Subject, encoder: HuggingFaceEncoder | None
) -> tuple[int | None, str | None]:
    """Return the end token, and who says so: the file, what is beside it, or its documents."""
    if file.eos_id is not None:
        return file.eos_id, "header"
    if subject.eos_id is not None:
        return subject.eos_id, "export.json"
    if encoder is not None:
        for name in END_TOKENS:
            if (number := encoder.tokenizer.token_to_id(name)) is not None:
                return number, "tokenizer"
    return (_common_end(file), "ends of documents") if file.ends is not None else (None, None)


def _common_end(file: TokenFile) -> int | None:
    """Return the token that ends each of the first documents; None where they end in several."""
    assert file.ends is not None
    ends = np.asarray(file.ends[:1000]).astype(np.int64)
    ends = ends[np.diff(ends, prepend=0) > 0]
    last = {int(file.tokens[int(end) - 1]) for end in ends}
    return last.pop() if len(last) == 1 and len(ends) > 1 else None


def _count(found: TokenInspection, file: TokenFile, progress: Progress) -> None:
    """Read all tokens once: the largest id, end tokens, lengths of documents, the mask."""
    gaps, largest, ends = Counter[int](), -1, 0
    before = 0  # where the document that is being read began, by end tokens
    for start, block in _blocks(file):
        largest = max(largest, int(block.max()))
        if found.eos_id is not None:
            places = np.flatnonzero(block == found.eos_id) + start + 1
            ends += len(places)
            if file.ends is None and len(places):
                _add(gaps, np.diff(places, prepend=before))
                before = int(places[-1])
        progress(start + len(block), found.tokens)
    found.max_id = largest if largest >= 0 else None
    found.eos_count = None if found.eos_id is None else ends
    if file.ends is not None:
        _count_documents(found, file)
    elif found.eos_id is not None:
        found.documents, found.documents_by = ends, "end tokens"
        _describe(found, gaps)
    if file.format in MASKED:
        found.without_loss = sum(map(_silent, _mask_blocks(file)))


def _blocks(file: TokenFile) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(file.tokens), BLOCK):
        yield start, np.asarray(file.tokens[start : start + BLOCK])


def _mask_blocks(file: TokenFile) -> Iterator[np.ndarray]:
    loss = file.loss
    for start in range(0, 0 if loss is None else len(loss), BLOCK):
        assert loss is not None
        yield np.asarray(loss[start : start + BLOCK])


def _silent(mask: np.ndarray) -> int:
    return len(mask) - int(np.count_nonzero(mask))


def _count_documents(found: TokenInspection, file: TokenFile) -> None:
    assert file.ends is not None
    lengths, before = Counter[int](), 0
    for start in range(0, len(file.ends), BLOCK):
        ends = np.asarray(file.ends[start : start + BLOCK]).astype(np.int64)
        _add(lengths, np.diff(ends, prepend=before))
        before = int(ends[-1])
    found.documents, found.documents_by = len(file.ends), "index"
    if file.row_tokens is not None:
        found.entries = len(file.ends)
        header = Header.read(file.path) if file.format == "native" else None
        found.documents = None if header is None else header.documents
        found.documents_by = None if header is None else "index"
        found.padding = None if header is None else header.padding
    _describe(found, lengths)


def _add(counts: Counter[int], lengths: np.ndarray) -> None:
    values, times = np.unique(lengths, return_counts=True)
    for value, count in zip(values.tolist(), times.tolist(), strict=True):
        counts[value] += count


def _describe(found: TokenInspection, lengths: Counter[int]) -> None:
    """Note quantiles, each the length of one document, and the mean."""
    count = lengths.total()
    if not count:
        return
    values = np.array(sorted(lengths))
    reached = np.cumsum([lengths[value] for value in values.tolist()])
    places = np.rint(np.array(QUANTILES) * (count - 1)) + 1
    chosen = values[np.searchsorted(reached, places)]
    found.lengths = {f"{q:.0%}": int(v) for q, v in zip(QUANTILES, chosen, strict=True)}
    found.mean_length = float((values * np.diff(reached, prepend=0)).sum() / count)


def _contradictions(
    found: TokenInspection, file: TokenFile, encoder: HuggingFaceEncoder | None
) -> list[str]:
    """Return what does not agree between a file, its header and the tokenizer."""
    told = list[str]()
    names_hash = file.format in ("native", "hdf5")
    if encoder is not None and names_hash and file.tokenizer != encoder.fingerprint:
        told.append(
            f"was written with tokenizer {file.tokenizer}, the one given is {encoder.fingerprint}"
        )
    is_exact = found.eos_by == "header" and file.row_tokens is None
    if is_exact and None not in (found.eos_count, found.documents):
        inside = (found.eos_count or 0) - (found.documents or 0)
        if inside > 0:
            told.append(f"the end token {found.eos_id} stands {inside} times inside documents")
    return told


def _beginnings(
    file: TokenFile, eos_id: int | None, encoder: HuggingFaceEncoder
) -> Iterator[tuple[int, str]]:
    """Yield the first tokens of the first documents as text."""
    for number, (start, stop) in enumerate(_first_documents(file, eos_id)):
        ids = np.asarray(file.tokens[start : min(stop, start + BEGINNING_TOKENS)])
        yield number, encoder.decode(ids)[:BEGINNING_CHARACTERS]


def _first_documents(file: TokenFile, eos_id: int | None) -> list[tuple[int, int]]:
    if file.ends is not None:
        ends = np.asarray(file.ends[:BEGINNINGS]).astype(np.int64).tolist()
    else:
        first = np.asarray(file.tokens[:BLOCK])
        found = np.flatnonzero(first == eos_id)[:BEGINNINGS] + 1 if eos_id is not None else []
        ends = [int(end) for end in found] or [len(first)]
    return list(zip([0, *ends], ends, strict=False))


def compare_tokens(one: Subject, other: Subject) -> Comparison:
    """Say where two token files differ first; here is the first of them, there the other."""
    file, against = one.open(), other.open()
    not_compared = []
    if without := [f.format for f in (file, against) if f.ends is None]:
        not_compared.append(f"documents: {without[0]} has no index")
    if unknown := [f.format for f in (file, against) if f.format not in MASKED]:
        not_compared.append(f"masks: {unknown[0]} has no place for one")
    if "olmo" in (file.format, against.format):
        file, against = _without_empty(file), _without_empty(against)
        not_compared.append("empty documents: olmo lists none")
    if (length := file.row_tokens or against.row_tokens) is not None and not without:
        of_rows = [f.format for f in (file, against) if _has_rows_alone(f, length)]
        if len(of_rows) == 1:
            file, against = _by_rows(file, length), _by_rows(against, length)
            not_compared.append(
                f"pieces: {of_rows[0]} has each row of {length} tokens for a document"
            )
    difference = first_difference(
        file,
        [Span.whole(against)],
        documents=against.ends is not None,
        masks=not unknown,
    )
    if difference is not None and (why := _other_order(file, against)) is not None:
        difference = f"{difference}; {why}"
    return Comparison(difference, not_compared)


def _has_rows_alone(file: TokenFile, length: int) -> bool:
    """Tell whether the documents of a file are its rows, so that nothing says where pieces end."""
    assert file.ends is not None
    rows = np.arange(1, len(file.tokens) // length + 1, dtype=np.int64) * length
    return np.array_equal(np.asarray(file.ends).astype(np.int64), rows)


def _by_rows(file: TokenFile, length: int) -> TokenFile:
    """Return a file of which only those ends are left that are ends of rows."""
    assert file.ends is not None
    ends = np.asarray(file.ends).astype(np.int64)
    return dataclasses.replace(file, ends=np.unique(ends[ends % length == 0]))


def _other_order(one: TokenFile, other: TokenFile) -> str | None:
    """Say why an HDF5 file differs from one that is not of the same source shard's pack."""
    if (one.format == "hdf5") == (other.format == "hdf5"):
        return None
    beside = other if one.format == "hdf5" else one
    try:
        made_by = read_manifest(beside.path.parent / MANIFEST_NAME).asset
    except (StorageError, OSError):
        made_by = ""
    if made_by == "packed_bins":
        return None
    return (
        "an .h5 file holds one source shard in its own order, and releases and other exports are"
        " shuffled: compare it with the train.json or val.json of the shard's packed_bins"
    )


def _without_empty(file: TokenFile) -> TokenFile:
    if file.ends is None:
        return file
    ends = np.asarray(file.ends).astype(np.int64)
    return dataclasses.replace(file, ends=ends[np.diff(ends, prepend=0) > 0])
