"""The audit of shuffled_bins: reads every released document again and holds it against the packed ones.

A document is known by kind of file, shard and row, and compared by count and hash of its tokens:
about 50 bytes of each released one are held, and of the packed ones a shard's at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import xxhash

from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.stages.packed_bins import BIN_NAMES, PACKED_DOCUMENTS, bin_files
from corpus_platform.stages.project import Project
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
    "tokens": pl.Int64,
    **dict.fromkeys(HASH, pl.UInt64),
}
FOREIGN = -1  # number of a shard that the ledger does not name


def measure_release(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of a release look at, from its written files."""
    columns = ["file", "start", "tokens", "shard", "row"]
    documents = pl.read_parquet(folder / DOCUMENTS, columns=columns)
    bins = {h.stem: open_token_bin(folder, h.stem) for h in sorted(folder.glob("*-[0-9]*.json"))}
    released, misplaced = _released(bins, documents, ledger["shards"])
    differing, packed_tokens = _compare(project, ledger["shards"], released)
    tokens = sum(len(bin_.tokens) for bin_ in bins.values())
    others = set(project.shards()).difference(ledger["shards"])
    left_out = {shard for shard in others if not may_be_left_out(project, shard)}
    numbers: dict[str, float] = {
        "documents": len(documents),
        "documents_differing": differing + len(documents) - len(released) + misplaced,
        "leaked": _same_texts(released) + _in_both(documents),
        "files_differing": _files_differing(folder, bins),
        "tokens_unaccounted": abs(tokens - packed_tokens),
        "shards_left_out": len(left_out.union(ledger["excluded"])),
        "shards": len(ledger["shards"]),
    }
    for split, name in BIN_NAMES.items():
        files = [bin_ for base, bin_ in bins.items() if _kind(base) == name]
        numbers[f"{split}_tokens"] = sum(len(bin_.tokens) for bin_ in files)
        numbers[f"{split}_documents"] = sum(len(bin_) for bin_ in files)
    return numbers


def _kind(base: str) -> str:
    """Return what a file of a release holds, from its base name: train-00000 is train."""
    return base.rsplit("-", 1)[0]


def _files_differing(folder: Path, bins: Mapping[str, TokenBin]) -> int:
    """Count files with another hash than the headers beside them say."""
    tokenizer, differing = file_sha256(folder / TOKENIZER_FILE), 0
    for base, bin_ in bins.items():
        tokens, index, _ = bin_files(base)
        differing += file_sha256(folder / tokens) != bin_.header.bin_sha256
        differing += file_sha256(folder / index) != bin_.header.index_sha256
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
        part = listed.get((bin_files(base)[0],), none).sort("start")
        parts.append(_hashed(bin_, _kind(base), part))
        misplaced += _misplaced(bin_, part)
    return pl.concat(parts), misplaced


def _misplaced(bin_: TokenBin, part: pl.DataFrame) -> int:
    ends = bin_.ends.astype(np.int64)
    if len(ends) != len(part):
        return abs(len(ends) - len(part))
    wanted = (part["start"] + part["tokens"]).to_numpy(), part["tokens"].to_numpy()
    return int(((ends != wanted[0]) | (np.diff(ends, prepend=0) != wanted[1])).sum())


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
    documents = pl.read_parquet(artifact.path(PACKED_DOCUMENTS), columns=["file", "row"])
    documents = documents.with_columns(shard=pl.lit(number, pl.Int32))
    for name in BIN_NAMES.values():
        part = documents.filter(pl.col("file") == bin_files(name)[0])
        yield _hashed(open_token_bin(artifact.folder, name), name, part)


def _hashed(bin_: TokenBin, kind: str, documents: pl.DataFrame) -> pl.DataFrame:
    """Return count and hash of the tokens between the ends of the index, by document.

    One that the index does not know has none.
    """
    count = min(len(documents), len(bin_))
    tokens = np.zeros(len(documents), np.int64)
    tokens[:count] = np.diff(bin_.ends.astype(np.int64), prepend=0)[:count]
    hashes = bytearray(16 * len(documents))
    for i in range(len(documents)):
        document = bin_.document(i) if i < count else bin_.tokens[:0]
        hashes[16 * i : 16 * i + 16] = xxhash.xxh3_128_digest(document.tobytes())
    halves = np.frombuffer(hashes, "<u8").reshape(-1, 2)
    return documents.select(
        pl.lit(kind == BIN_NAMES["train"]).alias("train"),
        "shard",
        "row",
        pl.Series("tokens", tokens),
        *(pl.Series(name, halves[:, i].copy()) for i, name in enumerate(HASH)),
    )


def _same_texts(released: pl.DataFrame) -> int:
    """Count validation documents whose tokens are those of a train document."""
    held_out = released.filter(~pl.col("train")).select(HASH)
    train = released.lazy().filter("train").select(HASH)
    both = train.join(held_out.lazy(), on=HASH, how="semi").unique().collect()
    return len(held_out.join(both, on=HASH, how="semi"))


def _in_both(documents: pl.DataFrame) -> int:
    split = pl.col("file").str.starts_with("val-")
    held_out = documents.filter(split).select("shard", "row")
    return len(held_out.join(documents.filter(~split), on=["shard", "row"], how="semi"))
