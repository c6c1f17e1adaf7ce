"""shuffled_bins: all documents of the corpus in one seeded random order, published as a release.

Moves tokens, never encodes again. The id of a release is the hash of what goes in, so an unchanged
corpus gives the same release; `current.json` moves only to a release that all gates let pass. How
the files are read again stands in `release_audit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.errors import Uncleared
from corpus_platform.formats.token_bin import TokenBin, TokenBinWriter, open_token_bin
from corpus_platform.packing.files import cut_files
from corpus_platform.packing.shuffle import document_keys, order
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.packed_bins import BIN_NAMES, PACKED_DOCUMENTS, bin_files
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.release_audit import DOCUMENTS, measure_release
from corpus_platform.stages.tables import write_table
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import check_share_left_out, left_out_inputs
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import canonical_json, file_sha256
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.pointer import move_pointer, points_to, read_pointer
from corpus_platform.storage.registry import key_order

__all__ = ["STAGE", "current_path", "publish_release", "release_in_force"]

ASSET = "shuffled_bins"
SETTINGS_FILE = "settings.json"
GATHERED_TOKENS = 1 << 22  # moved at a time


def current_path(project: Project) -> Path:
    """Return the small file that names the release in force."""
    return project.store.folder(ASSET, None) / "current.json"


def release_in_force(project: Project) -> dict[str, str] | None:
    """Return id and path of the current release, None where there is none."""
    path = current_path(project)
    name = read_pointer(path).get("id")
    return {"id": name, "path": str(path.parent / name)} if isinstance(name, str) else None


def publish_release(project: Project, *, progress: Progress = quiet) -> Report:
    """Shuffle all packed shards into a release; do nothing when it is there."""
    with project.making(ASSET, None) as making:
        report = making.current()
        if report is None:
            included = _included(project)
            sources = [_open_packed(project, s) for s in included.shards]
            with making.draft() as draft:
                products, documents = _write_files(project, draft, sources, progress)
                products += _write_companions(project, draft, documents)
                ledger = _ledger(included, documents)
                decided_by = project.settings.model_dump(mode="json", include={"dedup", "split"})
                measured = {**decided_by, "excluded": included.left_out}
                report = making.publish(draft, products, ledger=ledger, measured=measured)
        if not any(f.blocks for f in report.findings):
            move_pointer(current_path(project), _pointer(report.artifact))
    return report


def _pointer(artifact: Artifact) -> dict[str, str]:
    return {"id": artifact.folder.name, "content": artifact.content}


def _unsettled(project: Project, artifact: Artifact) -> str | None:
    if not points_to(current_path(project), _pointer(artifact)):
        return "another release is in force; this one is to become current"
    return None


@dataclass(frozen=True)
class _Included:
    """The shards of a release in key order, and why each other one is left out."""

    shards: list[str]
    left_out: dict[str, str]


def _included(project: Project) -> _Included:
    """Return the shards of the last clusters run whose packs may be read.

    Raises Uncleared when packs that should be there are not, or when more shards are left out, by
    the clusters or here, than the settings allow.
    """
    clusters = latest_clusters(project).manifest
    shards, refusals = [], {}
    for shard in sorted(clusters.ledger["verdicts"], key=key_order):
        try:
            project.require("packed_bins", shard)
        except Uncleared as refusal:
            if refusal.gate == "current":
                raise
            refusals[shard] = refusal
        else:
            shards.append(shard)
    said = clusters.measured.get("excluded", {})
    before = {s: said.get(s, "not cleared") for s in clusters.ledger["excluded"]}
    named = {s: f"{s}, which the clusters leave out: {why}" for s, why in before.items()}
    named = {s: str(r) for s, r in refusals.items()} | named
    check_share_left_out(project, ASSET, len(shards), named)
    left_out = before | {s: f"{r.asset}: {r.gate}" for s, r in refusals.items()}
    return _Included(shards, {s: left_out[s] for s in sorted(left_out, key=key_order)})


@dataclass(frozen=True)
class _Packed:
    """The bins of one shard and the documents in them, by split."""

    shard: str
    bins: dict[str, TokenBin]
    documents: pl.DataFrame


def _open_packed(project: Project, shard: str) -> _Packed:
    artifact = project.require("packed_bins", shard)
    fingerprint = file_sha256(project.require("tokenizer", None).path(TOKENIZER_FILE))
    bins = {
        name: open_token_bin(artifact.folder, name, expect_tokenizer=fingerprint)
        for name in BIN_NAMES.values()
    }
    return _Packed(shard, bins, pl.read_parquet(artifact.path(PACKED_DOCUMENTS)))


@dataclass(frozen=True)
class _Order:
    """All documents of one split in the order of the release."""

    source: np.ndarray  # index of the shard
    start: np.ndarray
    tokens: np.ndarray
    row: np.ndarray
    id: pl.Series


def _shuffled(sources: Sequence[_Packed], name: str, seed: int) -> _Order:
    parts, keys = [], []
    for index, source in enumerate(sources):
        part = source.documents.filter(pl.col("file") == bin_files(name)[0])
        parts.append(part.with_columns(source=pl.lit(index, pl.Int64)))
        keys.append(document_keys(seed, source.shard, part["row"].to_numpy()))
    whole = pl.concat(parts)
    ranks = order(np.concatenate(keys), whole["source"].to_numpy(), whole["row"].to_numpy())
    whole = whole[ranks]
    return _Order(
        whole["source"].to_numpy(),
        whole["start"].to_numpy(),
        whole["tokens"].to_numpy(),
        whole["row"].to_numpy(),
        whole["id"],
    )


def _write_files(
    project: Project, draft: Path, sources: Sequence[_Packed], progress: Progress
) -> tuple[list[Product], pa.Table]:
    shuffle = project.settings.shuffle
    products, tables = [], []
    orders = {name: _shuffled(sources, name, shuffle.seed) for name in BIN_NAMES.values()}
    total, done = sum(int(o.tokens.sum()) for o in orders.values()), 0
    for name, ordered in orders.items():
        files = cut_files(ordered.tokens, max_tokens=shuffle.max_tokens_per_file).file
        for number, chosen in enumerate(_by_file(files)):
            base = f"{name}-{number:05d}"
            tokens = _write_file(draft, base, sources, name, ordered, chosen)
            done += tokens
            progress(done, total)
            tokens_file, index, header = bin_files(base)
            products += [Product(tokens_file, tokens=tokens), Product(index), Product(header)]
            tables.append(_document_table(base, sources, ordered, chosen))
    return products, pa.concat_tables(tables)


def _by_file(files: np.ndarray) -> list[np.ndarray]:
    """Return the documents of each file, given their files in ascending order; at least one file."""
    starts = np.searchsorted(files, np.arange(1, int(files.max(initial=0)) + 1))
    return np.split(np.arange(len(files)), starts)


def _write_file(
    draft: Path,
    base: str,
    sources: Sequence[_Packed],
    name: str,
    ordered: _Order,
    chosen: np.ndarray,
) -> int:
    header = sources[0].bins[name].header
    writer = TokenBinWriter(
        draft,
        base,
        vocab_size=header.vocab_size,
        tokenizer_sha256=header.tokenizer_sha256,
        eos_id=header.eos_id,
    )
    with writer:
        for block in _blocks(ordered, chosen):
            pieces = [
                sources[s].bins[name].tokens[a : a + n]
                for s, a, n in zip(
                    ordered.source[block].tolist(),
                    ordered.start[block].tolist(),
                    ordered.tokens[block].tolist(),
                    strict=True,
                )
            ]
            ends = np.cumsum(ordered.tokens[block])
            writer.append_many(np.concatenate(pieces), ends, terminated=True)
    return int(ordered.tokens[chosen].sum())


def _blocks(ordered: _Order, chosen: np.ndarray) -> Iterator[np.ndarray]:
    """Yield runs of documents of about GATHERED_TOKENS tokens each."""
    ends = np.cumsum(ordered.tokens[chosen])
    start = 0
    while start < len(chosen):
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + GATHERED_TOKENS, side="right")), start + 1)
        yield chosen[start:stop]
        start = stop


def _document_table(
    base: str, sources: Sequence[_Packed], ordered: _Order, chosen: np.ndarray
) -> pa.Table:
    tokens = ordered.tokens[chosen]
    names = pa.array([s.shard for s in sources], pa.string())
    columns = {
        "file": pa.array([bin_files(base)[0]] * len(chosen), pa.string()),
        "start": np.cumsum(tokens) - tokens,
        "tokens": tokens,
        "shard": names.take(pa.array(ordered.source[chosen])),
        "row": ordered.row[chosen],
        "id": ordered.id[chosen].to_arrow().cast(pa.string()),
    }
    return pa.table(columns, schema=RELEASE_DOCUMENTS)


def _write_companions(project: Project, draft: Path, documents: pa.Table) -> list[Product]:
    rows = write_table(draft / DOCUMENTS, documents, dictionary=["file", "shard"])
    tokenizer = project.require("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    (draft / TOKENIZER_FILE).write_bytes(tokenizer)
    # Only what is part of the products' content: a limit changes no byte of a release.
    settings = {asset: stage.code_settings(project) for asset, stage in _settled_stages(project)}
    (draft / SETTINGS_FILE).write_text(canonical_json(settings) + "\n", encoding="utf-8")
    return [Product(DOCUMENTS, rows=rows), Product(TOKENIZER_FILE), Product(SETTINGS_FILE)]


def _settled_stages(project: Project) -> list[tuple[str, Stage]]:
    """Return the stages whose settings are part of a release's content through its inputs.

    Packs depend on what dedup decided and not on its settings, so those stand in the manifest.
    """
    settled = ("cleaned_documents", "tokenizer", "packed_bins", ASSET)
    return [(asset, project.chain[asset]) for asset in settled]


def _ledger(included: _Included, documents: pa.Table) -> dict[str, object]:
    frame = pl.DataFrame(documents)
    ledger: dict[str, object] = {"shards": included.shards, "excluded": list(included.left_out)}
    for split, name in BIN_NAMES.items():
        part = frame.filter(pl.col("file").str.starts_with(f"{name}-"))
        ledger[f"{split}_documents"] = len(part)
        ledger[f"{split}_tokens"] = int(part["tokens"].sum())
    return ledger


def _settings(project: Project, _: str | None) -> Json:
    return project.settings.shuffle.model_dump()


def _inputs(project: Project, _: str | None) -> dict[str, str]:
    included = _included(project)
    packs = {f"packed_bins[{s}]": project.content("packed_bins", s) for s in included.shards}
    left_out = left_out_inputs(included.left_out)
    return {**packs, **left_out, "tokenizer": project.content("tokenizer", None)}


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=measure_release,
    unsettled=_unsettled,
)
