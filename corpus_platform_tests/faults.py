"""Faults to plant in the files of an artifact, one or more for every gate that looks at files.

Each fault takes a folder with the files of an artifact of the small corpus (small.py) and changes
them. `plant` has a stage write them like that, so that they are published and measured as they are.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import dedup_verdicts
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.project import Making, Product, Report
from corpus_platform_tests.small import SHARDS

__all__ = [
    "FAULTS",
    "WITHOUT_FILES",
    "Fault",
    "cut",
    "drop_first_verdict",
    "leave_out_first_shard",
    "plant",
    "plant_in_verdicts",
]


class Fault(NamedTuple):
    """A gate, and how the files of its asset are made faulty."""

    asset: str
    gate: str
    plant: Callable[[Path], None]


def plant(patch: pytest.MonkeyPatch, asset: str, fault: Callable[[Path], None]) -> None:
    """Have the stage of an asset write faulty files from now on."""
    publish = Making.publish

    def publish_faulty(making: Making, draft: Path, products: list[Product], **rest) -> Report:
        if making._asset == asset:
            fault(draft)
        return publish(making, draft, products, **rest)

    patch.setattr(Making, "publish", publish_faulty)


def plant_in_verdicts(patch: pytest.MonkeyPatch) -> None:
    """Have the clusters' stage write verdict files that do not say what its table says."""
    write = dedup_verdicts.write_table

    def write_faulty(path: Path, *rest, **options) -> int:
        rows = write(path, *rest, **options)
        drop_first_verdict(path.parent)
        return rows

    patch.setattr(dedup_verdicts, "write_table", write_faulty)


def leave_out_first_shard(config: Path, patch: pytest.MonkeyPatch) -> None:
    """Sign the first shard of a finished corpus with a fault, and allow to go on without it."""
    with config.open("a", encoding="utf-8") as file:
        file.write("checks: {max_uncleared_share: 0.4}\n")
    project = open_project(load_settings(config))
    shutil.rmtree(project.store.folder("minhash_signatures", SHARDS[0]))
    with patch.context() as planted:
        plant(planted, "minhash_signatures", _without_first("signatures.parquet"))
        sign_documents(project, SHARDS[0])


def drop_first_verdict(folder: Path) -> None:
    """Turn the verdict of the first kept document."""
    first = pl.int_range(pl.len()) == pl.col("kept").arg_max()
    kept = pl.when(first).then(pl.lit(value=False)).otherwise(pl.col("kept"))
    _alter(folder / "verdict.parquet", lambda rows: rows.with_columns(kept=kept))


def cut(path: Path) -> None:
    """Keep the first half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _alter(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write a Parquet file again with other rows and the same schema."""
    schema = pq.read_schema(path)
    frame = change(pl.read_parquet(path))
    pq.write_table(frame.select(schema.names).to_arrow().cast(schema), path)


def _without_first(name: str) -> Callable[[Path], None]:
    return lambda folder: _alter(folder / name, lambda rows: rows.slice(1))


# raw_shards


def _other_byte(folder: Path) -> None:
    path = next(p for p in folder.iterdir() if p.name != "manifest.json")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _one_byte_more(folder: Path) -> None:
    path = next(p for p in folder.iterdir() if p.name != "manifest.json")
    path.write_bytes(path.read_bytes() + b"\n")


# cleaned_documents


def _row_twice(folder: Path) -> None:
    _alter(folder / "documents.parquet", lambda rows: pl.concat([rows.slice(1), rows.slice(1, 1)]))


def _unknown_rule(folder: Path) -> None:
    rule = pl.lit("no_such_rule").alias("rule")
    _alter(folder / "tombstones.parquet", lambda rows: rows.with_columns(rule))


def _all_dropped_by(rule: str) -> Callable[[Path], None]:
    def fault(folder: Path) -> None:
        _bury(folder, pl.lit(value=True), rule)

    return fault


def _bury(folder: Path, which: pl.Expr, rule: str) -> None:
    """Move documents to the tombstones."""
    gone = pl.read_parquet(folder / "documents.parquet").filter(which)
    value = {"rule": pl.lit(rule), "value": pl.lit(0.0), "threshold": pl.lit(1.0)}
    graves = gone.select("id", "row").with_columns(**value)
    _alter(folder / "documents.parquet", lambda rows: rows.filter(~which))
    _alter(folder / "tombstones.parquet", lambda rows: pl.concat([rows, graves]))


def _some_dropped_by(rule: str, count: int) -> Callable[[Path], None]:
    def fault(folder: Path) -> None:
        rows = pl.read_parquet(folder / "documents.parquet")["row"].to_list()
        _bury(folder, pl.col("row").is_in(rows[:count]), rule)

    return fault


def _into_quarantine(folder: Path) -> None:
    gone = pl.read_parquet(folder / "documents.parquet").head(3)
    _alter(folder / "documents.parquet", lambda rows: rows.slice(3))
    rejected = gone.select(
        line=pl.col("row") + 1, offset=pl.lit(0), reason=pl.lit("invalid_json"), excerpt=pl.lit("")
    )
    _alter(
        folder / "quarantine.parquet",
        lambda rows: pl.concat([rows, rejected.cast(dict(rows.schema))]),
    )


# minhash_signatures


def _another_digest(folder: Path) -> None:
    digest = pl.lit(bytes(32)).alias("digest")
    _alter(
        folder / "signatures.parquet",
        lambda rows: pl.concat([rows.head(1).with_columns(digest), rows.slice(1)]),
    )


def _a_row_twice_signed(folder: Path) -> None:
    _alter(folder / "signatures.parquet", lambda rows: pl.concat([rows, rows.head(1)]))


def _in_signed(row: pl.Expr, **columns: pl.Expr) -> Callable[[Path], None]:
    """Change columns of the signatures where they stand in a place."""
    here = pl.int_range(pl.len()) == row
    changes = {n: pl.when(here).then(c).otherwise(pl.col(n)) for n, c in columns.items()}
    return lambda folder: _alter(
        folder / "signatures.parquet", lambda rows: rows.with_columns(**changes)
    )


FIRST, LAST = pl.lit(0), pl.len() - 1


def _in_values(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    """Change the signatures."""

    def fault(folder: Path) -> None:
        np.save(folder / "values.npy", change(np.load(folder / "values.npy")))

    return fault


def _first_signature_is_zero(values: np.ndarray) -> np.ndarray:
    values[0] = 0
    return values


def _byte_of_rows(name: str, place: int) -> Callable[[Path], None]:
    """Change a byte of a file of bucket rows, counted from its end."""

    def fault(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1
        (folder / name).write_bytes(data)

    return fault


# dedup_clusters


def _in_edges(similarity: float) -> Callable[[Path], None]:
    value = pl.lit(similarity).alias("similarity")
    return lambda folder: _alter(folder / "edges.parquet", lambda rows: rows.with_columns(value))


def _first_of_kind_is(kind: str, other: str) -> Callable[[Path], None]:
    first = pl.int_range(pl.len()) == (pl.col("kind") == kind).arg_max()
    return _in_clusters(kind=pl.when(first).then(pl.lit(other)).otherwise(pl.col("kind")))


def _in_clusters(**columns: pl.Expr) -> Callable[[Path], None]:
    return lambda folder: _alter(
        folder / "clusters.parquet", lambda rows: rows.with_columns(**columns)
    )


def _all_kept(folder: Path) -> None:
    _in_clusters(
        kept=pl.lit(value=True),
        kind=pl.lit(None, pl.String),
        twin_shard=pl.lit(None, pl.String),
        split=pl.lit("train"),
    )(folder)


def _all_of_a_crawl_near(folder: Path) -> None:
    """Drop all documents of the first crawl but its first for that one."""

    def drop(rows: pl.DataFrame) -> pl.DataFrame:
        first = rows.row(0, named=True)
        others = pl.col("shard").str.starts_with("2026-40") & (pl.int_range(pl.len()) > 0)
        dropped = {"kept": False, "kind": "near", "similarity": 0.9, "split": None}
        twin = {f"twin_{name}": first[name] for name in ("shard", "row", "id")}
        return rows.with_columns(
            **{
                name: pl.when(others).then(pl.lit(value)).otherwise(pl.col(name))
                for name, value in (dropped | twin).items()
            }
        )

    _alter(folder / "clusters.parquet", drop)


def _a_leak(similarity: float) -> Callable[[Path], None]:
    """List a pair of a validation and a train document."""

    def fault(folder: Path) -> None:
        clusters = pl.read_parquet(folder / "clusters.parquet")
        held_out = clusters.filter(pl.col("split") == "validation").row(0, named=True)
        train = clusters.filter(pl.col("split") == "train").row(0, named=True)
        pair = {name: held_out[name] for name in ("shard", "row", "id")}
        pair |= {f"train_{name}": train[name] for name in ("shard", "row", "id")}
        row = pl.DataFrame([pair | {"similarity": similarity}])
        _alter(folder / "leaks.parquet", lambda rows: pl.concat([rows, row]))

    return fault


def _no_english(folder: Path) -> None:
    _alter(folder / "clusters.parquet", lambda rows: rows.filter(pl.col("id").str.contains("page")))


def _a_foreign_document(folder: Path) -> None:
    def exchange(rows: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([rows.slice(1), rows.head(1).with_columns(row=pl.lit(999_999, pl.Int64))])

    _alter(folder / "clusters.parquet", exchange)


def _dropped_twins(folder: Path) -> None:
    def point(rows: pl.DataFrame) -> pl.DataFrame:
        dropped = rows.filter(~pl.col("kept"))
        where = ~pl.col("kept")
        return rows.with_columns(
            twin_shard=pl.when(where).then(pl.lit(dropped["shard"][0])),
            twin_row=pl.when(where).then(pl.lit(dropped["row"][0])),
        )

    _alter(folder / "clusters.parquet", point)


def _similarities(value: float | None) -> Callable[[Path], None]:
    return _in_clusters(similarity=pl.when(~pl.col("kept")).then(pl.lit(value, pl.Float64)))


def _exchanged_splits() -> Callable[[Path], None]:
    first = pl.int_range(pl.len()) == (pl.col("split") == "train").arg_max()
    return _in_clusters(
        split=pl.when(first).then(pl.lit("validation")).otherwise(pl.col("split")),
    )


def _split_of_dropped() -> Callable[[Path], None]:
    return _in_clusters(split=pl.col("split").fill_null("train"))


# tokenizer


def _in_tokenizer(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def fault(folder: Path) -> None:
        path = folder / "tokenizer.json"
        whole = json.loads(path.read_bytes())
        change(whole)
        path.write_text(json.dumps(whole), encoding="utf-8")

    return fault


def _lower_case(whole: dict) -> None:
    whole["normalizer"] = {"type": "Lowercase"}


def _one_special_fewer(whole: dict) -> None:
    gone = whole["added_tokens"].pop()
    del whole["model"]["vocab"][gone["content"]]


def _a_byte_fewer(whole: dict) -> None:
    vocabulary = whole["model"]["vocab"]
    vocabulary["never seen"] = vocabulary.pop("À")  # the letter of byte C0, in no UTF-8 text


def _a_gap(whole: dict) -> None:
    vocabulary = whole["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] += 5


def _an_id_twice(whole: dict) -> None:
    vocabulary = whole["model"]["vocab"]
    *_, before, last = sorted(vocabulary, key=vocabulary.__getitem__)
    vocabulary[last] = vocabulary[before]


def _text_becomes_special(whole: dict) -> None:
    token = next(t for t in whole["added_tokens"] if t["content"] == "<|im_start|>")
    token["special"] = False


# packed_bins and shuffled_bins


def _in_tokens(name: str, change: Callable[[np.ndarray, np.ndarray], None]) -> Callable:
    """Change tokens and ends of a bin where they lie; the header stays as it is."""

    def fault(folder: Path) -> None:
        bin_ = open_token_bin(folder, name)
        tokens, ends = bin_.tokens.copy(), bin_.ends.copy()
        change(tokens, ends)
        (folder / f"{name}.bin").write_bytes(tokens.tobytes())
        (folder / f"{name}.index").write_bytes(ends.tobytes())

    return fault


def _resealed(name: str, fault: Callable[[Path], None]) -> Callable[[Path], None]:
    """Plant a fault in a bin, and have its header say the hashes of what lies there then."""

    def sealed(folder: Path) -> None:
        fault(folder)
        path = folder / f"{name}.json"
        header = json.loads(path.read_bytes())
        for key, end, width in (("bin", "bin", _width(header)), ("index", "index", 8)):
            data = (folder / f"{name}.{end}").read_bytes()
            header[key] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            header["tokens" if key == "bin" else "documents"] = len(data) // width
        path.write_text(json.dumps(header, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    return sealed


def _width(header: dict) -> int:
    return {"uint16": 2, "uint32": 4}[header["dtype"]]


def _an_end_moved(tokens: np.ndarray, ends: np.ndarray) -> None:
    del tokens
    ends[0] += 1


def _beyond_vocabulary(tokens: np.ndarray, ends: np.ndarray) -> None:
    del ends
    tokens[3] = 60_000


def _no_eos(tokens: np.ndarray, ends: np.ndarray) -> None:
    tokens[ends[0] - 1] = tokens[0]


def _eos_inside(tokens: np.ndarray, ends: np.ndarray) -> None:
    tokens[3] = tokens[ends[0] - 1]


def _other_words(tokens: np.ndarray, ends: np.ndarray) -> None:
    tokens[: ends[0] - 1] = tokens[: ends[0] - 1][::-1].copy()


def _a_mask_of(name: str, value: int) -> Callable[[Path], None]:
    """Give a bin whose tokens all count a mask, in which the first document has another value."""

    def fault(folder: Path) -> None:
        bin_ = open_token_bin(folder, name)
        mask = np.ones(len(bin_.tokens), np.uint8)
        mask[: int(bin_.ends[0])] = value
        (folder / f"{name}.loss").write_bytes(mask.tobytes())
        path = folder / f"{name}.json"
        header = json.loads(path.read_bytes())
        digest = hashlib.sha256(mask.tobytes()).hexdigest()
        header["loss"] = {"bytes": len(mask), "sha256": digest}
        path.write_text(json.dumps(header, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    return fault


def _document_more(folder: Path) -> None:
    """Append the first document of a release's train file once more."""
    bin_ = open_token_bin(folder, "train-00000")
    first = bin_.document(0).copy()
    end = np.array([len(bin_.tokens) + len(first)], bin_.ends.dtype)
    tokens, ends = np.concatenate([bin_.tokens, first]), np.concatenate([bin_.ends, end])
    (folder / "train-00000.bin").write_bytes(tokens.tobytes())
    (folder / "train-00000.index").write_bytes(ends.tobytes())


def _train_text_in_validation(folder: Path) -> None:
    """Have the validation file hold, as its first document, what stands first in train."""
    train, held_out = open_token_bin(folder, "train-00000"), open_token_bin(folder, "val-00000")
    first, rest = train.document(0), held_out.tokens[int(held_out.ends[0]) :]
    ends = held_out.ends.astype(np.int64) + (len(first) - int(held_out.ends[0]))
    tokens = np.concatenate([first, rest])
    (folder / "val-00000.bin").write_bytes(tokens.tobytes())
    (folder / "val-00000.index").write_bytes(ends.astype("<u8").tobytes())


def _validation_listed_in_train(folder: Path) -> None:
    def move(rows: pl.DataFrame) -> pl.DataFrame:
        held_out = rows.filter(pl.col("file") == "val-00000.bin").head(1)
        return pl.concat([rows, held_out.with_columns(file=pl.lit("train-00000.bin"))])

    _alter(folder / "documents.parquet", move)


def _in_source_order(folder: Path) -> None:
    """List the documents of the train file as if they lay there as in their shards."""

    def sort(rows: pl.DataFrame) -> pl.DataFrame:
        train = rows.filter(pl.col("file") == "train-00000.bin").sort("shard", "row")
        train = train.with_columns(start=pl.col("tokens").cum_sum() - pl.col("tokens"))
        return pl.concat([train, rows.filter(pl.col("file") != "train-00000.bin")])

    _alter(folder / "documents.parquet", sort)


def _all_other_words(tokens: np.ndarray, ends: np.ndarray) -> None:
    del ends
    tokens[:] = tokens[::-1].copy()


def _other_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b"\n")


# Gates whose fault lies outside the files of their asset; they have tests of their own.
WITHOUT_FILES = {
    ("raw_shards", "verified"),  # a source that states nothing
    ("cleaned_documents", "readable"),  # the raw shard is cut
    ("dedup_clusters", "verdicts"),  # another artifact
    ("dedup_clusters", "canaries"),  # a band that is not searched
    ("dedup_clusters", "uncleared"),  # a limit that was lowered
    ("tokenizer", "vocabulary"),  # a sample too small for what is asked for
    ("packed_bins", "no_loss_ranges"),  # what a record says
    ("packed_bins", "utilisation"),  # a strategy that leaves rows empty
    ("shuffled_bins", "windows"),  # a corpus too small for one
    ("shuffled_bins", "whole"),  # a shard that another gate refused
    ("shuffled_bins", "shrunk"),  # the release in force, which has more documents
}
PACK, RELEASE = "train", "train-00000"
FAULTS = [
    Fault("raw_shards", "sha256", _other_byte),
    Fault("raw_shards", "size", _one_byte_more),
    Fault("cleaned_documents", "ledger", _without_first("documents.parquet")),
    Fault("cleaned_documents", "ledger", _without_first("tombstones.parquet")),
    Fault("cleaned_documents", "ledger", _row_twice),
    Fault("cleaned_documents", "ledger", _unknown_rule),
    Fault("cleaned_documents", "not_empty", _all_dropped_by("dup_lines")),
    Fault("cleaned_documents", "quarantined", _into_quarantine),
    Fault("cleaned_documents", "drop_rate_too_short", _some_dropped_by("too_short", 70)),
    Fault("cleaned_documents", "drop_rate_dup_lines", _some_dropped_by("dup_lines", 40)),
    Fault("cleaned_documents", "drop_rate_char_repeat", _some_dropped_by("char_repeat", 20)),
    Fault("cleaned_documents", "drop_rate_low_alnum", _some_dropped_by("low_alnum", 20)),
    Fault(
        "cleaned_documents",
        "drop_rate_low_lang_confidence",
        _some_dropped_by("low_lang_confidence", 70),
    ),
    Fault("cleaned_documents", "kept_share", _some_dropped_by("too_short", 100)),
    Fault("cleaned_documents", "language_yield", _some_dropped_by("too_short", 115)),
    Fault("minhash_signatures", "coverage", _without_first("signatures.parquet")),
    Fault("minhash_signatures", "coverage", _a_row_twice_signed),
    Fault("minhash_signatures", "exact_keys", _another_digest),
    Fault("minhash_signatures", "exact_keys", _byte_of_rows("exact.rows", -400)),
    Fault("minhash_signatures", "signatures", _in_values(_first_signature_is_zero)),
    Fault("minhash_signatures", "signatures", _in_values(lambda values: values[:-1])),
    Fault("minhash_signatures", "signatures", _in_signed(FIRST, shingles=pl.lit(3))),
    Fault("minhash_signatures", "signatures", _in_signed(FIRST, bytes=pl.lit(3))),
    Fault("minhash_signatures", "estimates", _in_values(np.zeros_like)),
    Fault("minhash_signatures", "estimates", _in_values(lambda values: values & 3)),
    Fault("minhash_signatures", "bands", _byte_of_rows("bands.rows", -1)),
    Fault("minhash_signatures", "bands", _byte_of_rows("bands.rows", -12_000)),
    Fault("dedup_clusters", "not_empty", _in_clusters(kept=pl.lit(value=False))),
    Fault("dedup_clusters", "language_yield", _no_english),
    Fault("dedup_clusters", "ledger", _without_first("clusters.parquet")),
    Fault("dedup_clusters", "ledger", _a_foreign_document),
    Fault("dedup_clusters", "ledger", _in_clusters(kind=pl.lit(None, pl.String))),
    Fault("dedup_clusters", "twins", _dropped_twins),
    Fault("dedup_clusters", "twins", _similarities(0.5)),
    Fault("dedup_clusters", "twins", _similarities(None)),
    Fault("dedup_clusters", "twins", _similarities(float("nan"))),
    Fault("dedup_clusters", "exact_copies", _first_of_kind_is("near", "exact")),
    Fault("dedup_clusters", "exact_copies", _first_of_kind_is("exact", "near")),
    Fault("dedup_clusters", "similarity", _similarities(0.99)),
    Fault("dedup_clusters", "similarity", _in_edges(0.79)),
    Fault("dedup_clusters", "similarity", _in_edges(0.99)),
    Fault("dedup_clusters", "policy", _all_kept),
    Fault("dedup_clusters", "largest_cluster", _in_clusters(cluster=pl.lit(0))),
    Fault("dedup_clusters", "source_yield", _all_of_a_crawl_near),
    Fault("dedup_clusters", "language_survival", _all_of_a_crawl_near),
    Fault("dedup_clusters", "leaks", _a_leak(0.9)),
    Fault("dedup_clusters", "split", _exchanged_splits()),
    Fault("dedup_clusters", "split", _split_of_dropped()),
    Fault("tokenizer", "round_trip", _in_tokenizer(_lower_case)),
    Fault("tokenizer", "special_tokens", _in_tokenizer(_one_special_fewer)),
    Fault("tokenizer", "byte_alphabet", _in_tokenizer(_a_byte_fewer)),
    Fault("tokenizer", "dense_ids", _in_tokenizer(_a_gap)),
    Fault("tokenizer", "dense_ids", _in_tokenizer(_an_id_twice)),
    Fault("tokenizer", "text_stays_text", _in_tokenizer(_text_becomes_special)),
    Fault("packed_bins", "documents", _without_first("documents.parquet")),
    Fault("packed_bins", "ledger", _without_first("documents.parquet")),
    Fault("packed_bins", "index", _in_tokens(PACK, _an_end_moved)),
    Fault("packed_bins", "ids", _in_tokens(PACK, _beyond_vocabulary)),
    Fault("packed_bins", "eos", _in_tokens(PACK, _no_eos)),
    Fault("packed_bins", "eos", _in_tokens(PACK, _eos_inside)),
    Fault("packed_bins", "decodes", _in_tokens(PACK, _other_words)),
    Fault("packed_bins", "sha256", _in_tokens(PACK, _other_words)),
    Fault("packed_bins", "mask", _a_mask_of(PACK, 0)),
    Fault("packed_bins", "mask", _a_mask_of(PACK, 2)),
    Fault("shuffled_bins", "documents", _resealed(RELEASE, _in_tokens(RELEASE, _other_words))),
    Fault("shuffled_bins", "documents", _resealed(RELEASE, _in_tokens(RELEASE, _an_end_moved))),
    Fault("shuffled_bins", "documents", _resealed(RELEASE, _document_more)),
    Fault("shuffled_bins", "documents", _without_first("documents.parquet")),
    Fault("shuffled_bins", "validation", _resealed("val-00000", _train_text_in_validation)),
    Fault("shuffled_bins", "validation", _validation_listed_in_train),
    Fault("shuffled_bins", "sha256", _in_tokens(RELEASE, _other_words)),
    Fault("shuffled_bins", "sha256", _other_tokenizer),
    Fault("shuffled_bins", "tokens", _resealed(RELEASE, _document_more)),
    Fault("shuffled_bins", "order", _in_source_order),
    Fault("shuffled_bins", "decodes", _in_tokens(RELEASE, _all_other_words)),
]
