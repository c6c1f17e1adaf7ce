"""shuffled_bins: all documents or rows of the corpus in one seeded random order: a release.

Moves tokens, never encodes again. The id of a release is the hash of what goes in, so an unchanged
corpus gives the same release; `current.json` moves only to a release that all gates let pass. How
the files are read again stands in `release_audit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.errors import Uncleared
from corpus_platform.formats.token_bin import Header, TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter
from corpus_platform.packing.files import cut_files
from corpus_platform.packing.shuffle import document_keys, order
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS, bin_products
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


class _Packed(NamedTuple):
    """The bins of one shard and the lines of what is in them, by split."""

    shard: str
    bins: dict[str, TokenBin]
    lines: dict[str, pl.DataFrame]


def _open_packed(project: Project, shard: str) -> _Packed:
    artifact = project.require("packed_bins", shard)
    fingerprint = file_sha256(project.require("tokenizer", None).path(TOKENIZER_FILE))
    names = BIN_NAMES.values()
    bins = {n: open_token_bin(artifact.folder, n, expect_tokenizer=fingerprint) for n in names}
    documents = pl.read_parquet(artifact.path(PACKED_DOCUMENTS), columns=RELEASE_DOCUMENTS.names)
    lines = {n: documents.filter(pl.col("file") == bin_file(n)).sort("start") for n in names}
    return _Packed(shard, bins, lines)


class _Order(NamedTuple):
    """What moves as one, documents or rows, of one split in the order of the release.

    The lines and the entries of the index that a unit has are [begin, end) in `lines` and in its
    source's index.
    """

    lines: pl.DataFrame
    source: np.ndarray  # index of the shard
    start: np.ndarray
    tokens: np.ndarray
    line_begin: np.ndarray
    line_end: np.ndarray
    entry_begin: np.ndarray
    entry_end: np.ndarray
    documents_before: np.ndarray  # of each shard, in the split

    def only(self, chosen: np.ndarray) -> "_Order":
        """Return some units, in that order."""
        kept = ("lines", "documents_before")
        taken = {n: getattr(self, n)[chosen] for n in self._fields if n not in kept}
        return self._replace(**taken)


def _shuffled(sources: Sequence[_Packed], name: str, seed: int) -> _Order:
    parts, keys, before = list[_Order](), list[np.ndarray](), 0
    for index, source in enumerate(sources):
        units, numbers = _units(source, name, index, before)
        keys.append(document_keys(seed, source.shard, numbers))
        parts.append(units)
        before += len(units.lines)
    whole = _Order(
        pl.concat([p.lines for p in parts]),
        *(np.concatenate([getattr(p, n) for p in parts]) for n in _Order._fields[1:-1]),
        documents_before=np.cumsum([0, *(s.bins[name].header.documents for s in sources[:-1])]),
    )
    # Units of a shard come in the order of their rows.
    return whole.only(order(np.concatenate(keys), whole.source, whole.line_begin))


def _units(source: _Packed, name: str, index: int, lines_before: int) -> tuple[_Order, np.ndarray]:
    """Return the units of one shard as they lie, and the numbers that their keys are made of."""
    bin_, lines = source.bins[name], source.lines[name]
    length = bin_.header.row_tokens
    if length is None:
        start, tokens = lines["start"].to_numpy(), lines["tokens"].to_numpy()
        lines_end = entries_end = np.arange(1, len(lines) + 1)
        numbers = lines["row"].to_numpy()
    else:
        numbers = np.arange(bin_.header.rows)
        start, tokens = numbers * length, np.full(len(numbers), length)
        lines_end = np.searchsorted(lines["start"].to_numpy(), start + length)
        entries_end = np.searchsorted(bin_.ends, (start + length).astype(np.uint64)) + 1
    units = _Order(
        lines.with_columns(source=pl.lit(index, pl.Int64)),
        np.full(len(start), index),
        start,
        tokens,
        lines_before + np.concatenate(([0], lines_end[:-1]))[: len(start)],
        lines_before + lines_end,
        np.concatenate(([0], entries_end[:-1]))[: len(start)],
        entries_end,
        np.zeros(0, np.int64),
    )
    return units, numbers


def _write_files(
    project: Project, draft: Path, sources: Sequence[_Packed], progress: Progress
) -> tuple[list[Product], pa.Table]:
    shuffle = project.settings.shuffle
    products, tables = [], []
    orders = {name: _shuffled(sources, name, shuffle.seed) for name in BIN_NAMES.values()}
    total, done = sum(int(o.tokens.sum()) for o in orders.values()), 0
    for name, ordered in orders.items():
        files = cut_files(ordered.tokens, max_tokens=shuffle.max_tokens_per_file).file
        bins = [s.bins[name] for s in sources]
        for number, chosen in enumerate(_by_file(files)):
            base, part = f"{name}-{number:05d}", ordered.only(chosen)
            header = _write_file(draft, base, bins, part)
            done += header.tokens
            progress(done, total)
            products += bin_products(base, header)
            tables.append(_document_table(base, sources, part))
    return products, pa.concat_tables(tables)


def _by_file(files: np.ndarray) -> list[np.ndarray]:
    """Return the units of each file, given their files in ascending order; at least one file."""
    starts = np.searchsorted(files, np.arange(1, int(files.max(initial=0)) + 1))
    return np.split(np.arange(len(files)), starts)


def _write_file(draft: Path, base: str, bins: Sequence[TokenBin], ordered: _Order) -> Header:
    policy, length = Policy.of(bins[0].header), bins[0].header.row_tokens
    if length is None:
        with TokenBinWriter(draft, base, policy) as writer:
            for block in _blocks(ordered.tokens):
                part = ordered.only(block)
                tokens, loss = _moved(bins, part)
                writer.append_many(tokens, np.cumsum(part.tokens), loss=loss, complete=True)
    else:
        with RowBinWriter(draft, base, policy, row_tokens=length) as writer:
            for block in _blocks(ordered.tokens):
                part = ordered.only(block)
                tokens, loss = _moved(bins, part)
                ends, pieces = _moved_entries(bins, part)
                writer.append_rows(tokens, ends, pieces, loss=loss)
    return Header.read(draft / f"{base}.json")


def _moved(bins: Sequence[TokenBin], part: _Order) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the tokens of some units back to back, and which count where any does not."""
    places = list(zip(*(a.tolist() for a in (part.source, part.start, part.tokens)), strict=True))
    tokens = np.concatenate([bins[s].tokens[a : a + n] for s, a, n in places])
    if all(bin_.loss is None for bin_ in bins):
        return tokens, None
    masks = [np.ones(0, np.bool_)]
    for s, a, n in places:
        loss = bins[s].loss
        masks.append(np.ones(n, np.bool_) if loss is None else loss[a : a + n].astype(np.bool_))
    return tokens, np.concatenate(masks)


def _moved_entries(bins: Sequence[TokenBin], part: _Order) -> tuple[np.ndarray, np.ndarray]:
    """Return where the pieces of some rows end, from the first row on, and of what they are."""
    ends, pieces, before = [], [], 0
    fields = (part.source, part.start, part.tokens, part.entry_begin, part.entry_end)
    for s, start, tokens, begin, end in zip(*(a.tolist() for a in fields), strict=True):
        source = bins[s]
        assert source.pieces is not None
        ends.append(source.ends[begin:end].astype(np.int64) - start + before)
        moved = source.pieces[begin:end].copy()
        moved["document"][moved["document"] >= 0] += part.documents_before[s]
        pieces.append(moved)
        before += tokens
    return np.concatenate(ends), np.concatenate(pieces)


def _blocks(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """Yield runs of units of about GATHERED_TOKENS tokens each."""
    ends, start = np.cumsum(tokens), 0
    while start < len(tokens):
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + GATHERED_TOKENS, side="right")), start + 1)
        yield np.arange(start, stop)
        start = stop


def _document_table(base: str, sources: Sequence[_Packed], ordered: _Order) -> pa.Table:
    """Return the lines of a file, as its units come."""
    counts = ordered.line_end - ordered.line_begin
    before = np.cumsum(counts) - counts
    taken = np.repeat(ordered.line_begin - before, counts) + np.arange(int(counts.sum()))
    lines = ordered.lines[taken]
    moved = np.cumsum(ordered.tokens) - ordered.tokens - ordered.start
    names = pa.array([s.shard for s in sources], pa.string())
    columns = {
        "file": pa.repeat(bin_file(base), len(lines)),
        "start": lines["start"].to_numpy() + np.repeat(moved, counts),
        "tokens": lines["tokens"].to_numpy(),
        "shard": names.take(pa.array(lines["source"].to_numpy())),
        "row": lines["row"].to_numpy(),
        "id": lines["id"].to_arrow().cast(pa.string()),
        "offset": lines["offset"].to_numpy(),
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
        ledger[f"{split}_documents"] = part.filter(pl.col("offset") == 0).height
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
    version=2,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=measure_release,
    unsettled=_unsettled,
)
