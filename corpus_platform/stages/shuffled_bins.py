"""shuffled_bins: all documents of the corpus in one seeded random order, published as a release.

Moves tokens, never encodes again. The id of a release is the hash of what goes in, so an unchanged
corpus gives the same release; `current.json` moves only to a release that all gates let pass.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.errors import Uncleared
from corpus_platform.formats.token_bin import TokenBin, TokenBinWriter, open_token_bin
from corpus_platform.packing.files import cut_files
from corpus_platform.packing.shuffle import document_keys, order
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.packed_bins import BIN_NAMES, PACKED_DOCUMENTS, bin_files
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import write_table
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import check_share_left_out
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import (
    canonical_json,
    file_sha256,
    publish_bytes,
    read_if_there,
)
from corpus_platform.storage.manifest import Json

__all__ = ["STAGE", "current_path", "publish_release", "release_in_force"]

ASSET = "shuffled_bins"
DOCUMENTS, SETTINGS_FILE = "documents.parquet", "settings.json"
GATHERED_TOKENS = 1 << 22  # moved at a time


def current_path(project: Project) -> Path:
    """Return the small file that names the release in force."""
    return project.store.folder(ASSET, None) / "current.json"


def release_in_force(project: Project) -> dict[str, str] | None:
    """Return id and path of the current release, None where there is none."""
    try:
        name = json.loads(current_path(project).read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"id": name, "path": str(current_path(project).parent / name)}


def publish_release(project: Project, *, progress: Progress = quiet) -> Report:
    """Shuffle all packed shards into a release; do nothing when it is there."""
    with project.making(ASSET, None) as making:
        report = making.current()
        if report is None:
            sources = [_open_packed(project, s) for s in _included(project)[0]]
            with making.draft() as draft:
                products, documents = _write_files(project, draft, sources, progress)
                products += _write_companions(project, draft, documents)
                ledger = _ledger(project, documents)
                decided_by = project.settings.model_dump(mode="json", include={"dedup", "split"})
                report = making.publish(draft, products, ledger=ledger, measured=decided_by)
        _move_current(project, report)
    return report


def _pointer(artifact: Artifact) -> bytes:
    whole = {"id": artifact.folder.name, "content": artifact.content}
    return (json.dumps(whole, sort_keys=True) + "\n").encode()


def _move_current(project: Project, report: Report) -> None:
    if any(f.blocks for f in report.findings):
        return
    if read_if_there(current_path(project)) != _pointer(report.artifact):
        publish_bytes(current_path(project), _pointer(report.artifact))


def _unsettled(project: Project, artifact: Artifact) -> str | None:
    if read_if_there(current_path(project)) != _pointer(artifact):
        return "another release is in force; this one is to become current"
    return None


def _included(project: Project) -> tuple[list[str], dict[str, str]]:
    """Return the shards of the last clusters run, and the reasons of those left out.

    Raises Uncleared when packs that should be there may not be read and the limit on shares left
    out would be passed.
    """
    ledger = latest_clusters(project).manifest.ledger
    shards, refusals = [], {}
    for shard in sorted(ledger["verdicts"], key=lambda s: s.split("/", 1)):
        try:
            project.require("packed_bins", shard)
        except Uncleared as refusal:
            if refusal.gate == "current":
                raise
            refusals[shard] = refusal
        else:
            shards.append(shard)
    check_share_left_out(project, ASSET, len(shards), refusals)
    packs = {shard: f"{r.asset}: {r.gate}" for shard, r in refusals.items()}
    return shards, dict(ledger["excluded"]) | packs


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
        for number in range(int(files.max(initial=0)) + 1):
            chosen = np.flatnonzero(files == number)
            base = f"{name}-{number:05d}"
            tokens = _write_file(draft, base, sources, name, ordered, chosen)
            done += tokens
            progress(done, total)
            tokens_file, index, header = bin_files(base)
            products += [Product(tokens_file, tokens=tokens), Product(index), Product(header)]
            tables.append(_document_table(base, sources, ordered, chosen))
    return products, pa.concat_tables(tables)


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


def _ledger(project: Project, documents: pa.Table) -> dict[str, object]:
    frame = pl.DataFrame(documents)
    shards, excluded = _included(project)
    ledger: dict[str, object] = {"shards": shards, "excluded": excluded}
    for split, name in BIN_NAMES.items():
        part = frame.filter(pl.col("file").str.starts_with(f"{name}-"))
        ledger[f"{split}_documents"] = len(part)
        ledger[f"{split}_tokens"] = int(part["tokens"].sum())
    return ledger


def _audit(project: Project, _: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    """Read every released document again and compare it with the packed ones."""
    documents = pl.read_parquet(folder / DOCUMENTS)
    bins = {h.stem: open_token_bin(folder, h.stem) for h in sorted(folder.glob("*-[0-9]*.json"))}
    released, misplaced = _released(bins, documents)
    packed = _packed(project, ledger["shards"])
    train = {h for (split, _, _), (_, h) in released.items() if split == BIN_NAMES["train"]}
    held_out = [h for (split, _, _), (_, h) in released.items() if split != BIN_NAMES["train"]]
    tokens = sum(len(bin_.tokens) for bin_ in bins.values())
    left_out = set(project.shards()).difference(ledger["shards"])
    numbers: dict[str, float] = {
        "documents": len(documents),
        "documents_differing": len(set(released.items()) ^ set(packed.items()))
        + len(documents)
        - len(released)
        + misplaced,
        "leaked": sum(h in train for h in held_out) + _in_both(documents),
        "files_differing": _files_differing(folder, bins),
        "tokens_unaccounted": abs(tokens - sum(n for n, _ in packed.values())),
        "shards_left_out": len(left_out.union(ledger["excluded"])),
        "shards": len(ledger["shards"]),
    }
    for split, name in BIN_NAMES.items():
        files = [bin_ for base, bin_ in bins.items() if _kind(base) == name]
        numbers[f"{split}_tokens"] = sum(len(bin_.tokens) for bin_ in files)
        numbers[f"{split}_documents"] = sum(len(bin_) for bin_ in files)
    return numbers


Documents = dict[tuple[str, str, int], tuple[int, str]]  # (file kind, shard, row) -> tokens, hash


def _kind(base: str) -> str:
    """Return what a file of a release holds, from its base name: train-00000 is train."""
    return base.rsplit("-", 1)[0]


def _files_differing(folder: Path, bins: Mapping[str, TokenBin]) -> int:
    """Count files with another hash than the headers beside them say."""
    tokenizer, differing = file_sha256(folder / TOKENIZER_FILE), 0
    for base, bin_ in bins.items():
        tokens, index, _ = bin_files(base)
        differing += file_sha256(folder / tokens) != bin_.header.bin_sha256
        differing += file_sha256(folder / index) != bin_.header.index_sha256
        differing += tokenizer != bin_.header.tokenizer_sha256
    return differing


def _released(bins: Mapping[str, TokenBin], documents: pl.DataFrame) -> tuple[Documents, int]:
    """Return the documents as the files hold them, and how many lie elsewhere than listed."""
    found: Documents = {}
    misplaced = 0
    for base, bin_ in bins.items():
        part = documents.filter(pl.col("file") == bin_files(base)[0]).sort("start")
        found.update(_hashed(bin_, _kind(base), part))
        ends = bin_.ends.astype(np.int64)
        listed = (part["start"] + part["tokens"]).to_numpy(), part["tokens"].to_numpy()
        if len(ends) == len(part):
            wrong = (ends != listed[0]) | (np.diff(ends, prepend=0) != listed[1])
            misplaced += int(wrong.sum())
        else:
            misplaced += abs(len(ends) - len(part))
    return found, misplaced


def _packed(project: Project, shards: Sequence[str]) -> Documents:
    found: Documents = {}
    for shard in shards:
        artifact = project.present("packed_bins", shard)
        documents = pl.read_parquet(artifact.path(PACKED_DOCUMENTS))
        for name in BIN_NAMES.values():
            bin_ = open_token_bin(artifact.folder, name)
            found.update(
                _hashed(bin_, name, documents.filter(pl.col("file") == bin_files(name)[0]))
            )
    return found


def _hashed(bin_: TokenBin, kind: str, documents: pl.DataFrame) -> Documents:
    """Return count and hash of the tokens between the ends of the index, by document."""
    found: Documents = {}
    for i, (shard, row) in enumerate(documents.select("shard", "row").iter_rows()):
        tokens = bin_.document(i) if i < len(bin_.ends) else bin_.tokens[:0]
        found[kind, shard, row] = (len(tokens), xxhash.xxh3_128_hexdigest(tokens.tobytes()))
    return found


def _in_both(documents: pl.DataFrame) -> int:
    split = pl.col("file").str.starts_with("val-")
    held_out = documents.filter(split).select("shard", "row")
    return len(held_out.join(documents.filter(~split), on=["shard", "row"], how="semi"))


def _settings(project: Project, _: str | None) -> Json:
    return project.settings.shuffle.model_dump()


def _inputs(project: Project, _: str | None) -> dict[str, str]:
    shards, excluded = _included(project)
    inputs = {f"packed_bins[{s}]": project.content("packed_bins", s) for s in shards}
    left_out = {f"left_out[{shard}]": why for shard, why in excluded.items()}
    return {**inputs, **left_out, "tokenizer": project.content("tokenizer", None)}


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=_audit,
    unsettled=_unsettled,
)
