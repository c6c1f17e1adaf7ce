"""minhash_signatures: for each cleaned document its exact key, MinHash signature and band hashes.

They depend on the text and the dedup settings only; comparing documents is the next stage's.
"""

import unicodedata
from collections.abc import Iterator
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
from corpus_platform.stages.tables import TableWriter, fixed_matrix, read_batches
from corpus_platform.storage.manifest import Json
from corpus_platform.text.folding import fold

__all__ = ["SIGNATURE_FILE", "STAGE", "sign_documents"]

ASSET = "minhash_signatures"
SIGNATURE_FILE = "signatures.parquet"
SAMPLE_GROUPS = 2  # row groups of which the audit computes the exact keys again
SIGNED_AGAIN = 100  # documents of each of them, evenly spread, that the audit signs again


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
    cleaned, dedup = (
        project.present("cleaned_documents", shard).path(DOCUMENTS),
        project.settings.dedup,
    )
    signed = pl.read_parquet(folder / SIGNATURE_FILE, columns=["row", "digest"])
    rows = pl.read_parquet(cleaned, columns=["row"])["row"]
    uncovered = len(set(rows.to_list()) ^ set(signed["row"].to_list()))
    uncovered += len(signed) - signed["row"].n_unique()
    misshapen, wrong_bands = _count_wrong_blobs(folder / SIGNATURE_FILE, dedup)
    return {
        "documents": len(rows),
        "signed": len(signed),
        "uncovered": uncovered,
        "wrong_digests": _wrong_digests(cleaned, dict(signed.iter_rows())),
        "wrong_signatures": misshapen + _wrong_signatures(cleaned, folder / SIGNATURE_FILE, dedup),
        "wrong_bands": wrong_bands,
    }


def _count_wrong_blobs(path: Path, dedup: DedupSettings) -> tuple[int, int]:
    """Count the rows whose signature is not k values, and whose bands are not those of it."""
    misshapen, wrong_bands = 0, 0
    for batch in read_batches(path, ["signature", "bands"], rows=10_000):
        whole = _has_width(batch.column("signature"), dedup.permutations * 4)
        sound = whole & _has_width(batch.column("bands"), dedup.bands * 8)
        misshapen += int((~whole).sum())
        wrong_bands += int((~sound).sum())
        part = batch.filter(pa.array(sound))
        signatures = fixed_matrix(part.column("signature"), "<u4", dedup.permutations)
        bands = fixed_matrix(part.column("bands"), "<u8", dedup.bands)
        wanted = band_hashes(signatures, dedup.bands, dedup.rows)
        wrong_bands += int((bands != wanted).any(axis=1).sum())
    return misshapen, wrong_bands


def _has_width(column: pa.Array, size: int) -> np.ndarray:
    sizes = pl.Series(column, dtype=pl.Binary).bin.size()
    return (sizes == size).fill_null(value=False).to_numpy()


def _wrong_digests(cleaned: Path, digests: dict[int, bytes]) -> int:
    """Count documents of the sampled row groups whose text has another exact key."""
    return sum(
        digests.get(row) != text_digest(fold(text))
        for group in _sampled_groups(cleaned)
        for row, text in group.iter_rows()
    )


def _wrong_signatures(cleaned: Path, path: Path, dedup: DedupSettings) -> int:
    """Count documents of the sample whose text has another signature or number of shingles."""
    hasher, wrong = MinHasher(dedup.permutations), 0
    for group in _sampled_groups(cleaned):
        sample = group.gather_every(max(1, len(group) // SIGNED_AGAIN)).head(SIGNED_AGAIN)
        signed = pl.scan_parquet(path).filter(pl.col("row").is_in(sample["row"].to_list()))
        columns = signed.select("row", "signature", "shingles").collect()
        found = {row: (signature, size) for row, signature, size in columns.iter_rows()}
        for row, text in sample.iter_rows():
            hashes = shingle_hashes(fold(text), kind=dedup.shingle, width=dedup.width)
            signature = hasher.signature(hashes).astype("<u4").tobytes()
            wrong += row in found and found[row] != (signature, len(hashes))
    return wrong


def _sampled_groups(cleaned: Path) -> Iterator[pl.DataFrame]:
    """Yield row and text of the documents of the first and last row groups."""
    with pq.ParquetFile(cleaned) as file:
        last = file.num_row_groups - 1
        groups = {*range(min(SAMPLE_GROUPS - 1, last + 1)), max(last, 0)} & {*range(last + 1)}
        for group in sorted(groups):
            yield pl.DataFrame(file.read_row_group(group, columns=["row", "text"]))


def _settings(project: Project, shard: str | None) -> Json:
    dedup = project.settings.dedup
    wanted = {"shingle", "width", "permutations", "bands", "rows"}
    return {
        **dedup.model_dump(include=wanted),
        "scheme": _scheme(dedup.permutations),
        "_unicode": unicodedata.unidata_version,  # of the tables that folding and units go by
    }


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
