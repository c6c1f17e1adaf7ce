"""packed_bins: per shard and split the tokens of the kept documents, as a stream or in rows.

Documents stand in source order in a stream, and where a row planner put them in rows; where each
begins and whose it is stands beside.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.formats.token_bin import Header, files_of
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages.bins_audit import (
    language_numbers,
    ledger_difference,
    measure_bin,
    utilisation_numbers,
    whole_documents,
)
from corpus_platform.stages.bins_sample import measure_sample
from corpus_platform.stages.bins_writing import BIN_NAMES, Batch, Packing, bin_file, write_bins
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import read_batches, write_table
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.documents import EncodedDocuments, encode_documents
from corpus_platform.tokenization.encoder import Encoder, HuggingFaceEncoder, load_encoder

__all__ = ["PACKED_DOCUMENTS", "STAGE", "bin_products", "encoder_of", "pack_shard"]

ASSET = "packed_bins"
PACKED_DOCUMENTS = "documents.parquet"
BATCH_DOCUMENTS = 500
OF_ROWS = {"sequence_length", "pad_token"}  # settings that a stream of documents does not know


def encoder_of(project: Project) -> HuggingFaceEncoder:
    """Return the encoder of the corpus's tokenizer, which must be cleared."""
    artifact, pack = project.require("tokenizer", None), project.settings.pack
    return load_encoder(
        artifact.path(TOKENIZER_FILE).read_bytes(),
        eos_token=pack.eos_token,
        bos_token=pack.bos_token,
        pad_token=None if pack.strategy == "concat" else pack.pad_token,
    )


def bin_products(name: str, header: Header) -> list[Product]:
    """Return the files of a token bin as products; the header comes last."""
    files = [
        Product(file, tokens=header.tokens if file == bin_file(name) else None)
        for file in files_of(name, header)
    ]
    return [*files, Product(f"{name}.json")]


def pack_shard(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Encode and pack the kept documents of one shard; do nothing when that is done."""
    with project.making(ASSET, shard) as making:
        cleaned = project.require("cleaned_documents", shard)
        verdict = project.require("dedup_verdicts", shard)
        if (report := making.current()) is not None:
            return report
        encoder = encoder_of(project)
        with making.draft() as draft:
            run = _Run(encoder, encoder)
            batches = _batches(cleaned.path(DOCUMENTS), verdict, progress)
            documents = write_bins(
                draft,
                shard,
                batches,
                encode=run.encode,
                policy=_policy(encoder),
                packing=_packing(project),
            )
            rows = write_table(draft / PACKED_DOCUMENTS, documents, dictionary=DICTIONARY)
            products = [Product(PACKED_DOCUMENTS, rows=rows)]
            for name in BIN_NAMES.values():
                products += bin_products(name, Header.read(draft / f"{name}.json"))
            ledger = _ledger(project, run, encoder, pl.DataFrame(documents))
            return making.publish(draft, products, ledger=ledger)


DICTIONARY = ["file", "shard", "lang"]


class _Run:
    """One way through a shard: encodes its batches and counts what came out."""

    def __init__(self, encoder: Encoder, reference: HuggingFaceEncoder) -> None:
        self._encoder, self._reference = encoder, reference
        self.counts: Counter[str] = Counter()

    def encode(self, batch: Batch) -> EncodedDocuments:
        """Return the ids of a batch."""
        texts, metas = (batch.columns[n].to_pylist() for n in ("text", "meta"))
        found = encode_documents(self._encoder, self._reference, texts, metas)
        self.counts["text"] += len(found.flat)
        self.counts["bad_no_loss_ranges"] += found.bad_no_loss_ranges
        return found


def _policy(encoder: Encoder) -> Policy:
    return Policy(
        vocab_size=encoder.vocab_size,
        tokenizer_sha256=encoder.fingerprint,
        eos_id=encoder.eos_id,
        bos_id=encoder.bos_id,
        pad_id=encoder.pad_id,
    )


def _packing(project: Project) -> Packing:
    pack = project.settings.pack
    length = None if pack.strategy == "concat" else pack.sequence_length
    return Packing(pack.strategy, length, pack.max_document_tokens)


def _batches(path: Path, verdict: Artifact, progress: Progress) -> Iterator[Batch]:
    """Yield the kept documents of a shard, in source order."""
    kept = pl.read_parquet(verdict.path(VERDICT_FILE)).filter("kept").sort("row")
    rows, held_out = kept["row"].to_numpy(), (kept["split"] == "validation").to_numpy()
    done = 0
    for batch in read_batches(path, ["row", "id", "text", "lang", "meta"], rows=BATCH_DOCUMENTS):
        found = batch.column("row").to_numpy()
        place = np.searchsorted(rows, found)
        chosen = place < len(rows)
        chosen[chosen] = rows[place[chosen]] == found[chosen]
        if chosen.any():
            columns = batch.filter(pa.array(chosen))
            yield Batch(found[chosen], held_out[place[chosen]], columns)
        done += int(np.count_nonzero(chosen))
        progress(done, len(rows))


def _ledger(project: Project, run: _Run, encoder: Encoder, lines: pl.DataFrame) -> Json:
    pack, documents = project.settings.pack, lines.filter(pl.col("offset") == 0)
    ledger: dict[str, object] = {
        split + what: value
        for split, name in BIN_NAMES.items()
        for what, value in _split_counts(lines, documents, bin_file(name)).items()
    }
    return {
        **ledger,
        "tokens": {
            "text": run.counts["text"],
            "bos": len(documents) if encoder.bos_id is not None else 0,
            "eos": len(documents) if encoder.eos_id is not None else 0,
            "placed": int(lines["tokens"].sum()),
            "cut": int(documents["cut"].sum()),
        },
        "truncated_documents": documents.filter(pl.col("cut") > 0).height,
        "bad_no_loss_ranges": run.counts["bad_no_loss_ranges"],
        "vocab_size": encoder.vocab_size,
        "eos": "none" if pack.eos_token is None else "appended",
        "bos": "none" if pack.bos_token is None else "prepended",
    }


def _split_counts(lines: pl.DataFrame, documents: pl.DataFrame, file: str) -> dict[str, int]:
    of_file = pl.col("file") == file
    return {
        "_documents": documents.filter(of_file).height,
        "_tokens": int(lines.filter(of_file)["tokens"].sum()),
    }


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    """Measure the written bins against the verdict, the tokenizer and the cleaned texts."""
    encoder, pack = encoder_of(project), project.settings.pack
    lines, broken = whole_documents(pl.read_parquet(folder / PACKED_DOCUMENTS))
    documents = _documents(lines)
    numbers: dict[str, float] = {
        "documents_differing": _differing(project, shard, documents),
        "tokens_unaccounted": ledger_difference(ledger, lines),
        "index_faults": broken,
        "tokens_cut": int(documents["cut"].sum()),
        "truncated_documents": documents.filter(pl.col("cut") > 0).height,
        "bad_no_loss_ranges": ledger["bad_no_loss_ranges"],
        "vocab_size": encoder.vocab_size,
        **utilisation_numbers(documents, pack.strategy, pack.sequence_length),
        **dict(language_numbers(documents)),
    }
    texts = project.present("cleaned_documents", shard).path(DOCUMENTS)
    counts = measure_sample(folder, texts, lines, encoder, _policy(encoder))
    for split, name in BIN_NAMES.items():
        part = lines.filter(pl.col("file") == bin_file(name))
        found = measure_bin(folder, name, part, _policy(encoder))
        numbers[f"{split}_documents"] = found.pop("documents")
        numbers[f"{split}_tokens"] = found.pop("tokens")
        counts.update(found)
    return numbers | {name: numbers.get(name, 0) + count for name, count in counts.items()}


def _documents(lines: pl.DataFrame) -> pl.DataFrame:
    """Return a line for each document, in source order."""
    whole = lines.group_by("shard", "row", "file", maintain_order=True)
    return whole.agg(pl.col("tokens", "cut").sum(), pl.col("lang").first()).sort("row")


def _differing(project: Project, shard: str | None, documents: pl.DataFrame) -> int:
    """Count documents that are kept or packed and not both, in their split, once."""
    verdict = project.present("dedup_verdicts", shard).path(VERDICT_FILE)
    kept = pl.read_parquet(verdict).filter("kept").select("row", "split")
    splits = {bin_file(name): split for split, name in BIN_NAMES.items()}
    split = pl.col("file").replace_strict(splits, default=None, return_dtype=pl.String)
    found = documents.select("row", split=split)
    return (
        len(kept.join(found, on=["row", "split"], how="anti"))
        + len(found.join(kept, on=["row", "split"], how="anti"))
        + len(found)
        - found["row"].n_unique()
        + int((documents["shard"] != shard).sum())
    )


def _settings(project: Project, _: str | None) -> Json:
    pack = project.settings.pack
    return pack.model_dump(exclude=OF_ROWS if pack.strategy == "concat" else set())


def _inputs(project: Project, shard: str | None) -> dict[str, str]:
    return {
        "cleaned_documents": project.content("cleaned_documents", shard),
        "dedup_verdicts": project.content("dedup_verdicts", shard),
        "tokenizer": project.content("tokenizer", None),
    }


STAGE = Stage(
    asset=ASSET, version=2, per_shard=True, settings=_settings, inputs=_inputs, audit=_audit
)
