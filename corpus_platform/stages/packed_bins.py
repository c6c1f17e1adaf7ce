"""packed_bins: per shard and split the tokens of the kept documents, as a stream or in rows.

Documents stand in source order in a stream, and where a row planner put them in rows; where each
begins and whose it is stands beside.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.formats.token_bin import Header, files_of
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages.bins_audit import measure_bin
from corpus_platform.stages.bins_listing import (
    documents_differing,
    documents_of,
    language_numbers,
    ledger_difference,
    utilisation_numbers,
    whole_documents,
)
from corpus_platform.stages.bins_sample import measure_sample
from corpus_platform.stages.bins_writing import BIN_NAMES, Batch, Packing, bin_file, write_bins
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.encoding import Encode, Encoding, encode_shard, open_encoding
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import read_batches, write_table
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.manifest import Json
from corpus_platform.tokenization.documents import EncodedDocuments
from corpus_platform.tokenization.encoder import Encoder, HuggingFaceEncoder, load_encoder

__all__ = [
    "PACKED_DOCUMENTS",
    "STAGE",
    "bin_products",
    "encoder_of",
    "pack_shard",
    "policy_of",
]

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
        pad_token=pack.padding_token,
    )


def bin_products(name: str, header: Header) -> list[Product]:
    """Return the files of a token bin as products; the header comes last."""
    files = [
        Product(
            file, tokens=header.tokens if file == bin_file(name) else None, sha256=hashed.sha256
        )
        for file, hashed in files_of(name, header).items()
    ]
    return [*files, Product(f"{name}.json")]


def pack_shard(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Encode and pack the kept documents of one shard; do nothing when that is done."""
    with project.making(ASSET, shard) as making:
        cleaned = project.require("cleaned_documents", shard)
        verdict = project.require("dedup_verdicts", shard)
        if (report := making.current()) is not None:
            return report
        encoding = _encoding(project, progress)
        kept = pl.read_parquet(verdict.path(VERDICT_FILE)).filter("kept").sort("row")
        with making.draft() as draft:

            def write(encode: Encode) -> _Written:
                batches = _batches(cleaned.path(DOCUMENTS), kept, progress)
                return _write(project, draft, shard, batches, encode)

            written = encode_shard(encoding, shard, kept["row"].to_numpy(), write)
            measured = {**written.measured(), "engine_differences": written.engine_differences}
            return making.publish(
                draft, written.value.products, ledger=written.value.ledger, measured=measured
            )


def _encoding(project: Project, progress: Progress) -> Encoding:
    pack = project.settings.pack
    return open_encoding(
        project,
        eos_token=pack.eos_token,
        bos_token=pack.bos_token,
        pad_token=pack.padding_token,
        choice=project.settings.run.encoder,
        progress=progress,
    )


class _Written(NamedTuple):
    """What stands in a draft, and what was counted on the way."""

    products: list[Product]
    ledger: Json


def _write(
    project: Project, draft: Path, shard: str, batches: Iterable[Batch], encode: Encode
) -> _Written:
    """Write all files of a shard into a draft, whatever another engine has left there."""
    for left in draft.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    encoder, counts = encoder_of(project), Counter[str]()
    documents = write_bins(
        draft,
        shard,
        batches,
        encode=lambda batch: _counted(encode, batch, counts),
        policy=policy_of(encoder),
        packing=_packing(project),
    )
    rows = write_table(draft / PACKED_DOCUMENTS, documents, dictionary=["file", "shard", "lang"])
    headers = {name: Header.read(draft / f"{name}.json") for name in BIN_NAMES.values()}
    products = [Product(PACKED_DOCUMENTS, rows=rows)]
    for name, header in headers.items():
        products += bin_products(name, header)
    counts["padding"] = sum(header.padding for header in headers.values())
    return _Written(products, _ledger(project, counts, encoder, pl.DataFrame(documents)))


def _counted(encode: Encode, batch: Batch, counts: Counter[str]) -> EncodedDocuments:
    texts, metas = (batch.columns[name].to_pylist() for name in ("text", "meta"))
    found = encode(batch.rows, texts, metas)
    counts["text"] += len(found.flat)
    counts["bad_no_loss_ranges"] += found.bad_no_loss_ranges
    return found


def policy_of(encoder: Encoder) -> Policy:
    """Return what token files of an encoder share."""
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


def _batches(path: Path, kept: pl.DataFrame, progress: Progress) -> Iterator[Batch]:
    """Yield the kept documents of a shard, in source order."""
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


def _ledger(project: Project, counts: Counter[str], encoder: Encoder, lines: pl.DataFrame) -> Json:
    pack, documents = project.settings.pack, lines.filter(pl.col("offset") == 0)
    ledger: dict[str, object] = {
        split + what: value
        for split, name in BIN_NAMES.items()
        for what, value in _split_counts(lines, documents, bin_file(name)).items()
    }
    return {
        **ledger,
        "tokens": {
            "text": counts["text"],
            "bos": len(documents) if encoder.bos_id is not None else 0,
            "eos": len(documents) if encoder.eos_id is not None else 0,
            "placed": int(lines["tokens"].sum()),
            "cut": int(documents["cut"].sum()),
            "padding": counts["padding"],
        },
        "truncated_documents": documents.filter(pl.col("cut") > 0).height,
        "bad_no_loss_ranges": counts["bad_no_loss_ranges"],
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
    encoder, packing = encoder_of(project), _packing(project)
    table = pl.read_parquet(folder / PACKED_DOCUMENTS)
    lines, broken = whole_documents(table, row_tokens=packing.row_tokens)
    documents, policy = documents_of(lines), policy_of(encoder)
    texts = project.present("cleaned_documents", shard).path(DOCUMENTS)
    verdict = project.present("dedup_verdicts", shard).path(VERDICT_FILE)
    counts = measure_sample(folder, texts, lines, encoder, policy, shard=shard)
    counts["index_faults"] += broken
    numbers: dict[str, float] = {
        "documents": len(documents),
        "documents_differing": documents_differing(shard, lines, verdict=verdict, cleaned=texts),
        "tokens_cut": int(documents["cut"].sum()),
        "truncated_documents": documents.filter(pl.col("cut") > 0).height,
        "vocab_size": encoder.vocab_size,
        **utilisation_numbers(documents, packing, project.settings.pack.sequence_length),
        **dict(language_numbers(documents)),
    }
    for split, name in BIN_NAMES.items():
        part = lines.filter(pl.col("file") == bin_file(name))
        found = measure_bin(folder, name, part, policy, packing)
        numbers[f"{split}_documents"] = found.pop("documents")
        numbers[f"{split}_tokens"] = found.pop("tokens")
        counts.update(found)
    counts["tokens_unaccounted"] += ledger_difference(
        ledger, documents, policy=policy, limit=packing.max_document_tokens, found=numbers | counts
    )
    numbers |= counts
    if packing.row_tokens is not None:  # what the files hold, not what a plan would
        tokens = numbers["train_tokens"] + numbers["validation_tokens"]
        positions = tokens + numbers["padding_tokens"]
        numbers[f"utilisation/{packing.strategy}"] = tokens / positions if positions else 1.0
    return numbers


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
