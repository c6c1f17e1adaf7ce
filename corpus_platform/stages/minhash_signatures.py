"""minhash_signatures: for each cleaned document its exact key, MinHash signature and band hashes.

They depend on the text and the dedup settings only; comparing documents is the next stage's.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import band_hashes
from corpus_platform.dedup.exact import text_digest
from corpus_platform.dedup.minhash import MinHasher
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.document import SIGNATURES
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import TableWriter, read_batches
from corpus_platform.storage.manifest import Json
from corpus_platform.text.folding import fold

__all__ = ["SIGNATURE_FILE", "STAGE", "sign_documents"]

ASSET = "minhash_signatures"
SIGNATURE_FILE = "signatures.parquet"
SAMPLE_GROUPS = 2  # row groups of which the audit computes the exact keys again


def sign_documents(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Sign the cleaned documents of one shard; do nothing when that is done."""
    with project.making(ASSET, shard) as making:
        cleaned = project.require("cleaned_documents", shard)
        if (report := making.current()) is not None:
            return report
        dedup, total, done = project.settings.dedup, int(cleaned.numbers["kept"]), 0
        hasher = MinHasher(dedup.permutations)
        with making.draft() as draft, TableWriter(draft / SIGNATURE_FILE, SIGNATURES) as writer:
            for batch in read_batches(cleaned.path(DOCUMENTS), ["row", "id", "text"]):
                writer.write(_sign(batch, dedup, hasher))
                done += batch.num_rows
                progress(done, total)
            products = [Product(SIGNATURE_FILE, rows=writer.close())]
            return making.publish(draft, products, ledger={"documents": done})


def _sign(batch: pa.RecordBatch, dedup: DedupSettings, hasher: MinHasher) -> pa.Table:
    digests, sizes = [], []
    signatures = np.empty((batch.num_rows, dedup.permutations), np.uint32)
    for i, text in enumerate(batch.column("text").to_pylist()):
        folded = fold(text)
        hashes = shingle_hashes(folded, kind=dedup.shingle, width=dedup.width)
        signatures[i] = hasher.signature(hashes)
        digests.append(text_digest(folded))
        sizes.append(len(hashes))
    bands = band_hashes(signatures, dedup.bands, dedup.rows)
    columns = {
        "row": batch.column("row"),
        "id": batch.column("id"),
        "digest": pa.array(digests, pa.binary(32)),
        "shingles": pa.array(sizes, pa.int64()),
        "signature": [s.astype("<u4").tobytes() for s in signatures],
        "bands": [b.astype("<u8").tobytes() for b in bands],
    }
    return pa.table(columns, schema=SIGNATURES)


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    cleaned = project.present("cleaned_documents", shard).path(DOCUMENTS)
    signed = pl.read_parquet(folder / SIGNATURE_FILE, columns=["row", "digest"])
    rows = pl.read_parquet(cleaned, columns=["row"])["row"]
    uncovered = len(set(rows.to_list()) ^ set(signed["row"].to_list()))
    uncovered += len(signed) - signed["row"].n_unique()
    return {
        "documents": len(rows),
        "signed": len(signed),
        "uncovered": uncovered,
        "wrong_digests": _wrong_digests(cleaned, dict(signed.iter_rows())),
    }


def _wrong_digests(cleaned: Path, digests: dict[int, bytes]) -> int:
    """Count documents of the first and last row groups whose text has another exact key."""
    wrong = 0
    with pq.ParquetFile(cleaned) as file:
        last = file.num_row_groups - 1
        for group in sorted(
            {*range(min(SAMPLE_GROUPS - 1, last + 1)), max(last, 0)} & {*range(last + 1)}
        ):
            table = file.read_row_group(group, columns=["row", "text"])
            for row, text in zip(
                *(table.column(n).to_pylist() for n in ("row", "text")), strict=True
            ):
                wrong += digests.get(row) != text_digest(fold(text))
    return wrong


def _settings(project: Project, shard: str | None) -> Json:
    dedup = project.settings.dedup
    wanted = {"shingle", "width", "permutations", "bands", "rows"}
    return {**dedup.model_dump(include=wanted), "scheme": _scheme(dedup.permutations)}


@lru_cache
def _scheme(permutations: int) -> str:
    return MinHasher(permutations).scheme


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=True,
    settings=_settings,
    inputs=lambda project, shard: {
        "cleaned_documents": project.content("cleaned_documents", shard)
    },
    audit=_audit,
)
