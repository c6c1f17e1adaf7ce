"""packed_bins: per shard and split the tokens of the kept documents, each ended by one EOS.

Documents stand in source order, back to back; where each begins and whose it is stands beside.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.formats.token_bin import TokenBin, TokenBinWriter, open_token_bin
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import read_batches, write_table
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.encoder import Encoder, load_encoder

__all__ = [
    "BIN_NAMES",
    "EOS_TOKEN",
    "PACKED_DOCUMENTS",
    "STAGE",
    "bin_files",
    "encoder_of",
    "pack_shard",
]

ASSET = "packed_bins"
PACKED_DOCUMENTS = "documents.parquet"
EOS_TOKEN = SPECIAL_TOKENS[0]
BIN_NAMES = {"train": "train", "validation": "val"}  # split -> base name of its files
BATCH_DOCUMENTS = 500
SAMPLED_DOCUMENTS = 50  # decoded again by the audit


def bin_files(name: str) -> tuple[str, str, str]:
    """Return the files of a token bin: tokens, index, header."""
    return f"{name}.bin", f"{name}.index", f"{name}.json"


def encoder_of(project: Project) -> Encoder:
    """Return the encoder of the corpus's tokenizer, which must be cleared."""
    artifact = project.require("tokenizer", None)
    return load_encoder(artifact.path(TOKENIZER_FILE).read_bytes(), eos_token=EOS_TOKEN)


def pack_shard(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Encode and pack the kept documents of one shard; do nothing when that is done."""
    with project.making(ASSET, shard) as making:
        cleaned = project.require("cleaned_documents", shard)
        verdict = project.require("dedup_verdicts", shard)
        if (report := making.current()) is not None:
            return report
        encoder = encoder_of(project)
        verdicts = pl.read_parquet(verdict.path(VERDICT_FILE)).filter("kept")
        splits = dict(verdicts.select("row", "split").iter_rows())
        with making.draft() as draft:
            documents = _write_bins(
                draft,
                encoder,
                shard,
                splits,
                _progressing(cleaned.path(DOCUMENTS), splits, progress),
            )
            rows = write_table(draft / PACKED_DOCUMENTS, documents, dictionary=["file", "shard"])
            counts = _counts(documents)
            products = [Product(PACKED_DOCUMENTS, rows=rows)]
            for split, name in BIN_NAMES.items():
                tokens, index, header = bin_files(name)
                products += [
                    Product(tokens, tokens=counts[f"{split}_tokens"]),
                    Product(index),
                    Product(header),
                ]
            ledger = {**counts, "vocab_size": encoder.vocab_size, "eos": "appended", "bos": "none"}
            return making.publish(draft, products, ledger=ledger)


def _progressing(
    path: Path, splits: dict[int, str], progress: Progress
) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Yield rows, ids and texts of the kept documents, in batches."""
    done = 0
    for batch in read_batches(path, ["row", "id", "text"], rows=BATCH_DOCUMENTS):
        rows = batch.column("row").to_pylist()
        kept = pa.array([i for i, row in enumerate(rows) if row in splits], pa.int64())
        part = batch.take(kept)
        done += part.num_rows
        progress(done, len(splits))
        if part.num_rows:
            yield tuple(part.column(n).to_pylist() for n in ("row", "id", "text"))


def _write_bins(
    draft: Path,
    encoder: Encoder,
    shard: str,
    splits: dict[int, str],
    batches: Iterator[tuple[list[int], list[str], list[str]]],
) -> pa.Table:
    """Write the bins of all splits; return the table of their documents."""
    columns: dict[str, list[object]] = {name: [] for name in RELEASE_DOCUMENTS.names}
    written = dict.fromkeys(BIN_NAMES, 0)
    with ExitStack() as stack:
        writers = {
            split: stack.enter_context(
                TokenBinWriter(
                    draft,
                    name,
                    vocab_size=encoder.vocab_size,
                    tokenizer_sha256=encoder.fingerprint,
                    eos_id=encoder.eos_id,
                )
            )
            for split, name in BIN_NAMES.items()
        }
        for rows, ids, texts in batches:
            encoded = encoder.encode(texts)
            starts = np.concatenate(([0], encoded.ends[:-1]))
            for row, id_, start, end in zip(rows, ids, starts, encoded.ends, strict=True):
                split, tokens = splits[row], int(end - start) + 1  # the writer adds the EOS
                writers[split].append(encoded.flat[start:end])
                added = (bin_files(BIN_NAMES[split])[0], written[split], tokens, shard, row, id_)
                written[split] += tokens
                for name, value in zip(RELEASE_DOCUMENTS.names, added, strict=True):
                    columns[name].append(value)
    return pa.table(columns, schema=RELEASE_DOCUMENTS)


def _counts(documents: pa.Table) -> dict[str, int]:
    frame = pl.DataFrame(documents)
    counts = {}
    for split, name in BIN_NAMES.items():
        part = frame.filter(pl.col("file") == bin_files(name)[0])
        counts[f"{split}_documents"] = len(part)
        counts[f"{split}_tokens"] = int(part["tokens"].sum())
    return counts


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    """Measure the written bins against the verdict, the tokenizer and the cleaned texts."""
    encoder = encoder_of(project)
    documents = pl.read_parquet(folder / PACKED_DOCUMENTS)
    verdict = project.present("dedup_verdicts", shard).path(VERDICT_FILE)
    kept = pl.read_parquet(verdict).filter("kept").select("row", "split")
    splits = {bin_files(name)[0]: split for split, name in BIN_NAMES.items()}
    found = documents.select(
        "row", split=pl.col("file").replace_strict(splits, default=None, return_dtype=pl.String)
    )
    numbers: dict[str, float] = {
        "documents_differing": len(kept.join(found, on=["row", "split"], how="anti"))
        + len(found.join(kept, on=["row", "split"], how="anti"))
        + len(found)
        - found["row"].n_unique()
        + int((documents["shard"] != shard).sum())
    }
    totals = {"tokens_unaccounted": 0, "ids_out_of_range": 0, "bad_ends": 0, "undecodable": 0}
    texts = _sampled_texts(project, shard, documents)
    for split, name in BIN_NAMES.items():
        part = documents.filter(pl.col("file") == bin_files(name)[0])
        bin_ = open_token_bin(folder, name, expect_tokenizer=encoder.fingerprint)
        for key, value in _measure(bin_, part, encoder, texts).items():
            totals[key] += value
        numbers[f"{split}_documents"] = len(bin_.ends)
        numbers[f"{split}_tokens"] = len(bin_.tokens)
    return {**numbers, **totals, "vocab_size": encoder.vocab_size}


def _measure(
    bin_: TokenBin, documents: pl.DataFrame, encoder: Encoder, texts: dict[int, str]
) -> dict[str, int]:
    """Count what is wrong in one bin, given its documents and the texts of a sample."""
    tokens, ends = bin_.tokens, bin_.ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    wanted = documents["tokens"].to_numpy(), documents["start"].to_numpy()
    aligned = len(ends) == len(documents)
    unaccounted = abs(int(ends[-1] if len(ends) else 0) - len(tokens))
    if aligned:
        unaccounted += int((lengths != wanted[0]).sum() + (starts != wanted[1]).sum())
    else:
        unaccounted += abs(len(ends) - len(documents))
    is_eos = tokens == encoder.eos_id
    last = np.zeros(len(tokens), np.bool_)
    last[np.clip(ends[lengths > 0] - 1, 0, max(len(tokens) - 1, 0))] = True
    bad_ends = int((is_eos != last).sum()) + int((lengths == 0).sum())
    bad_ends += bin_.header.eos_id != encoder.eos_id
    undecodable = 0
    for i, row in enumerate(documents["row"].to_list()):
        if row in texts:
            ids = tokens[starts[i] : ends[i] - 1] if aligned else tokens[:0]
            undecodable += encoder.decode(ids) != texts[row]
    out_of_range = int((tokens >= encoder.vocab_size).sum())
    out_of_range += bin_.header.vocab_size != encoder.vocab_size
    return {
        "tokens_unaccounted": unaccounted,
        "ids_out_of_range": out_of_range,
        "bad_ends": bad_ends,
        "undecodable": undecodable,
    }


def _sampled_texts(project: Project, shard: str | None, documents: pl.DataFrame) -> dict[int, str]:
    rows = documents["row"].to_list()
    step = max(1, len(rows) // SAMPLED_DOCUMENTS)
    path = project.present("cleaned_documents", shard).path(DOCUMENTS)
    wanted = pl.scan_parquet(path).filter(pl.col("row").is_in(rows[::step]))
    return dict(wanted.select("row", "text").collect().iter_rows())


def _settings(project: Project, _: str | None) -> Json:
    # The sequence length serves the report only: a packed stream does not know it.
    return {**project.settings.pack.model_dump(include={"strategy"}), "eos": EOS_TOKEN}


def _inputs(project: Project, shard: str | None) -> dict[str, str]:
    return {
        "cleaned_documents": project.content("cleaned_documents", shard),
        "dedup_verdicts": project.content("dedup_verdicts", shard),
        "tokenizer": project.content("tokenizer", None),
    }


STAGE = Stage(
    asset=ASSET, version=1, per_shard=True, settings=_settings, inputs=_inputs, audit=_audit
)
