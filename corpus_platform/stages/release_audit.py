"""The audit of shuffled_bins: reads every released document again and holds it against the packed ones.

What is held does not grow with the documents, but for those of the smaller split, about 100 bytes
each, and of one packed shard; the table of documents is read some times over instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin, files_of, open_token_bin
from corpus_platform.formats.token_windows import told_windows
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_comparing import (
    Compared,
    Pack,
    compare,
    kind_of,
    listed_in_both,
)
from corpus_platform.stages.release_hashes import entries_of
from corpus_platform.stages.release_in_force import DOCUMENTS, documents_to_match
from corpus_platform.stages.release_lines import ReleaseLines
from corpus_platform.stages.release_order import order_numbers
from corpus_platform.stages.release_sample import undecodable
from corpus_platform.stages.release_vocabulary import Occurrences
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import may_be_left_out
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.byte_lengths import text_ids, text_lengths

__all__ = ["DOCUMENTS", "measure_release", "train_lines"]

BLOCK_TOKENS = 1 << 18  # a count of larger ones takes longer, since they are in no cache


def measure_release(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of a release look at, from its written files."""
    shards = ledger["shards"]
    lines = ReleaseLines(folder / DOCUMENTS, shards)
    bins = {h.stem: open_token_bin(folder, h.stem) for h in sorted(folder.glob("*-[0-9]*.json"))}
    compared = _compare(project, shards, bins, lines)
    unknown = lines.lines - sum(lines.count(bin_file(base)) for base in bins)
    padding = {base: sum(e.padding for e in entries_of(bin_)) for base, bin_ in bins.items()}
    real = {base: len(bin_.tokens) - padding[base] for base, bin_ in bins.items()}
    others = set(project.shards()).difference(shards)
    left_out = {shard for shard in others if not may_be_left_out(project, shard)}
    tokenizer = project.present("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    occurrences = {BIN_NAMES["train"]: Occurrences(text_ids(tokenizer))}
    numbers: dict[str, float] = {
        "documents": lines.documents,
        "documents_differing": compared.differing + unknown,
        "leaked": compared.leaked + listed_in_both(lines),
        "files_differing": _files_differing(folder, bins),
        "tokens_unaccounted": abs(sum(real.values()) - compared.tokens),
        "padding_tokens": sum(padding.values()),
        "eos_count": sum(_eos_count(bins[base], occurrences.get(kind_of(base))) for base in bins),
        "shards_left_out": len(left_out.union(ledger["excluded"])),
        "shards": len(shards),
        "documents_in_force": documents_to_match(project, folder, ledger["excluded"]),
    }
    numbers |= _order(project, lines, _row_tokens(bins))
    numbers["undecodable"] = undecodable(project, bins, lines)
    numbers |= occurrences[BIN_NAMES["train"]].numbers(text_lengths(tokenizer))
    length = project.settings.pack.sequence_length
    numbers |= {"sequence_length": length, **_windows(bins, length)}
    for split, name in BIN_NAMES.items():
        files = [base for base in bins if kind_of(base) == name]
        numbers[f"{split}_tokens"] = sum(real[base] for base in files)
        numbers[f"{split}_documents"] = sum(bins[base].header.documents for base in files)
    return numbers


def _compare(
    project: Project, shards: Sequence[str], bins: Mapping[str, TokenBin], lines: ReleaseLines
) -> Compared:
    packed = [project.present("packed_bins", shard) for shard in shards]
    return compare(bins, lines, [Pack(a.folder, a.path(PACKED_DOCUMENTS)) for a in packed])


def _row_tokens(bins: Mapping[str, TokenBin]) -> int | None:
    return next(iter(bins.values())).header.row_tokens if bins else None


def _order(project: Project, lines: ReleaseLines, row_tokens: int | None) -> dict[str, float]:
    """Return how random the order of the train files is."""
    shuffle = project.settings.shuffle
    return order_numbers(
        partial(train_lines, lines),
        row_tokens=row_tokens,
        chunk_tokens=shuffle.chunk_tokens if shuffle.unit == "chunks" else 0,
    )


def train_lines(lines: ReleaseLines, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield columns of the lines of the train files in their order."""
    for file in lines.files:
        if file.startswith("train-"):
            yield from lines.of(file, columns)


def _windows(bins: Mapping[str, TokenBin], length: int) -> dict[str, float]:
    """Count the train files, their windows or rows, and those of them that have none."""
    train = {b: bin_ for b, bin_ in bins.items() if kind_of(b) == BIN_NAMES["train"]}
    windows = {
        base: bin_.header.rows or told_windows(bin_file(base), len(bin_.tokens), length)
        for base, bin_ in train.items()
    }
    return {
        "train_files": len(train),
        "train_windows": sum(windows.values()),
        "files_without_window": sum(count == 0 for count in windows.values()),
    }


def _eos_count(bin_: TokenBin, occurrences: Occurrences | None) -> int:
    """Count the end tokens of a file, and all others where that is wanted."""
    count, eos = 0, bin_.header.eos_id
    for start in range(0, len(bin_.tokens), BLOCK_TOKENS):
        tokens = bin_.tokens[start : start + BLOCK_TOKENS]
        count += 0 if eos is None else int(np.count_nonzero(tokens == eos))
        if occurrences is not None:
            occurrences.add(tokens)
        bin_.forget()
    return count


def _files_differing(folder: Path, bins: Mapping[str, TokenBin]) -> int:
    """Count files with another hash than the headers beside them say."""
    tokenizer, differing = file_sha256(folder / TOKENIZER_FILE), 0
    for base, bin_ in bins.items():
        for file, said in files_of(base, bin_.header).items():
            differing += file_sha256(folder / file) != said.sha256
        differing += tokenizer != bin_.header.tokenizer_sha256
    return differing
