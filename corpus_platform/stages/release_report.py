"""REPORT.md and sources.json of a release: what a person reads before training on it.

Written into the draft of a release beside its files, which are read again for it. What they say
depends on what went into the release; places, licences and reasons for shards left out are as they
were when it was made.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from corpus_platform.formats.token_bin import TokenBin, files_of, open_token_bin
from corpus_platform.reports.acceptance import Figures
from corpus_platform.reports.release import ReleaseReport, report_text
from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.project import Product, Project
from corpus_platform.stages.release_figures import (
    Counted,
    count_shards,
    decode_places,
    read_sample,
)
from corpus_platform.stages.release_in_force import DOCUMENTS
from corpus_platform.stages.release_sources import SOURCES_FILE, release_sources, sources_json
from corpus_platform.stages.release_vocabulary import vocabulary_of
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.acceptance import HOSTILE
from corpus_platform.tokenization.byte_lengths import text_lengths

__all__ = ["REPORT_FILE", "SETTINGS_FILE", "write_report"]

REPORT_FILE = "REPORT.md"
SETTINGS_FILE = "settings.json"


def write_report(
    project: Project,
    draft: Path,
    ledger: Json,
    left_out: Mapping[str, str],
    numbers: Mapping[str, float],
) -> list[Product]:
    """Write both files beside all others of a release; return them as products.

    `ledger` names the shards of the release, `left_out` gives a reason for each other one, `numbers`
    are those of its audit.
    """
    sources = release_sources(project, ledger["shards"])
    (draft / SOURCES_FILE).write_bytes(sources_json(sources, ledger["by_shard"]))
    bins = {h.stem: open_token_bin(draft, h.stem) for h in sorted(draft.glob("*-[0-9]*.json"))}
    counted = count_shards(project, ledger["shards"])
    report = ReleaseReport(
        figures=_figures(project, draft, bins, counted),
        crawls=counted.crawls,
        languages=counted.languages,
        shards=counted.shards,
        left_out=left_out,
        sources=sources,
        tokenizer=_tokenizer(project),
        vocabulary=vocabulary_of(numbers, (draft / TOKENIZER_FILE).read_bytes()),
        settings=json.loads((draft / SETTINGS_FILE).read_bytes()),
        files=_files(draft, bins),
    )
    (draft / REPORT_FILE).write_text(report_text(report), encoding="utf-8")
    return [Product(SOURCES_FILE), Product(REPORT_FILE)]


def _figures(
    project: Project, draft: Path, bins: Mapping[str, TokenBin], counted: Counted
) -> Figures:
    tokenizer = (draft / TOKENIZER_FILE).read_bytes()
    artifact = project.present("tokenizer", None)
    accepted = json.loads(artifact.path("report.json").read_bytes())
    hostile = len(HOSTILE) + len(artifact.manifest.settings["special_tokens"])
    train = {base: b for base, b in bins.items() if base.rsplit("-", 1)[0] == BIN_NAMES["train"]}
    header = next(iter(bins.values())).header if bins else None
    sample = read_sample(project, train, draft / DOCUMENTS, text_lengths(tokenizer))
    documents = _sum(counted, "train_documents"), _sum(counted, "validation_documents")
    controls = 0 if header is None else (header.eos_id is not None) + (header.bos_id is not None)
    return Figures(
        tokens=sum(len(b.tokens) - b.header.padding for b in bins.values()),
        cut=counted.cut,
        estimated_tokens=_estimate(counted, accepted["fertility"]) + controls * sum(documents),
        token_bytes=header.dtype.itemsize if header is not None else 0,
        validation_wanted=project.settings.split.validation > 0,
        train_documents=documents[0],
        train_tokens=sum(len(b.tokens) - b.header.padding for b in train.values()),
        validation_documents=documents[1],
        decoded=decode_places(bins, tokenizer, project.settings.shuffle.seed),
        round_trip_texts=accepted["texts"] + hostile,
        round_trip_failures=accepted["round_trip_failures"] + len(accepted["hostile_failures"]),
        ends=header is not None and header.eos_id is not None,
        sample_tokens=sample.tokens,
        sample_eos=sample.eos,
        cleaned_from=_sum(counted, "documents"),
        dropped=dict(counted.dropped),
        before_documents=_sum(counted, "cleaned"),
        before_bytes=counted.before_bytes,
        after_documents=_sum(counted, "kept"),
        after_bytes=sum(counted.kept_bytes.values()),
        compression=sample.compression,
        in_both=_in_both(draft / DOCUMENTS),
    )


def _sum(counted: Counted, what: str) -> int:
    return sum(getattr(crawl, what) for crawl in counted.crawls.values())


def _estimate(counted: Counted, fertility: Mapping[str, Mapping[str, float]]) -> float:
    """Return the tokens that the kept bytes make, each language's as the tokenizer was examined with.

    A language that it was not examined with goes as all others do on average.
    """
    ratios = {name: one["bytes_per_token"] for name, one in fertility.items()}
    sizes, named = counted.kept_bytes, {"": "und"}
    # In one order: a sum of floats depends on it, and languages were counted in any.
    known = {n: r for n in sorted(sizes) if (r := ratios.get(named.get(n, n), 0.0)) > 0.0}
    tokens = sum(sizes[name] / ratio for name, ratio in known.items())
    if not tokens:
        return 0.0
    return tokens * sum(sizes.values()) / sum(sizes[name] for name in known)


def _in_both(documents: Path) -> int:
    """Count the validation documents that are listed in train too."""
    lines, held_out = pl.scan_parquet(documents), pl.col("file").str.starts_with("val-")
    kept = lines.filter(held_out).select("shard", "row").unique()
    train = lines.filter(~held_out).select("shard", "row")
    return int(kept.join(train, on=["shard", "row"], how="semi").select(pl.len()).collect(engine="streaming").item())  # fmt: skip


def _tokenizer(project: Project) -> Mapping[str, str]:
    artifact = project.present("tokenizer", None)
    manifest = artifact.manifest
    settings, ledger = manifest.settings, manifest.ledger
    return {
        "algorithm": str(settings["algorithm"]),
        "vocabulary": f"{ledger['vocab_size']:,} (asked: {ledger['vocab_size_asked']:,})",
        "control tokens": ", ".join(settings["special_tokens"]),
        "trained on": f"{ledger['sample_documents']:,} documents, {ledger['sample_bytes']:,} bytes",
        "sha256 of tokenizer.json": artifact.hashes()[TOKENIZER_FILE],
    }


def _files(draft: Path, bins: Mapping[str, TokenBin]) -> Sequence[tuple[str, int, str]]:
    """Return name, bytes and sha256 of all other files; of token files as their headers say."""
    found = [
        (name, hashed.bytes, hashed.sha256)
        for base, bin_ in bins.items()
        for name, hashed in files_of(base, bin_.header).items()
    ]
    known = {name for name, _, _ in found}
    others = sorted(p for p in draft.iterdir() if p.is_file() and p.name not in known)
    found += [(p.name, p.stat().st_size, file_sha256(p)) for p in others if p.name != REPORT_FILE]
    return found
