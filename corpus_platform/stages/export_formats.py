"""The formats that a release can be exported to: names of files, writers, and what each cannot hold.

What a format has no place for is either said (`lost`) or, where training would go another way for
it, refused until it is accepted by name. Ids are never made narrower: a vocabulary that does not
fit is refused for good.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from corpus_platform.errors import UsageError
from corpus_platform.formats.datatrove import DatatroveWriter, datatrove_dtype, datatrove_name
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.llmc import LlmcWriter, llmc_dtype
from corpus_platform.formats.megatron import MegatronWriter, megatron_dtype
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.olmo import OlmoWriter, olmo_dtype
from corpus_platform.formats.token_bin import id_dtype
from corpus_platform.stages.pinned_release import PinnedRelease

__all__ = [
    "ACCEPTABLE",
    "FORMATS",
    "STREAMS",
    "TOKENIZER_NAME",
    "FormatName",
    "Lost",
    "StreamFormat",
    "check_accepted",
    "dtype_of",
    "entry_word",
    "losses",
    "notes",
]

FormatName = Literal["megatron", "datatrove", "nanogpt", "llmc", "olmo", "hdf5", "parquet"]
FORMATS: tuple[FormatName, ...] = (
    "megatron",
    "datatrove",
    "nanogpt",
    "llmc",
    "olmo",
    "hdf5",
    "parquet",
)
ACCEPTABLE = ("loss-mask", "padding", "boundaries", "rows")  # losses that change training
TOKENIZER_NAME = "tokenizer.json"
_MASKS = {"datatrove", "olmo", "hdf5"}  # formats with a place for a loss mask
_PIECES = {"datatrove", "olmo", "hdf5"}  # those whose index takes the pieces of rows


class Lost(NamedTuple):
    """Something of a release that a format has no place for; `accepted` None where none is needed."""

    kind: str
    what: str
    accepted: bool | None = None


@dataclass(frozen=True)
class StreamFormat:
    """A format of files that hold documents of all shards in the order of a release.

    `path` names the file with the tokens by base name of its split, number, and whether it goes
    without one; `files` all that are written for that, with a mask or without. `plain_alone`: the
    only file of a split has no number even where files were not to be joined.
    """

    name: FormatName
    dtype: Callable[[int], np.dtype]
    writer: Callable[[Path, PinnedRelease, bool], ExportWriter]
    kind: type[ExportWriter]
    path: Callable[[str, int, bool], str]
    files: Callable[[str, bool], tuple[str, ...]]
    has_index: bool = False
    plain_alone: bool = False
    holds_empty: bool = True  # where it has an index

    @property
    def holds_mask(self) -> bool:
        """Whether there is a place for a loss mask."""
        return self.name in _MASKS

    @property
    def holds_pieces(self) -> bool:
        """Whether a file of rows says where the pieces in them end."""
        return self.name in _PIECES


def _plain(base: str, number: int, plain: bool) -> str:
    return base if plain else f"{base}-{number:05d}"


def _of_datatrove(path: str, mask: bool) -> tuple[str, ...]:
    return (path, f"{path}.index", *([f"{path}.loss"] if mask else []), f"{path}.metadata")


def _of_olmo(path: str, mask: bool) -> tuple[str, ...]:
    stem = path.removesuffix(".npy")
    return (path, f"{stem}.csv.gz", *([f"{stem}.label_mask"] if mask else []))


STREAMS: Mapping[str, StreamFormat] = {
    one.name: one
    for one in (
        StreamFormat(
            "megatron",
            megatron_dtype,
            lambda path, release, _: MegatronWriter(path, vocab_size=release.policy.vocab_size),
            MegatronWriter,
            _plain,
            lambda path, _: (f"{path}.bin", f"{path}.idx"),
            has_index=True,
        ),
        StreamFormat(
            "datatrove",
            datatrove_dtype,
            lambda path, release, loss: DatatroveWriter(
                path,
                vocab_size=release.policy.vocab_size,
                tokenizer=TOKENIZER_NAME,
                loss=loss,
            ),
            DatatroveWriter,
            lambda base, number, _: f"{base}/{datatrove_name(number, base)}",
            _of_datatrove,
            has_index=True,
        ),
        StreamFormat(
            "nanogpt",
            lambda _: np.dtype("<u2"),
            lambda path, release, _: NanogptWriter(path, vocab_size=release.policy.vocab_size),
            NanogptWriter,
            lambda base, number, plain: f"{_plain(base, number, plain)}.bin",
            lambda path, _: (path,),
            plain_alone=True,
        ),
        StreamFormat(
            "llmc",
            llmc_dtype,
            lambda path, release, _: LlmcWriter(path, vocab_size=release.policy.vocab_size),
            LlmcWriter,
            lambda base, number, _: f"corpus_{base}_{number:06d}.bin",
            lambda path, _: (path,),
        ),
        StreamFormat(
            "olmo",
            olmo_dtype,
            lambda path, release, loss: OlmoWriter(
                path, vocab_size=release.policy.vocab_size, loss=loss
            ),
            OlmoWriter,
            lambda base, number, _: f"{base}/{base}-{number:05d}.npy",
            _of_olmo,
            has_index=True,
            holds_empty=False,
        ),
    )
}


def dtype_of(name: FormatName, vocab_size: int) -> np.dtype | None:
    """Return the type of ids in a format; None where it holds no ids."""
    if name == "parquet":
        return None
    return id_dtype(vocab_size) if name == "hdf5" else STREAMS[name].dtype(vocab_size)


def entry_word(name: str, row_tokens: int | None) -> str:
    """Return what the documents of a format are, in files of rows of so many tokens or without."""
    if row_tokens is None or name == "parquet":
        return "documents"
    return "pieces" if name in _PIECES else "rows"


def losses(name: FormatName, release: PinnedRelease, accepted: Sequence[str]) -> list[Lost]:
    """Return all of a release that a format cannot hold."""
    found = list(_changing(name, release)) if name != "parquet" else []
    return [
        *(Lost(kind, what, kind in accepted) for kind, what in found),
        *(Lost(kind, what) for kind, what in _said(name, release)),
    ]


def _changing(name: FormatName, release: PinnedRelease) -> list[tuple[str, str]]:
    """Return what is lost and changes training."""
    found, rows, policy = list[tuple[str, str]](), release.row_tokens, release.policy
    if name not in _MASKS and release.has_mask:
        found.append(("loss-mask", "tokens that are not to count for the loss count like others"))
    if name not in _MASKS and rows and release.padding:
        pad = f"pad id {policy.pad_id}"
        found.append(
            ("padding", f"{release.padding:,} tokens of padding ({pad}) count like others")
        )
    knows = name in _PIECES or (name == "megatron" and not rows)
    if not knows and policy.eos_id is None and policy.bos_id is None:
        found.append(("boundaries", "nothing says where documents end: no index, no end token"))
    if name == "nanogpt" and rows:
        found.append(
            ("rows", f"nanoGPT reads from random places on, so rows of {rows} tokens are cut")
        )
    return found


def _said(name: FormatName, release: PinnedRelease) -> list[tuple[str, str]]:
    """Return what is lost and is only said."""
    found, rows = list[tuple[str, str]](), release.row_tokens
    if name in ("hdf5", "parquet"):
        found.append(("order", "the shuffled order: documents stand by source shard, in its order"))
    if name == "parquet":
        return found
    stream = STREAMS.get(name)
    drops_empty = stream is not None and not (stream.has_index and stream.holds_empty)
    if drops_empty and (count := release.empty_documents):
        found.append(("empty-documents", f"{count:,} documents without a token"))
    if rows and name not in _PIECES:
        found.append(("pieces", "where pieces end within a row, but for their end tokens"))
    if rows:
        found.append(("continuations", "which pieces go on with a document of another row"))
    if name != "olmo" or rows:
        found.append(("provenance", "shard, record and id of each document"))
    if name != "hdf5":
        found.append(("header", "vocabulary, control tokens and fingerprint: in export.json alone"))
    return found


def check_accepted(name: FormatName, lost: Sequence[Lost]) -> None:
    """Raise UsageError, with all that would be lost, unless what changes training is accepted."""
    refused = [loss for loss in lost if loss.accepted is False]
    if refused:
        told = "; ".join(f"{loss.kind}: {loss.what}" for loss in refused)
        options = " ".join(f"--accept-loss {loss.kind}" for loss in refused)
        raise UsageError(
            f"{name} cannot hold what training would go by: {told}. Take a format that can"
            f" (datatrove, olmo, hdf5), or accept it: {options}"
        )


def notes(name: FormatName, release: PinnedRelease) -> list[str]:
    """Return what a user of the files has to know."""
    vocab, rows, found = release.policy.vocab_size, release.row_tokens, list[str]()
    if name == "megatron" and id_dtype(vocab) != megatron_dtype(vocab):
        found.append(
            f"ids are int32: Megatron takes uint16 below 65,500 ids only, this vocabulary has {vocab:,}"
        )
    if name == "llmc" and llmc_dtype(vocab).itemsize == 4:
        found.append("ids are uint32, which llm.c's C loader does not read; its Python side does")
    if rows and name in _READING:
        found.append(_READING[name].format(rows=rows, before=rows - 1))
    if name == "parquet":
        found.append("texts are whole: what pack.max_document_tokens cuts is in them")
    if release.excluded:
        found.append(f"the release leaves out {len(release.excluded)} shards: {_few(release)}")
    return found


# How rows stay whole; each format's own reader decides where a sample begins.
_READING = {
    "megatron": "each row is a sequence: train with --seq-length {rows}, so that samples are rows",
    "datatrove": "samples are of seq_len + 1 tokens: read with seq_len {before}, so that they are rows",
    "llmc": "samples follow one another: train with T = {rows}, so that they are rows",
    "olmo": "samples follow one another: train with sequence_length {rows}, so that they are rows",
    "hdf5": "read windows of {rows} tokens, so that they are rows",
}


def _few(release: PinnedRelease) -> str:
    named = ", ".join(release.excluded[:3])
    return named + (f" and {len(release.excluded) - 3:,} more" if len(release.excluded) > 3 else "")
