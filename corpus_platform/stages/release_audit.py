"""The audit of shuffled_bins: reads every released document again and holds it against the packed ones.

A document, in rows each piece of one, is known by kind of file, shard, row and offset, and compared
by count and hash of its tokens and of their mask: about 70 bytes of each released one are held, and
of the packed ones a shard's at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import xxhash

from corpus_platform.formats.token_bin import TokenBin, files_of, open_token_bin
from corpus_platform.formats.token_windows import told_windows
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_order import order_numbers
from corpus_platform.stages.release_sample import undecodable
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import may_be_left_out
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json

__all__ = ["DOCUMENTS", "measure_release"]

DOCUMENTS = "documents.parquet"
HASH = ["low", "high"]  # halves of the 128-bit hash of a document's tokens
FOUND = {
    "train": pl.Boolean,
    "shard": pl.Int32,
    "row": pl.Int64,
    "offset": pl.Int64,
    "tokens": pl.Int64,
    **dict.fromkeys(HASH, pl.UInt64),
    "mask": pl.UInt64,  # hash of the mask, 0 where all tokens count
}
BLOCK_TOKENS = 1 << 22
FORGOTTEN_AFTER = 1 << 14  # documents
FOREIGN = -1  # number of a shard that the ledger does not name


def measure_release(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of a release look at, from its written files."""
    columns = ["file", "start", "tokens", "shard", "row", "offset"]
    documents = pl.read_parquet(folder / DOCUMENTS, columns=columns)
    bins = {h.stem: open_token_bin(folder, h.stem) for h in sorted(folder.glob("*-[0-9]*.json"))}
    released, misplaced = _released(bins, documents, ledger["shards"])
    differing, packed_tokens = _compare(project, ledger["shards"], released)
    padding = sum(_padding(bin_) for bin_ in bins.values())
    tokens = sum(len(bin_.tokens) for bin_ in bins.values()) - padding
    others = set(project.shards()).difference(ledger["shards"])
    left_out = {shard for shard in others if not may_be_left_out(project, shard)}
    numbers: dict[str, float] = {
        "documents": documents.filter(pl.col("offset") == 0).height,
        "documents_differing": differing + len(documents) - len(released) + misplaced,
        "leaked": _same_texts(released) + _in_both(documents),
        "files_differing": _files_differing(folder, bins),
        "tokens_unaccounted": abs(tokens - packed_tokens),
        "padding_tokens": padding,
        "eos_count": sum(_eos_count(bin_) for bin_ in bins.values()),
        "shards_left_out": len(left_out.union(ledger["excluded"])),
        "shards": len(ledger["shards"]),
    }
    numbers |= _order(project, documents, bins, ledger["shards"])
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
    project: Project, documents: pl.DataFrame, bins: Mapping[str, TokenBin], shards: Sequence[str]
) -> dict[str, float]:
    """Return how random the order of the train files is."""
    shuffle, train = project.settings.shuffle, pl.col("file").str.starts_with("train-")
    lines = documents.filter(train & (pl.col("tokens") > 0)).sort("file", "start")
    numbers = {shard: number for number, shard in enumerate(shards)}
    number = pl.col("shard").replace_strict(numbers, default=FOREIGN, return_dtype=pl.Int32)
    return order_numbers(
        lines.with_columns(number),
        row_tokens=next(iter(bins.values())).header.row_tokens if bins else None,
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
        for file, hashed in files_of(base, bin_.header).items():
            differing += file_sha256(folder / file) != hashed.sha256
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
        parts.append(_hashed(bin_, _kind(base), part))
        misplaced += _misplaced(bin_, part)
    return pl.concat(parts), misplaced


def _misplaced(bin_: TokenBin, part: pl.DataFrame) -> int:
    starts, ends, offsets = _pieces(bin_)
    if len(ends) != len(part):
        return abs(len(ends) - len(part))
    wanted = [part[name].to_numpy() for name in ("start", "tokens", "offset")]
    found = (starts, ends - starts, offsets)
    differs = [a != b for a, b in zip(found, wanted, strict=True)]
    return int(np.count_nonzero(np.logical_or.reduce(differs)))


def _pieces(bin_: TokenBin) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where documents or their pieces start and end by the index, and their offsets."""
    ends = bin_.ends.astype(np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
    if bin_.pieces is None:
        return starts, ends, np.zeros(len(ends), np.int64)
    real = bin_.pieces["document"] >= 0
    return starts[real], ends[real], bin_.pieces["offset"][real]


def _compare(project: Project, shards: Sequence[str], released: pl.DataFrame) -> tuple[int, int]:
    """Count documents that are on one side only or differ, and the tokens of the packed ones."""
    by_shard, none = released.partition_by("shard", as_dict=True), released.clear()
    differing, tokens = len(by_shard.get((FOREIGN,), none)), 0
    for number, shard in enumerate(shards):
        packed = pl.concat(_packed(project, shard, number))
        found = by_shard.get((number,), none)
        sides = [found.with_columns(times=pl.lit(1)), packed.with_columns(times=pl.lit(-1))]
        times = pl.concat(sides).group_by(released.columns).agg(pl.col("times").sum())
        differing += int(times["times"].abs().sum())
        tokens += int(packed["tokens"].sum())
    return differing, tokens


def _packed(project: Project, shard: str, number: int) -> Iterator[pl.DataFrame]:
    artifact = project.present("packed_bins", shard)
    columns = ["file", "start", "row", "offset"]
    documents = pl.read_parquet(artifact.path(PACKED_DOCUMENTS), columns=columns)
    documents = documents.with_columns(shard=pl.lit(number, pl.Int32))
    for name in BIN_NAMES.values():
        part = documents.filter(pl.col("file") == bin_file(name)).sort("start")
        yield _hashed(open_token_bin(artifact.folder, name), name, part)


def _hashed(bin_: TokenBin, kind: str, lines: pl.DataFrame) -> pl.DataFrame:
    """Return count and hashes of the tokens between the ends of the index, by document or piece.

    One that the index does not know has none.
    """
    starts, ends, _ = _pieces(bin_)
    count = min(len(lines), len(ends))
    tokens = np.zeros(len(lines), np.int64)
    tokens[:count] = (ends - starts)[:count]
    hashes, masks = bytearray(16 * len(lines)), np.zeros(len(lines), np.uint64)
    for i in range(len(lines)):
        if i % FORGOTTEN_AFTER == 0:
            bin_.forget()
        place = slice(int(starts[i]), int(ends[i])) if i < count else slice(0)
        hashes[16 * i : 16 * i + 16] = xxhash.xxh3_128_digest(bin_.tokens[place].tobytes())
        if bin_.loss is not None and not bin_.loss[place].all():
            masks[i] = xxhash.xxh3_64_intdigest(bin_.loss[place].tobytes())
    halves = np.frombuffer(hashes, "<u8").reshape(-1, 2)
    return lines.select(
        pl.lit(kind == BIN_NAMES["train"]).alias("train"),
        "shard",
        "row",
        "offset",
        pl.Series("tokens", tokens),
        *(pl.Series(name, halves[:, i].copy()) for i, name in enumerate(HASH)),
        pl.Series("mask", masks),
    )


def _same_texts(released: pl.DataFrame) -> int:
    """Count validation documents whose tokens are those of a train document."""
    documents = _whole(released)
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
