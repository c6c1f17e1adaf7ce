"""The audit of shuffled_bins: reads every released document again and holds it against the packed ones.

A document, in rows each piece of one, is known by kind of file, shard, row and offset, and compared
by count and hash of its tokens and of their mask: about 300 bytes of each released one are held, and
of the packed ones a shard's at a time. Of windows the packed documents are cut alike before.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin, files_of, open_token_bin
from corpus_platform.formats.token_windows import told_windows
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_hashes import FOUND, HASH, hashed, hashed_windows, places
from corpus_platform.stages.release_in_force import DOCUMENTS, documents_to_match
from corpus_platform.stages.release_order import order_numbers
from corpus_platform.stages.release_sample import undecodable
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import may_be_left_out
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json

__all__ = ["DOCUMENTS", "measure_release"]

BLOCK_TOKENS = 1 << 22
FOREIGN = -1  # number of a shard that the ledger does not name


def measure_release(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of a release look at, from its written files."""
    columns = ["file", "start", "tokens", "shard", "row", "offset"]
    documents = pl.read_parquet(folder / DOCUMENTS, columns=columns)
    bins = {h.stem: open_token_bin(folder, h.stem) for h in sorted(folder.glob("*-[0-9]*.json"))}
    released, misplaced = _released(bins, documents, ledger["shards"])
    row_tokens = next(iter(bins.values())).header.row_tokens if bins else None
    compared = _compare(project, ledger["shards"], released, row_tokens)
    padding = sum(_padding(bin_) for bin_ in bins.values())
    tokens = sum(len(bin_.tokens) for bin_ in bins.values()) - padding
    others = set(project.shards()).difference(ledger["shards"])
    left_out = {shard for shard in others if not may_be_left_out(project, shard)}
    numbers: dict[str, float] = {
        "documents": documents.filter(pl.col("offset") == 0).height,
        "documents_differing": compared.differing + len(documents) - len(released) + misplaced,
        "leaked": _same_texts(compared.whole) + _in_both(documents),
        "files_differing": _files_differing(folder, bins),
        "tokens_unaccounted": abs(tokens - compared.tokens),
        "padding_tokens": padding,
        "eos_count": sum(_eos_count(bin_) for bin_ in bins.values()),
        "shards_left_out": len(left_out.union(ledger["excluded"])),
        "shards": len(ledger["shards"]),
        "documents_in_force": documents_to_match(project, folder, ledger["excluded"]),
    }
    numbers |= _order(project, documents, row_tokens, ledger["shards"])
    numbers["undecodable"] = undecodable(project, bins, documents)
    length = project.settings.pack.sequence_length
    numbers |= {"sequence_length": length, **_windows(bins, length)}
    for split, name in BIN_NAMES.items():
        files = [bin_ for base, bin_ in bins.items() if _kind(base) == name]
        numbers[f"{split}_tokens"] = sum(len(b.tokens) - _padding(b) for b in files)
        numbers[f"{split}_documents"] = sum(b.header.documents for b in files)
    return numbers


def _padding(bin_: TokenBin) -> int:
    """Return how many tokens of a bin lie in pieces that are padding."""
    lengths = np.diff(bin_.ends.astype(np.int64), prepend=0)
    return 0 if bin_.pieces is None else int(lengths[bin_.pieces["document"] < 0].sum())


def _order(
    project: Project, documents: pl.DataFrame, row_tokens: int | None, shards: Sequence[str]
) -> dict[str, float]:
    """Return how random the order of the train files is."""
    shuffle, train = project.settings.shuffle, pl.col("file").str.starts_with("train-")
    lines = documents.filter(train & (pl.col("tokens") > 0)).sort("file", "start")
    numbers = {shard: number for number, shard in enumerate(shards)}
    number = pl.col("shard").replace_strict(numbers, default=FOREIGN, return_dtype=pl.Int32)
    return order_numbers(
        lines.with_columns(number),
        row_tokens=row_tokens,
        chunk_tokens=shuffle.chunk_tokens if shuffle.unit == "chunks" else 0,
    )


def _windows(bins: Mapping[str, TokenBin], length: int) -> dict[str, float]:
    """Count the train files, their windows or rows, and those of them that have none."""
    train = {b: bin_ for b, bin_ in bins.items() if _kind(b) == BIN_NAMES["train"]}
    windows = {
        base: bin_.header.rows or told_windows(bin_file(base), len(bin_.tokens), length)
        for base, bin_ in train.items()
    }
    return {
        "train_files": len(train),
        "train_windows": sum(windows.values()),
        "files_without_window": sum(count == 0 for count in windows.values()),
    }


def _eos_count(bin_: TokenBin) -> int:
    count, eos = 0, bin_.header.eos_id
    for start in range(0, 0 if eos is None else len(bin_.tokens), BLOCK_TOKENS):
        count += int(np.count_nonzero(bin_.tokens[start : start + BLOCK_TOKENS] == eos))
        bin_.forget()
    return count


def _kind(base: str) -> str:
    """Return what a file of a release holds, from its base name: train-00000 is train."""
    return base.rsplit("-", 1)[0]


def _files_differing(folder: Path, bins: Mapping[str, TokenBin]) -> int:
    """Count files with another hash than the headers beside them say."""
    tokenizer, differing = file_sha256(folder / TOKENIZER_FILE), 0
    for base, bin_ in bins.items():
        for file, said in files_of(base, bin_.header).items():
            differing += file_sha256(folder / file) != said.sha256
        differing += tokenizer != bin_.header.tokenizer_sha256
    return differing


def _released(
    bins: Mapping[str, TokenBin], documents: pl.DataFrame, shards: Sequence[str]
) -> tuple[pl.DataFrame, int]:
    """Return the documents as the files hold them, and how many lie elsewhere than listed."""
    numbers = {shard: number for number, shard in enumerate(shards)}
    number = pl.col("shard").replace_strict(numbers, default=FOREIGN, return_dtype=pl.Int32)
    documents = documents.with_columns(number)
    listed, none = documents.partition_by("file", as_dict=True), documents.clear()
    parts, misplaced = [pl.DataFrame(schema=FOUND)], 0
    for base, bin_ in bins.items():
        part = listed.get((bin_file(base),), none).sort("start")
        parts.append(hashed(bin_, _kind(base), part))
        misplaced += _misplaced(bin_, part)
    return pl.concat(parts), misplaced


def _misplaced(bin_: TokenBin, part: pl.DataFrame) -> int:
    starts, ends, offsets = places(bin_)
    if len(ends) != len(part):
        return abs(len(ends) - len(part))
    wanted = [part[name].to_numpy() for name in ("start", "tokens", "offset")]
    found = (starts, ends - starts, offsets)
    differs = [a != b for a, b in zip(found, wanted, strict=True)]
    return int(np.count_nonzero(np.logical_or.reduce(differs)))


class _Compared(NamedTuple):
    """What is on one side only or differs, the packed tokens, and hashes of whole documents."""

    differing: int
    tokens: int
    whole: pl.DataFrame


def _compare(
    project: Project, shards: Sequence[str], released: pl.DataFrame, row_tokens: int | None
) -> _Compared:
    by_shard, none = released.partition_by("shard", as_dict=True), released.clear()
    differing, tokens, uncut = len(by_shard.get((FOREIGN,), none)), 0, list[pl.DataFrame]()
    for number, shard in enumerate(shards):
        bins = list(_packed(project, shard, number, row_tokens))
        packed = pl.concat([one.released for one in bins])
        found = by_shard.get((number,), none)
        sides = [found.with_columns(times=pl.lit(1)), packed.with_columns(times=pl.lit(-1))]
        times = pl.concat(sides).group_by(released.columns).agg(pl.col("times").sum())
        differing += int(times["times"].abs().sum())
        tokens += int(packed["tokens"].sum())
        uncut += [one.whole for one in bins if one.whole is not None]
    return _Compared(differing, tokens, pl.concat(uncut) if uncut else _whole(released))


class _Packed(NamedTuple):
    """A packed bin as a release should hold it; `whole` is None where that tells of documents."""

    released: pl.DataFrame
    whole: pl.DataFrame | None


def _packed(project: Project, shard: str, number: int, row_tokens: int | None) -> Iterator[_Packed]:
    artifact = project.present("packed_bins", shard)
    columns = ["file", "start", "tokens", "row", "offset"]
    documents = pl.read_parquet(artifact.path(PACKED_DOCUMENTS), columns=columns)
    documents = documents.with_columns(shard=pl.lit(number, pl.Int32))
    for name in BIN_NAMES.values():
        part = documents.filter(pl.col("file") == bin_file(name)).sort("start")
        bin_ = open_token_bin(artifact.folder, name)
        if bin_.header.row_tokens is not None:  # of documents without a token they have nothing
            part = part.filter(pl.col("tokens") > 0)
        found = hashed(bin_, name, part)
        if row_tokens is None or bin_.header.row_tokens is not None:
            yield _Packed(found, None)
        else:
            windows = hashed_windows(bin_, name, part, row_tokens)
            yield _Packed(windows, found.select("train", *HASH))


def _same_texts(documents: pl.DataFrame) -> int:
    """Count validation documents whose tokens are those of a train document."""
    text = [name for name in documents.columns if name != "train"]
    held_out = documents.filter(~pl.col("train")).select(text)
    train = documents.lazy().filter("train").select(text)
    both = train.join(held_out.lazy(), on=text, how="semi").unique().collect()
    return len(held_out.join(both, on=text, how="semi"))


def _whole(released: pl.DataFrame) -> pl.DataFrame:
    """Return the hashes of each document, in rows those of its pieces, which are cut alike."""
    if not (released["offset"] > 0).any():
        return released.select("train", *HASH)
    hashes = pl.concat_str(HASH, separator=":").sort_by("offset")
    pieces = released.group_by("train", "shard", "row")
    return pieces.agg(hashes.str.join(" ")).select("train", HASH[0])


def _in_both(documents: pl.DataFrame) -> int:
    split = pl.col("file").str.starts_with("val-")
    held_out = documents.filter(split).select("shard", "row").unique()
    return len(held_out.join(documents.filter(~split), on=["shard", "row"], how="semi"))
