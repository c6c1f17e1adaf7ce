"""The table of documents of a pack, held against verdict, cleaned documents, ledger and settings.

What the bins themselves hold is measured in `bins_audit` and comes in as numbers. Here too: what is
counted from the table alone, languages and how full rows are or would be.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from corpus_platform.formats.records import MAX_LANG_CHARS
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.packing.utilisation import STRATEGIES, compare
from corpus_platform.stages.bins_writing import BIN_NAMES, Packing, bin_file
from corpus_platform.storage.manifest import Json

__all__ = [
    "documents_differing",
    "documents_of",
    "language_numbers",
    "ledger_difference",
    "utilisation_numbers",
    "whole_documents",
]

MAX_LANGUAGES = 50  # with a number of their own; a source may name as many as it likes


def whole_documents(documents: pl.DataFrame, *, row_tokens: int | None) -> tuple[pl.DataFrame, int]:
    """Return a line for each piece in the order of documents, and how many do not fit together.

    Each document's pieces must begin at 0 and go on where the one before ends, and be no more than
    rows of `row_tokens` make needful; one, where that is None. `last` says of each line whether it
    is the last piece.
    """
    ordered = documents.sort("shard", "row", "file", "offset", maintain_order=True)
    same = ["shard", "row"]
    ordered = ordered.with_columns(
        before=(pl.col("offset") + pl.col("tokens")).shift(1).over(same).fill_null(0),
        last=pl.col("offset") == pl.col("offset").max().over(same),
    )
    broken = ordered.filter(pl.col("before") != pl.col("offset")).height
    broken += ordered.filter(pl.col("file").n_unique().over(same) > 1).height
    whole = documents_of(ordered)
    needful = pl.lit(1) if row_tokens is None else -(-pl.col("tokens") // row_tokens)
    broken += whole.filter(pl.col("pieces") > needful.clip(lower_bound=1)).height
    return ordered.drop("before"), broken


def documents_of(lines: pl.DataFrame) -> pl.DataFrame:
    """Return a line for each document, in source order."""
    whole = lines.group_by("shard", "row", "file", maintain_order=True)
    found = whole.agg(pl.col("tokens", "cut").sum(), pl.col("lang").first(), pieces=pl.len())
    return found.sort("row")


def documents_differing(
    shard: str | None, lines: pl.DataFrame, *, verdict: Path, cleaned: Path
) -> int:
    """Count documents that are kept or packed and not both, each once, in their split and name."""
    kept = pl.read_parquet(verdict).filter("kept").select("row", "split")
    splits = {bin_file(name): split for split, name in BIN_NAMES.items()}
    split = pl.col("file").replace_strict(splits, default=None, return_dtype=pl.String)
    found = documents_of(lines).select("row", "shard", split=split)
    return (
        len(kept.join(found, on=["row", "split"], how="anti"))
        + len(found.join(kept, on=["row", "split"], how="anti"))
        + len(found)
        - found["row"].n_unique()
        + int((found["shard"] != shard).sum())
        + _misnamed(lines, cleaned)
    )


def _misnamed(lines: pl.DataFrame, cleaned: Path) -> int:
    """Count documents under another id or language than that of the cleaned one."""
    named = pl.read_parquet(cleaned, columns=["row", "id", "lang"])
    both = lines.join(named, on="row", how="inner", suffix="_cleaned")
    differs = (pl.col(n).ne_missing(pl.col(f"{n}_cleaned")) for n in ("id", "lang"))
    return both.filter(pl.any_horizontal(differs))["row"].n_unique()


def ledger_difference(
    ledger: Json,
    documents: pl.DataFrame,
    *,
    policy: Policy,
    limit: int | None,
    found: Mapping[str, float],
) -> int:
    """Return over how many tokens, documents and ranges ledger, table and files are apart.

    `found` is what was counted in the files: tokens of both splits, padding, and bad ranges. A
    document has as many tokens as it would have without `limit`, or that many.
    """
    totals: Mapping[str, int] = ledger["tokens"]
    placed, cut = int(documents["tokens"].sum()), int(documents["cut"].sum())
    stated = {f"tokens/{name}": count for name, count in totals.items()}
    stated["bad_no_loss_ranges"] = ledger["bad_no_loss_ranges"]
    wanted: dict[str, float] = {
        "tokens/bos": len(documents) * (policy.bos_id is not None),
        "tokens/eos": len(documents) * (policy.eos_id is not None),
        "tokens/placed": placed,
        "tokens/cut": cut,
        "tokens/padding": found["padding_tokens"],
        "bad_no_loss_ranges": found["bad_no_loss_ranges"],
    }
    for split, name in BIN_NAMES.items():
        stated |= {n: ledger[n] for n in (f"{split}_documents", f"{split}_tokens")}
        wanted[f"{split}_documents"] = documents.filter(pl.col("file") == bin_file(name)).height
        wanted[f"{split}_tokens"] = found[f"{split}_tokens"]
    apart = sum(abs(stated[name] - count) for name, count in wanted.items())
    encoded = totals["text"] + totals["bos"] + totals["eos"]
    return int(apart) + abs(encoded - placed - cut) + _cut_beside(documents, limit)


def _cut_beside(documents: pl.DataFrame, limit: int | None) -> int:
    """Return the tokens that were cut off though there was room, or left on though there was none."""
    whole = pl.col("tokens") + pl.col("cut")
    wanted = whole if limit is None else whole.clip(upper_bound=limit)
    return int(documents.select((pl.col("tokens") - wanted).abs().sum()).item())


def utilisation_numbers(documents: pl.DataFrame, packing: Packing, length: int) -> dict[str, float]:
    """Return how full rows of that length are, or would be, by strategy, over both splits."""
    totals: Counter[str] = Counter()
    for name in BIN_NAMES.values():
        part = documents.filter(pl.col("file") == bin_file(name))
        for each, found in compare(part["tokens"].to_numpy(), row_tokens=length).items():
            totals[f"rows/{each}"] += found.rows
            totals[f"padding/{each}"] += found.padding
            totals[f"cut_documents/{each}"] += found.cut_documents
            totals[f"needless_cuts/{each}"] += found.needless_cuts
    tokens, numbers = int(documents["tokens"].sum()), dict[str, float](totals)
    for name in STRATEGIES:
        rows = totals[f"rows/{name}"]
        numbers[f"utilisation/{name}"] = tokens / (rows * length) if rows else 1.0
    in_force = {f"strategy/{name}": float(name == packing.strategy) for name in STRATEGIES}
    return {**numbers, **in_force, "sequence_length": length}


def language_numbers(documents: pl.DataFrame) -> Iterator[tuple[str, float]]:
    """Yield the tokens of each of the largest languages, and of the others together.

    One that is long or empty is none.
    """
    named = pl.col("lang").str.len_chars().is_between(1, MAX_LANG_CHARS)
    lang = pl.when(pl.col("lang").is_null()).then(pl.lit("und")).when(named).then("lang")
    by_language = (
        documents.group_by(lang=lang)
        .agg(pl.col("tokens").sum())
        .sort("tokens", "lang", descending=[True, False], nulls_last=True)
    )
    largest = by_language.drop_nulls("lang").head(MAX_LANGUAGES)
    for name, tokens in largest.iter_rows():
        yield f"tokens/lang/{name}", tokens
    if len(by_language) > len(largest):
        # No language is called so: after tokens/lang/ a name of the crawl would be that of all others.
        others = int(by_language["tokens"].sum()) - int(largest["tokens"].sum())
        yield "tokens/other_languages", others
