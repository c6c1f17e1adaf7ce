"""Exports that have a file per source shard and split: HDF5 of its tokens, Parquet of its texts.

They are made from exactly the generations that the release was made of. Of HDF5 a name holds a hash
of what is in the file, so that nothing is ever replaced that a reader has open, and a later release
adds to the same folder what is new; shards.json, last, says what counts.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.document import CLEANED
from corpus_platform.errors import UsageError
from corpus_platform.formats.hdf5 import MAX_CHUNK_BYTES, Hdf5Writer, chunk_for
from corpus_platform.formats.hdf5_tokens import load_h5py
from corpus_platform.formats.shards_json import NAME, ShardEntry, ShardIndex
from corpus_platform.formats.token_bin import Header, id_dtype, open_token_bin, token_dtype
from corpus_platform.formats.token_file import open_tokens
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE
from corpus_platform.stages.export_blocks import Span, blocks, first_difference
from corpus_platform.stages.export_plan import Part, Told, span_of
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS
from corpus_platform.stages.pinned_release import PinnedRelease, pinned
from corpus_platform.stages.project import Project
from corpus_platform.stages.tables import TableWriter, read_batches
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import canonical_json, safe_name, text_sha256

__all__ = ["TEXTS", "Hdf5Options", "hdf5_indexes", "hdf5_parts", "parquet_parts"]

TEXTS = pa.schema(
    [
        *CLEANED,
        pa.field("shard", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
    ]
)
BATCH_ROWS = 500


class Hdf5Options(NamedTuple):
    """How HDF5 files are written: what training reads at a time, chunks in tokens, packing."""

    window: int
    chunk: int
    compression: Literal["gzip"] | None

    @classmethod
    def of(
        cls,
        release: PinnedRelease,
        sequence_length: int,
        *,
        window: int | None,
        chunk: int | None,
        compression: Literal["gzip"] | None,
    ) -> "Hdf5Options":
        """Return options with defaults: rows or `sequence_length`, and chunks that are multiples."""
        window = window or release.row_tokens or sequence_length
        if chunk is not None and chunk % window:
            raise UsageError(
                f"--chunk {chunk} is no multiple of the window of {window} tokens, so that a read"
                f" would touch one chunk more; {chunk_for(window)} is one"
            )
        most = MAX_CHUNK_BYTES // id_dtype(release.policy.vocab_size).itemsize
        if (chunk or window) > most:
            option = f"--window {window}" if chunk is None else f"--chunk {chunk}"
            raise UsageError(f"{option}: HDF5 holds {most:,} tokens a chunk; take fewer")
        return cls(window, chunk or chunk_for(window), compression)


def _packs(project: Project, release: PinnedRelease) -> dict[str, Artifact]:
    inputs = {s: release.manifest.inputs[f"packed_bins[{s}]"] for s in release.shards}
    return pinned(project, "packed_bins", release.shards, inputs, of=f"release {release.id}")


def hdf5_parts(project: Project, release: PinnedRelease, options: Hdf5Options) -> list[Part]:
    """Return a part for each shard and split that has documents; MissingExtra without h5py."""
    load_h5py()
    packs, parts = _packs(project, release), list[Part]()
    for split, base in BIN_NAMES.items():
        for shard, artifact in packs.items():
            header = Header.read(artifact.path(f"{base}.json"))
            if not header.entries:
                continue
            name = _hdf5_name(shard, split, artifact.content, header.row_tokens, options)
            one = _Hdf5File(shard, split, name, artifact, options)
            parts.append(Part((name,), header.tokens, one.write, one.differs))
    return parts


def _hdf5_name(
    shard: str, split: str, content: str, row_tokens: int | None, options: Hdf5Options
) -> str:
    """Return a path that no other bytes have."""
    made_of = [content, split, options.chunk, options.compression, Hdf5Writer.format]
    made_of += [row_tokens] if row_tokens is not None else []
    crawl, name = (safe_name(part) for part in shard.split("/", 1))
    return f"{BIN_NAMES[split]}/{crawl}/{name}-{text_sha256(canonical_json(made_of))[:16]}.h5"


class _Hdf5File(NamedTuple):
    shard: str
    split: str
    name: str
    artifact: Artifact
    options: Hdf5Options

    def _span(self) -> tuple[Span, Header]:
        base = BIN_NAMES[self.split]
        bin_ = open_token_bin(self.artifact.folder, base)
        return span_of(f"{base} of {self.shard}", bin_, pieces=True), bin_.header

    def write(self, folder: Path, told: Told) -> list[ExportedFile]:
        """Write the file below a folder."""
        span, header = self._span()
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with Hdf5Writer(
            path,
            vocab_size=header.vocab_size,
            eos_id=header.eos_id,
            tokenizer_sha256=header.tokenizer_sha256,
            chunk_tokens=self.options.chunk,
            window=self.options.window,
            compression=self.options.compression,
            loss=span.loss is not None,
            row_tokens=header.row_tokens,
        ) as writer:
            for block in blocks(span):
                writer.append(block.tokens, block.ends, block.loss)
                told(len(block.tokens))
        ((_, size, sha256, tokens, documents),) = writer.written
        return [
            ExportedFile(
                self.name,
                size,
                sha256,
                self.split,
                tokens,
                documents,
                shard=self.shard,
                content_sha256=writer.tokens_sha256,
            )
        ]

    def differs(self, folder: Path, told: Told) -> str | None:
        """Say in words in what the file is not the packed bin; None: in nothing."""
        return first_difference(open_tokens(folder / self.name), [self._span()[0]], told=told)


def hdf5_indexes(
    release: PinnedRelease, options: Hdf5Options, files: Sequence[ExportedFile]
) -> dict[str, bytes]:
    """Return the bytes of each split's shards.json by path."""
    policy = release.policy
    return {
        f"{base}/{NAME}": ShardIndex(
            tokenizer_sha256=policy.tokenizer_sha256,
            vocab_size=policy.vocab_size,
            eos_id=policy.eos_id,
            dtype="uint16" if token_dtype(policy.vocab_size) == "uint16" else "uint32",
            window=options.window,
            shards=tuple(_entry(base, file) for file in files if file.split == split),
        ).to_json()
        for split, base in BIN_NAMES.items()
    }


def _entry(base: str, file: ExportedFile) -> ShardEntry:
    return ShardEntry(
        path=file.path.removeprefix(f"{base}/"),
        tokens=file.tokens,
        docs=file.documents,
        sha256=file.content_sha256 or "",
        bytes=file.bytes,
        shard=file.shard or "",
    )


def parquet_parts(project: Project, release: PinnedRelease) -> list[Part]:
    """Return a part for each shard and split that has documents."""
    packs = _packs(project, release)
    texts = [_texts(project, release, shard, pack) for shard, pack in packs.items()]
    parts = list[Part]()
    for split in BIN_NAMES:
        filled = [one for one in texts if one.rows(split)]
        for number, one in enumerate(filled):
            # No name of a shard: in one with "test" in it, datasets would see a split of that name.
            name = f"{split}/{split}-{number:05d}-of-{len(filled):05d}.parquet"
            count = one.rows(split)
            parts.append(
                Part((name,), count, partial(_write_texts, one, split, name), partial(_texts_differ, one, split, name))
            )  # fmt: skip
    return parts


class _Texts(NamedTuple):
    """The cleaned documents and verdicts that a shard was packed from."""

    shard: str
    cleaned: Artifact
    verdict: Artifact
    packed: Artifact

    def rows(self, split: str) -> int:
        """Count the documents of a split."""
        return int(self.packed.manifest.ledger[f"{split}_documents"])


def _texts(project: Project, release: PinnedRelease, shard: str, pack: Artifact) -> _Texts:
    inputs, of = pack.manifest.inputs, f"release {release.id}"
    sources = [
        pinned(project, asset, [shard], {shard: inputs[asset]}, of=of)[shard]
        for asset in ("cleaned_documents", "dedup_verdicts")
    ]
    return _Texts(shard, *sources, pack)


def _chosen(texts: _Texts, split: str) -> Iterator[pa.Table]:
    """Yield the documents of a split as they are exported, in batches, in source order."""
    kept = pl.read_parquet(texts.verdict.path(VERDICT_FILE)).filter("kept")
    rows = kept.filter(pl.col("split") == split)["row"].to_numpy()
    for batch in read_batches(texts.cleaned.path(DOCUMENTS), CLEANED.names, rows=BATCH_ROWS):
        chosen = batch.filter(pa.array(np.isin(batch.column("row").to_numpy(), rows)))
        if chosen.num_rows:
            columns = {name: chosen.column(name) for name in CLEANED.names}
            count = chosen.num_rows
            columns |= {"shard": pa.repeat(texts.shard, count), "split": pa.repeat(split, count)}
            yield pa.table(columns).cast(TEXTS)


def _write_texts(
    texts: _Texts, split: str, name: str, folder: Path, told: Told
) -> list[ExportedFile]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with TableWriter(
        path, TEXTS, dictionary=["lang", "shard", "split"], group_rows=10_000
    ) as writer:
        for table in _chosen(texts, split):
            writer.write(table)
            told(table.num_rows)
        rows = writer.close()
    return [ExportedFile.of(path, name, split=split, documents=rows, shard=texts.shard)]


def _texts_differ(texts: _Texts, split: str, name: str, folder: Path, told: Told) -> str | None:
    """Hold a written file against the cleaned documents, and its rows against the packed ones."""
    packed = pl.read_parquet(texts.packed.path(PACKED_DOCUMENTS), columns=["file", "row", "offset"])
    of_split = (pl.col("file") == bin_file(BIN_NAMES[split])) & (pl.col("offset") == 0)
    wanted = packed.filter(of_split)["row"].sort()
    if not pl.read_parquet(folder / name, columns=["row"])["row"].equals(wanted):
        return f"its records are not the {len(wanted)} that the release has of {texts.shard}"
    with pq.ParquetFile(folder / name) as file:
        held, batches = TEXTS.empty_table(), file.iter_batches(BATCH_ROWS)
        for table in _chosen(texts, split):
            while held.num_rows < table.num_rows:
                batch = next(batches, None)
                if batch is None:
                    return "it ends too early"
                held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(TEXTS)])
            if not pl.DataFrame(held.slice(0, table.num_rows)).equals(
                pl.DataFrame(table)
            ):  # NaN is NaN
                return f"a document of record {table['row'][0]} or after it is another"
            held = held.slice(table.num_rows)
            told(table.num_rows)
    return None
