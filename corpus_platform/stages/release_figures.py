"""The figures of a release's report, from the manifests that it was made of and from its files.

A shard is read at a time, and of the token files the first ten million tokens and ten places: what
is held does not grow with the corpus, but for a line per shard and per document of that sample.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.reports.acceptance import Compression, Decoded
from corpus_platform.reports.release import Crawl, LanguageTokens
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.project import Project
from corpus_platform.tokenization.byte_lengths import TextLengths
from corpus_platform.tokenization.encoder import read_tokenizer

__all__ = ["Counted", "Sample", "count_shards", "decode_places", "read_sample"]

SAMPLE_TOKENS = 10_000_000  # of train [S1]
BLOCK_TOKENS = 1 << 20
PLACES, PLACE_TOKENS = 10, 200  # [S1]
REPLACEMENT = "\ufffd"


@dataclass
class Counted:
    """What the shards of a release hold together."""

    crawls: dict[str, Crawl] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    languages: dict[str, LanguageTokens] = field(default_factory=dict)
    shards: list[tuple[str, int, int]] = field(default_factory=list)  # shard, documents, tokens
    before_bytes: int = 0
    kept_bytes: Counter[str] = field(default_factory=Counter)  # by language
    cut: int = 0


def count_shards(project: Project, shards: Sequence[str]) -> Counted:
    """Count documents, tokens and bytes of text of all shards."""
    counted = Counted()
    for shard in shards:
        _count_cleaned(project, shard, counted)
        _count_packed(project, shard, counted)
    return counted


def _count_cleaned(project: Project, shard: str, counted: Counted) -> None:
    ledger = project.present("cleaned_documents", shard).manifest.ledger
    packed = project.present("packed_bins", shard).manifest.ledger
    splits = [f"{split}_{what}" for what in ("documents", "tokens") for split in BIN_NAMES]
    kept = packed["train_documents"] + packed["validation_documents"]
    crawl = shard.split("/", 1)[0]
    counted.dropped.update(ledger["dropped"])
    counted.cut += packed["tokens"]["cut"]
    counted.crawls[crawl] = counted.crawls.get(crawl, Crawl()) + Crawl(
        shards=1,
        lines=ledger["lines"],
        quarantined=sum(ledger["quarantined"].values()),
        documents=ledger["documents"],
        dropped=sum(ledger["dropped"].values()),
        cleaned=ledger["kept"],
        copies=ledger["kept"] - kept,
        kept=kept,
        **{name: packed[name] for name in splits},
    )


def _count_packed(project: Project, shard: str, counted: Counted) -> None:
    """Count by language: tokens of the packed documents, bytes of the texts that dedup kept."""
    lines = _packed_lines(project, shard)
    train = pl.col("file") == bin_file(BIN_NAMES["train"])
    begins = pl.col("offset") == 0
    by_language = lines.group_by("lang").agg(
        (begins & train).sum(),
        pl.col("tokens").filter(train).sum(),
        validation_documents=(begins & ~train).sum(),
        validation_tokens=pl.col("tokens").filter(~train).sum(),
    )
    for lang, *counts in by_language.iter_rows():
        so_far = counted.languages.get(lang, LanguageTokens(0, 0, 0, 0))
        counted.languages[lang] = LanguageTokens(*map(sum, zip(so_far, counts, strict=True)))
    counted.shards.append((shard, lines.select(begins.sum()).item(), int(lines["tokens"].sum())))
    signed = project.present("minhash_signatures", shard).path(SIGNATURE_FILE)
    sizes = pl.read_parquet(signed, columns=["row", "bytes"])
    counted.before_bytes += int(sizes["bytes"].sum())
    kept = lines.filter(begins).select("row", "lang").join(sizes, on="row")
    for lang, size in kept.group_by("lang").agg(pl.col("bytes").sum()).iter_rows():
        counted.kept_bytes[lang] += size


def _packed_lines(project: Project, shard: str) -> pl.DataFrame:
    """Return the table of a pack; `lang` is empty where there is none."""
    path = project.present("packed_bins", shard).path(PACKED_DOCUMENTS)
    columns = ["file", "row", "offset", "tokens", "lang"]
    return pl.read_parquet(path, columns=columns).with_columns(pl.col("lang").fill_null(""))


class Sample(NamedTuple):
    """What the first tokens of train hold; padding is no token of it."""

    tokens: int
    eos: int
    compression: dict[str, Compression]


def read_sample(
    project: Project, bins: Mapping[str, TokenBin], documents: Path, lengths: TextLengths
) -> Sample:
    """Read the first ten million tokens of the train files; `bins` are those, by base name."""
    left, tokens, eos = SAMPLE_TOKENS, 0, 0
    totals: dict[str, np.ndarray] = {}
    for base, bin_ in sorted(bins.items()):
        count = min(left, len(bin_.tokens))
        lines = pl.scan_parquet(documents).filter(
            (pl.col("file") == bin_file(base)) & (pl.col("start") < count)
        )
        pieces = lines.select("start", "tokens", "shard", "row", "offset").collect()
        part = _measured(bin_, count, _with_languages(project, pieces), lengths, totals)
        tokens, eos, left = tokens + part[0], eos + part[1], left - count
        if not left:
            break
    found = {lang: Compression(*map(int, total)) for lang, total in totals.items()}
    return Sample(tokens, eos, found)


def _with_languages(project: Project, pieces: pl.DataFrame) -> pl.DataFrame:
    """Return pieces by their start with the language of each."""
    parts = []
    for (shard,), part in pieces.partition_by("shard", as_dict=True).items():
        lines = _packed_lines(project, str(shard)).filter(pl.col("offset") == 0)
        parts.append(part.join(lines.select("row", "lang"), on="row", how="left"))
    whole = pl.concat([pieces.clear().with_columns(lang=pl.lit("")), *parts])
    return whole.with_columns(pl.col("lang").fill_null("")).sort("start")


def _measured(
    bin_: TokenBin,
    count: int,
    pieces: pl.DataFrame,
    lengths: TextLengths,
    totals: dict[str, np.ndarray],
) -> tuple[int, int]:
    """Add the text of the first `count` tokens to the totals; return tokens and end tokens."""
    names = pieces["lang"].unique(maintain_order=True).to_list()
    codes = np.full(count, len(names), np.int32)  # padding is of no language
    number = pieces["lang"].replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    starts, ends = pieces["start"].to_numpy(), (pieces["start"] + pieces["tokens"]).to_numpy()
    for start, end, code in zip(starts, ends, number, strict=True):
        codes[start:end] = code
    sums, eos = np.zeros((3, len(names) + 1), np.int64), 0
    for at in range(0, count, BLOCK_TOKENS):
        ids, code = bin_.tokens[at : min(at + BLOCK_TOKENS, count)], codes[at : at + BLOCK_TOKENS]
        of_text = np.stack([lengths.bytes[ids] > 0, lengths.chars[ids], lengths.bytes[ids]])
        for i, weights in enumerate(of_text):
            sums[i] += np.bincount(code, weights, len(names) + 1).astype(np.int64)
        eos += 0 if bin_.header.eos_id is None else int(np.count_nonzero(ids == bin_.header.eos_id))
    begun = Counter(pieces.filter(pl.col("offset") == 0)["lang"].to_list())
    for code, lang in enumerate(names):
        found = np.array([begun[lang], *sums[:, code]])
        totals[lang] = totals.get(lang, np.zeros(4, np.int64)) + found
    return int(np.count_nonzero(codes < len(names))), eos


def decode_places(bins: Mapping[str, TokenBin], tokenizer: bytes, seed: int) -> list[Decoded]:
    """Return what stands at ten places of the files, drawn by a seed; each is 200 tokens."""
    decode = read_tokenizer(tokenizer).decode
    found = []
    for base, start in _places(bins, seed):
        ids = bins[base].tokens[start : start + PLACE_TOKENS].tolist()
        text = decode(ids, skip_special_tokens=True)
        found.append(Decoded(bin_file(base), start, text, _strange(text)))
    return found


def _places(bins: Mapping[str, TokenBin], seed: int) -> Iterator[tuple[str, int]]:
    bases = sorted(base for base, bin_ in bins.items() if len(bin_.tokens))
    ends = np.cumsum([len(bins[base].tokens) for base in bases])
    if not bases:
        return
    for place in np.sort(np.random.default_rng(seed).integers(0, ends[-1], PLACES)).tolist():
        file = int(np.searchsorted(ends, place, side="right"))
        size = len(bins[bases[file]].tokens)
        start = place - (int(ends[file]) - size)
        yield bases[file], _on_text(bins[bases[file]], max(0, min(start, size - PLACE_TOKENS)))


def _on_text(bin_: TokenBin, place: int) -> int:
    """Return a place, of one in padding the begin of its row: there is no text to read in that."""
    rows, pad = bin_.header.row_tokens, bin_.header.pad_id
    if rows is None or pad is None or bin_.tokens[place] != pad:
        return place
    return place - place % rows


def _strange(text: str) -> float:
    """Return the share of characters that nobody can read; those cut at the ends are no fault."""
    inner = text.strip(REPLACEMENT)
    strange = sum(c == REPLACEMENT or not (c.isprintable() or c.isspace()) for c in inner)
    return strange / len(inner) if inner else float(bool(text))
