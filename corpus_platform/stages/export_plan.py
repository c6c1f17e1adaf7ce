"""The work of an export in parts; a release -> its files, each with the documents that go into it.

Files of a release stay files, or are joined into one a split; only llm.c's, whose count of tokens
is limited, are cut, between documents.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.export_blocks import BLOCK, Span
from corpus_platform.stages.export_formats import StreamFormat
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.pinned_release import PinnedRelease

__all__ = ["Part", "PlannedFile", "Told", "plan_files", "span_of"]


Told = Callable[[int], None]  # units that were done


@dataclass(frozen=True)
class Part:
    """Files that are written, read again and published together.

    `names` are their paths in the export, the one with the tokens first; `write` puts them below a
    folder, `differs` says in words in what those there are not the release. `units` are what both
    tell of.
    """

    names: tuple[str, ...]
    units: int
    write: Callable[[Path, Told], list[ExportedFile]]
    differs: Callable[[Path, Told], str | None]


@dataclass(frozen=True)
class PlannedFile:
    """One file to be written: its path in the export, and what goes into it."""

    path: str
    split: str
    spans: tuple[Span, ...]

    @property
    def tokens(self) -> int:
        """The tokens of it."""
        return sum(span.count for span in self.spans)


def plan_files(release: PinnedRelease, kind: StreamFormat, *, single: bool) -> list[PlannedFile]:
    """Return all files of an export in order; a split without documents has none.

    Raises UsageError for a vocabulary or a document that the format cannot hold.
    """
    planned, largest = list[PlannedFile](), kind.kind.max_vocab_size
    if release.policy.vocab_size > largest:
        raise UsageError(
            f"{kind.name} holds ids of a vocabulary of up to {largest:,}, this one has"
            f" {release.policy.vocab_size:,}; export to a format of wider ids"
        )
    for split, base in BIN_NAMES.items():
        spans = [
            span_of(name, bin_, pieces=kind.holds_pieces) for name, bin_ in release.bins(split)
        ]
        spans = [span for span in spans if span.documents]
        _check_lengths(release, kind, spans)
        files = [spans] if single and spans else [[span] for span in spans]
        files = [part for file in files for part in _cut(kind, file)]
        for number, file in enumerate(files):
            plain = len(files) == 1 and (single or kind.plain_alone)
            path = kind.path(base, number, plain)
            planned.append(PlannedFile(path, split, tuple(file)))
    return planned


def span_of(name: str, bin_: TokenBin, *, pieces: bool) -> Span:
    """Return all of a token bin; of rows the pieces are its documents, or the rows are."""
    ends, length = bin_.ends, bin_.header.row_tokens
    if length is not None and not pieces:
        ends = np.arange(1, bin_.header.rows + 1, dtype=np.int64) * length
    return Span(name, bin_.tokens, ends, bin_.loss, 0, len(ends))


def _check_lengths(release: PinnedRelease, kind: StreamFormat, spans: Sequence[Span]) -> None:
    limits = [n for n in (kind.kind.max_document_tokens, kind.kind.max_tokens) if n is not None]
    for span in spans if limits else ():
        assert span.ends is not None
        before = 0
        for begin in range(0, span.end, BLOCK):
            ends = span.ends[begin : begin + BLOCK].astype(np.int64)
            lengths = np.diff(ends, prepend=before)
            if int(lengths.max()) > min(limits):
                at = begin + int(lengths.argmax())
                raise UsageError(
                    f"{release.document_name(span.name, at)} has {lengths.max():,} tokens;"
                    f" {kind.name} holds {min(limits):,} a document: export to another format, or"
                    " cut it with pack.max_document_tokens"
                )
            before = int(ends[-1])


def _cut(kind: StreamFormat, spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield the spans of each file, none of which passes the limit of the format."""
    limit = kind.kind.max_tokens
    file, room = list[Span](), limit or 0
    for span in spans:
        left = span
        while limit is not None and left.count > room:
            fitting = _fitting(left, room)
            if fitting.documents:
                file.append(fitting)
            yield file
            file, room = [], limit
            left = replace(left, begin=fitting.end)
        file.append(left)
        room -= left.count
    yield file


def _fitting(span: Span, room: int) -> Span:
    """Return the first documents of a span that have at most so many tokens together."""
    assert span.ends is not None
    ends = span.ends[span.begin : span.end]
    limit = np.array(span.first + room, ends.dtype)
    return replace(span, end=span.begin + int(np.searchsorted(ends, limit, side="right")))
