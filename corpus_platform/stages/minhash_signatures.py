"""minhash_signatures: for each cleaned document its exact key, MinHash signature and band hashes.

They depend on the text and the dedup settings only; comparing documents is the next stage's. What
that stage reads of all shards again and again, exact keys and band hashes, lies in bucket rows:
split by band and first byte, so that a bucket is found without reading the others.
"""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import DedupSettings
from corpus_platform.dedup.bands import band_hashes
from corpus_platform.dedup.exact import text_digest
from corpus_platform.dedup.signing import Signer, scheme_of
from corpus_platform.dedup.witness import witness
from corpus_platform.document import SIGNATURES
from corpus_platform.errors import StorageError
from corpus_platform.formats.bucket_rows import BucketRows, write_bucket_rows
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import TableWriter, read_batches
from corpus_platform.storage.manifest import Json
from corpus_platform.text.folding import fold

__all__ = [
    "BAND_FILE",
    "EXACT_FILE",
    "SIGNATURE_FILE",
    "STAGE",
    "VALUES_FILE",
    "band_rows",
    "big_endian",
    "exact_rows",
    "sign_documents",
    "signature_values",
]

ASSET = "minhash_signatures"
SIGNATURE_FILE = "signatures.parquet"  # a row a document
VALUES_FILE = "values.npy"  # uint32 [documents, k]: the signatures
BAND_FILE, EXACT_FILE = "bands.rows", "exact.rows"
SAMPLE_GROUPS = 2  # row groups of which the audit computes the exact keys again
SIGNED_AGAIN = 100  # documents of each of them, evenly spread, that the audit signs again
WITNESSED = 16  # of these, those whose estimates are held against datasketch's
SCHEME = b"scheme"  # key in the metadata of the table
BATCH = 256  # documents signed at a time
GROUP_ROWS = 1 << 16  # of the table, whose columns are read for themselves


def band_rows(folder: Path, dedup: DedupSettings) -> BucketRows:
    """Open the band hashes of a shard; those of another scheme or banding are refused."""
    return BucketRows(folder / BAND_FILE, scheme=_band_scheme(dedup))


def exact_rows(folder: Path, dedup: DedupSettings) -> BucketRows:
    """Open the exact keys of a shard."""
    return BucketRows(folder / EXACT_FILE, scheme=_exact_scheme(dedup))


def signature_values(folder: Path, dedup: DedupSettings) -> np.ndarray:
    """Map the signatures of a shard, uint32 [documents, k]; nothing is read before it is used.

    Raises StorageError where they were made by another scheme, which the table beside them names.
    """
    path = folder / VALUES_FILE
    _check_scheme(folder / SIGNATURE_FILE, scheme_of(dedup))
    permutations = dedup.permutations
    try:
        values = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: no signatures can be read: {error}; make it again") from error
    if values.dtype != np.dtype("<u4") or values.ndim != 2 or values.shape[1] != permutations:
        raise StorageError(
            f"{path}: holds {values.dtype} {values.shape}, not uint32 of {permutations} values"
        )
    return values


def _check_scheme(table: Path, wanted: str) -> None:
    try:
        found = (pq.read_schema(table).metadata or {}).get(SCHEME)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"{table}: cannot be read: {error}; make it again") from error
    if found != wanted.encode():
        raise StorageError(
            f"{table}: signatures of scheme {found!r}, and those of {wanted!r} are wanted; they"
            " cannot be mixed: sign the shard again with these settings"
        )


def _band_scheme(dedup: DedupSettings) -> str:
    bands, rows = dedup.banding
    return f"{scheme_of(dedup)}/bands={bands}x{rows}"


def _exact_scheme(dedup: DedupSettings) -> str:
    return f"sha256-{dedup.exact}"


def sign_documents(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Sign the cleaned documents of one shard; do nothing when that is done."""
    with project.making(ASSET, shard) as making:
        cleaned = project.require("cleaned_documents", shard)
        if (report := making.current()) is not None:
            return report
        total = int(cleaned.numbers["kept"])
        with making.draft() as draft:
            path = cleaned.path(DOCUMENTS)
            documents = _sign_all(path, draft, project.settings.dedup, total, progress)
            files = (SIGNATURE_FILE, VALUES_FILE, BAND_FILE, EXACT_FILE)
            products = [Product(name, rows=documents) for name in files]
            return making.publish(draft, products, ledger={"documents": documents})


def _sign_all(
    cleaned: Path, draft: Path, dedup: DedupSettings, total: int, progress: Progress
) -> int:
    """Write the four files of a shard; return its documents.

    Bands and keys are kept until the end, since they are sorted: 160 bytes a document.
    """
    signer, done = Signer(dedup), 0
    named = SIGNATURES.with_metadata({SCHEME: signer.scheme})
    digests, bands = [np.empty((0, 32), np.uint8)], [np.empty((0, dedup.banding[0]), np.uint64)]
    with (
        TableWriter(draft / SIGNATURE_FILE, named, group_rows=GROUP_ROWS) as table,
        (draft / VALUES_FILE).open("wb") as values,
    ):
        _write_npy_header(values, total, dedup.permutations)
        for batch in read_batches(cleaned, ["row", "id", "text"], rows=BATCH):
            signed = signer.sign(batch.column("text").to_pylist())
            columns = {
                "row": batch.column("row"),
                "id": batch.column("id"),
                "digest": pa.array([d.tobytes() for d in signed.digests], pa.binary(32)),
                "bytes": pa.array(signed.bytes, pa.int64()),
                "shingles": pa.array(signed.shingles, pa.int64()),
            }
            table.write(pa.table(columns, schema=SIGNATURES))
            values.write(signed.signatures.astype("<u4", copy=False).tobytes())
            digests.append(signed.digests)
            bands.append(signed.bands)
            done += batch.num_rows
            progress(done, total)
        table.close()
    keys = big_endian(np.concatenate(bands))
    write_bucket_rows(draft / BAND_FILE, keys, scheme=_band_scheme(dedup))
    exact = [np.concatenate(digests)]
    write_bucket_rows(draft / EXACT_FILE, exact, scheme=_exact_scheme(dedup))
    return done


def big_endian(bands: np.ndarray) -> list[np.ndarray]:
    """Return band hashes, uint64 [n, b], as the keys of b sections, uint8 [n, 8]."""
    n = len(bands)
    return [
        np.ascontiguousarray(band).astype(">u8").view(np.uint8).reshape(n, 8) for band in bands.T
    ]


def _write_npy_header(file: BinaryIO, documents: int, permutations: int) -> None:
    header = {"descr": "<u4", "fortran_order": False, "shape": (documents, permutations)}
    np.lib.format.write_array_header_1_0(file, header)


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    cleaned = project.present("cleaned_documents", shard).path(DOCUMENTS)
    dedup = project.settings.dedup
    signed = pl.read_parquet(folder / SIGNATURE_FILE, columns=["row", "digest"])
    rows = pl.read_parquet(cleaned, columns=["row"])["row"]
    uncovered = len(set(rows.to_list()) ^ set(signed["row"].to_list()))
    uncovered += len(signed) - signed["row"].n_unique()
    wrong_values, again = _signed_again(cleaned, folder, dedup)
    return {
        "documents": len(rows),
        "signed": len(signed),
        "uncovered": uncovered,
        "wrong_digests": _wrong_digests(cleaned, dict(signed.iter_rows()), dedup)
        + _wrong_exact_rows(folder, signed["digest"], dedup),
        "wrong_signatures": wrong_values,
        "wrong_bands": _wrong_bands(folder, dedup),
        **again,
    }


def _wrong_exact_rows(folder: Path, digests: pl.Series, dedup: DedupSettings) -> int:
    """Count documents whose key in the rows is not that of the table."""
    rows = BucketRows(folder / EXACT_FILE, scheme=_exact_scheme(dedup))
    wanted = np.frombuffer(b"".join(digests.to_list()), np.uint8).reshape(-1, 32)
    return _differing(rows, 0, wanted)


def _wrong_bands(folder: Path, dedup: DedupSettings) -> int:
    """Count documents of which a band's hash is not that of the signature."""
    values = signature_values(folder, dedup)
    rows = BucketRows(folder / BAND_FILE, scheme=_band_scheme(dedup))
    wanted = big_endian(band_hashes(np.asarray(values), *dedup.banding))
    return max(_differing(rows, band, keys) for band, keys in enumerate(wanted))


def _differing(rows: BucketRows, section: int, wanted: np.ndarray) -> int:
    """Count documents that are not once in a section with the wanted key."""
    keys, documents = rows.read(section)
    known = documents < len(wanted)
    found = np.zeros_like(wanted)
    found[documents[known]] = keys[known]
    times = np.bincount(documents[known], minlength=len(wanted))
    wrong = (found != wanted).any(axis=1) | (times != 1)
    return int(np.count_nonzero(wrong)) + int(np.count_nonzero(~known))


def _wrong_digests(cleaned: Path, digests: dict[int, bytes], dedup: DedupSettings) -> int:
    """Count documents of the sampled row groups whose text has another exact key."""
    raw = dedup.exact == "raw"
    return sum(
        digests.get(row) != text_digest((text if raw else fold(text)).encode())
        for group in _sampled_groups(cleaned)
        for row, text in group.iter_rows()
    )


def _signed_again(
    cleaned: Path, folder: Path, dedup: DedupSettings
) -> tuple[int, dict[str, float]]:
    """Sign a sample again: return how many differ, and how far the stored estimates are off.

    A document with another signature or number of shingles differs, and all that have none.
    """
    table = pl.read_parquet(folder / SIGNATURE_FILE, columns=["row", "shingles", "bytes"])
    values = signature_values(folder, dedup)
    wrong, signer = abs(len(values) - len(table)), Signer(dedup)
    places = {row: i for i, row in enumerate(table["row"].to_list()) if i < len(values)}
    texts, stored = [], []
    for group in _sampled_groups(cleaned):
        sample = group.gather_every(max(1, len(group) // SIGNED_AGAIN)).head(SIGNED_AGAIN)
        sample = sample.filter(pl.col("row").is_in(list(places)))
        found = signer.sign(sample["text"].to_list())
        at = np.array([places[row] for row in sample["row"].to_list()], np.int64)
        same = (values[at] == found.signatures).all(axis=1)
        same &= table["shingles"].to_numpy()[at] == found.shingles
        same &= table["bytes"].to_numpy()[at] == found.bytes
        wrong += int(np.count_nonzero(~same))
        step = max(1, len(at) // WITNESSED)
        texts += sample["text"].to_list()[::step][:WITNESSED]
        stored.append(values[at[::step][:WITNESSED]])
    empty = np.empty((0, dedup.permutations), np.uint32)
    seen = witness(texts, np.concatenate([empty, *stored]), signer, seed=len(table))
    return wrong, {
        "estimate_pairs": seen.pairs,
        "estimate_ratio": seen.ratio,
        "estimate_bias": seen.bias,
        "witness_ratio": seen.witness_ratio,
    }


def _sampled_groups(cleaned: Path) -> Iterator[pl.DataFrame]:
    """Yield row and text of the documents of the first and last row groups."""
    with pq.ParquetFile(cleaned) as file:
        last = file.num_row_groups - 1
        groups = {*range(min(SAMPLE_GROUPS - 1, last + 1)), max(last, 0)} & {*range(last + 1)}
        for group in sorted(groups):
            yield pl.DataFrame(file.read_row_group(group, columns=["row", "text"]))


def _settings(project: Project, shard: str | None) -> Json:
    dedup = project.settings.dedup
    bands, rows = dedup.banding
    return {
        **dedup.model_dump(include={"exact", "shingle", "width", "permutations"}),
        "bands": bands,
        "rows": rows,
        "scheme": scheme_of(dedup),
        "_unicode": unicodedata.unidata_version,  # of the tables that folding and units go by
    }


STAGE = Stage(
    asset=ASSET,
    version=2,
    per_shard=True,
    settings=_settings,
    inputs=lambda project, shard: {
        "cleaned_documents": project.content("cleaned_documents", shard)
    },
    audit=_audit,
)
