"""Files of a stream format: written from a release's bins, and read again by the format's reader.

Documents come with the control tokens that they have in the release; a mask where the format has a
place for one and any token of the release does not count.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from corpus_platform.formats.datatrove import write_total
from corpus_platform.formats.export_writer import ExportWriter, WrittenFile
from corpus_platform.formats.olmo import OlmoWriter
from corpus_platform.formats.token_file import open_tokens
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.export_blocks import Block, Span, blocks, first_difference
from corpus_platform.stages.export_formats import TOKENIZER_NAME, StreamFormat
from corpus_platform.stages.export_plan import Part, PlannedFile, Told, plan_files
from corpus_platform.stages.export_sources import DocumentTable, FileSources
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.pinned_release import PinnedRelease

__all__ = ["stream_parts"]


def stream_parts(release: PinnedRelease, kind: StreamFormat, *, single: bool) -> list[Part]:
    """Return the parts of an export of a release; `single` joins a split into one file."""
    mask = kind.holds_mask and any(h.loss is not None for h in release.headers.values())
    files = plan_files(release, kind, single=single)
    table = DocumentTable(release.documents)
    parts = [
        Part(
            kind.files(planned.path, mask),
            planned.tokens,
            partial(_write, release, table, kind, planned, mask),
            partial(_differs, release, kind, planned),
        )
        for planned in files
    ]
    if kind.name == "datatrove":
        parts += [_total(release, split, files) for split in {f.split: None for f in files}]
    return parts


def _total(release: PinnedRelease, split: str, files: Sequence[PlannedFile]) -> Part:
    """Return the metadata of all files of a split, which datatrove's merger puts beside them."""
    base, vocab_size = BIN_NAMES[split], release.policy.vocab_size
    tokens = sum(planned.tokens for planned in files if planned.split == split)
    name = f"{base}/{base}.ds.metadata"

    def write(folder: Path, told: Told) -> list[ExportedFile]:
        (folder / base).mkdir(parents=True, exist_ok=True)
        path = write_total(
            folder / base, base, tokenizer=TOKENIZER_NAME, vocab_size=vocab_size, tokens=tokens
        )
        return [ExportedFile.of(path, name, split=split)]

    return Part((name,), 0, write, lambda folder, told: None)


def _write(
    release: PinnedRelease,
    table: DocumentTable,
    kind: StreamFormat,
    planned: PlannedFile,
    mask: bool,
    folder: Path,
    told: Told,
) -> list[ExportedFile]:
    """Write a planned file below a folder; return it and those beside it, named from there."""
    path = folder / planned.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with kind.writer(path, release, mask) as writer:
        for span in planned.spans:
            holds = isinstance(writer, OlmoWriter) and release.row_tokens is None
            sources = FileSources(table, span.name, bin_file(span.name)) if holds else None
            _write_span(writer, span, sources, with_mask=mask, told=told)
    parent = Path(planned.path).parent
    return [_exported(parent, planned.split, file) for file in writer.written]


def _exported(parent: Path, split: str, file: WrittenFile) -> ExportedFile:
    name = (parent / file.name).as_posix()
    return ExportedFile(name, file.bytes, file.sha256, split, file.tokens, file.documents)


def _write_span(
    writer: ExportWriter, span: Span, sources: FileSources | None, *, with_mask: bool, told: Told
) -> None:
    for block in blocks(span):
        loss = _mask(block) if with_mask else None
        if isinstance(writer, OlmoWriter) and sources is not None:
            columns = sources.take(np.diff(block.ends, prepend=0))
            writer.append(block.tokens, block.ends, loss, **columns._asdict())
        else:
            writer.append(block.tokens, block.ends, loss)
        told(len(block.tokens))


def _mask(block: Block) -> np.ndarray:
    return np.ones(len(block.tokens), np.uint8) if block.loss is None else block.loss


def _differs(
    release: PinnedRelease, kind: StreamFormat, planned: PlannedFile, folder: Path, told: Told
) -> str | None:
    """Say in words in what a written file differs from the release; None: in nothing."""
    opened = open_tokens(_named(folder / planned.path), dtype=kind.dtype(release.policy.vocab_size))
    return first_difference(
        opened,
        planned.spans,
        documents=kind.has_index,
        empty=kind.holds_empty,
        masks=kind.holds_mask,
        told=told,
    )


def _named(path: Path) -> Path:
    """Return a path as the readers take it: a Megatron dataset by its prefix's index."""
    return path if path.suffix in (".bin", ".ds", ".npy") else Path(f"{path}.idx")
