"""shuffled_bins: all documents or rows of the corpus in one seeded random order: a release.

Moves tokens, never encodes again. The id of a release is the hash of what goes in, so an unchanged
corpus gives the same release; `current.json` moves only to a release that all gates let pass. How
the files are read again stands in `release_audit`.
"""

import contextlib
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corpus_platform.errors import StorageError, Uncleared
from corpus_platform.formats.token_bin import Header
from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.packed_bins import PACKED_DOCUMENTS, bin_products
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.release_audit import DOCUMENTS, measure_release
from corpus_platform.stages.release_in_force import (
    current_path,
    documents_in_force,
    release_in_force,
)
from corpus_platform.stages.release_report import SETTINGS_FILE, write_report
from corpus_platform.stages.release_shards import counts_by_shard
from corpus_platform.stages.shuffle_scratch import LAYOUT
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.shuffling import (
    LinesWriter,
    PackedShard,
    Shuffle,
    Shuffled,
    shuffle_split,
)
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.stages.uncleared import check_share_left_out, left_out_inputs
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import boot_id, canonical_json, text_sha256
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.pointer import move_pointer, points_to
from corpus_platform.storage.registry import key_order
from corpus_platform.tokenization.encoder import load_encoder

__all__ = [
    "STAGE",
    "current_path",
    "publish_release",
    "release_in_force",
    "scratch_of",
    "shuffle_scratch",
]

ASSET = "shuffled_bins"


def publish_release(project: Project, *, progress: Progress = quiet) -> Report:
    """Shuffle all packed shards into a release; do nothing when it is there."""
    with project.making(ASSET, None) as making:
        report = making.current()
        if report is None:
            included = _included(project)
            with _scratch(project, making.key) as scratch, making.draft() as draft:
                with LinesWriter(draft / DOCUMENTS) as lines:
                    splits = _write_files(project, draft, included.shards, scratch, lines, progress)
                products = _write_companions(project, draft, splits, lines.rows)
                ledger = _ledger(included, splits, draft / DOCUMENTS)
                decided_by = project.settings.model_dump(mode="json", include={"dedup", "split"})
                measured = {**decided_by, "excluded": included.left_out}
                told = partial(write_report, project, draft, ledger, included.left_out)
                report = making.publish(
                    draft, products, ledger=ledger, measured=measured, telling=told
                )
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


def _packed(project: Project, shard: str) -> PackedShard:
    artifact = project.require("packed_bins", shard)
    return PackedShard(shard, artifact.folder, artifact.path(PACKED_DOCUMENTS))


def _write_files(
    project: Project,
    draft: Path,
    shards: Sequence[str],
    scratch: Path,
    lines: LinesWriter,
    progress: Progress,
) -> dict[str, Shuffled]:
    """Write the token files of both splits, and the lines of their documents."""
    packed = [_packed(project, shard) for shard in shards]
    totals = [
        Header.read(p.folder / f"{n}.json").tokens for p in packed for n in BIN_NAMES.values()
    ]
    moved, done = 2 * sum(totals), 0

    def told(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, moved)

    how = _shuffle(project, scratch)
    return {
        split: shuffle_split(draft, name, packed, how, lines=lines, told=told)
        for split, name in BIN_NAMES.items()
    }


def _shuffle(project: Project, scratch: Path) -> Shuffle:
    shuffle, run = project.settings.shuffle, project.settings.run
    return Shuffle(
        seed=shuffle.seed,
        level=Level(shuffle.unit, shuffle.unit_tokens),
        max_tokens_per_file=shuffle.max_tokens_per_file,
        pad_id=_padding(project) if shuffle.unit == "windows" else None,
        bucket_bytes=run.bucket_bytes,
        workers=project.workers,
        scratch=scratch,
    )


def _padding(project: Project) -> int | None:
    data = project.require("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    return load_encoder(data, eos_token=None, pad_token=project.settings.pack.pad_token).pad_id


def shuffle_scratch(project: Project) -> Path:
    """Return the folder of what lies between the passes; other corpora may have the same scratch."""
    settings = project.settings
    return settings.scratch_path / f"shuffle-{text_sha256(str(settings.storage_path))[:16]}"


def scratch_of(project: Project, key: str) -> Path:
    """Return the folder that the shuffle of a release goes on with, if it is there.

    Its name tells the start of the machine, since nothing in it is forced to the disk.
    """
    return shuffle_scratch(project) / f"{key[:16]}-{LAYOUT}-{boot_id()}"


@contextlib.contextmanager
def _scratch(project: Project, key: str) -> Generator[Path]:
    """Give the folder of what lies between the passes; it is gone after a shuffle that ended well.

    Those of others are removed.
    """
    folder = scratch_of(project, key)
    home = folder.parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        for left in home.iterdir():
            if left != folder:
                shutil.rmtree(left, ignore_errors=True)
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{home}: what lies between the passes of a shuffle cannot be written there: {error};"
            " name another folder with run.scratch"
        ) from error
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # a link to a folder elsewhere stays
        home.rmdir()


def _write_companions(
    project: Project, draft: Path, splits: Mapping[str, Shuffled], rows: int
) -> list[Product]:
    """Write what lies beside the token files; return all files of the release.

    `rows` are those of the table of documents.
    """
    files = [p for s in splits.values() for n, h in s.headers.items() for p in bin_products(n, h)]
    tokenizer = project.require("tokenizer", None).path(TOKENIZER_FILE).read_bytes()
    (draft / TOKENIZER_FILE).write_bytes(tokenizer)
    # Only what is part of the products' content: a limit changes no byte of a release.
    settings = {asset: stage.code_settings(project) for asset, stage in _settled_stages(project)}
    (draft / SETTINGS_FILE).write_text(canonical_json(settings) + "\n", encoding="utf-8")
    beside = [Product(DOCUMENTS, rows=rows), Product(TOKENIZER_FILE), Product(SETTINGS_FILE)]
    return files + beside


def _settled_stages(project: Project) -> list[tuple[str, Stage]]:
    """Return the stages whose settings are part of a release's content through its inputs.

    Packs depend on what dedup decided and not on its settings, so those stand in the manifest.
    """
    settled = ("cleaned_documents", "tokenizer", "packed_bins", ASSET)
    return [(asset, project.chain[asset]) for asset in settled]


def _ledger(
    included: _Included, splits: Mapping[str, Shuffled], documents: Path
) -> dict[str, object]:
    ledger: dict[str, object] = {"shards": included.shards, "excluded": list(included.left_out)}
    counts = dict[str, int]()
    for split, shuffled in splits.items():
        headers = shuffled.headers.values()
        counts[f"{split}_documents"] = shuffled.documents
        counts[f"{split}_tokens"] = sum(h.tokens - h.padding for h in headers)
        ledger[f"{split}_padding"] = sum(h.padding for h in headers)
        ledger[f"{split}_oversized_files"] = shuffled.oversized
        if shuffled.empty:
            ledger[f"{split}_documents_without_tokens"] = shuffled.empty
    by_shard = counts_by_shard(documents, included.shards, counts)
    return {**ledger, **counts, "by_shard": by_shard}


def _settings(project: Project, _: str | None) -> Json:
    shuffle = project.settings.shuffle
    settings = shuffle.model_dump(include={"seed", "unit", "max_tokens_per_file"})
    if shuffle.unit_tokens:
        settings["unit_tokens"] = shuffle.unit_tokens
    if shuffle.unit == "windows":
        settings["pad_token"] = project.settings.pack.pad_token
    return settings


def _inputs(project: Project, _: str | None) -> dict[str, str]:
    included = _included(project)
    packs = {f"packed_bins[{s}]": project.content("packed_bins", s) for s in included.shards}
    left_out = left_out_inputs(included.left_out)
    return {**packs, **left_out, "tokenizer": project.content("tokenizer", None)}


STAGE = Stage(
    asset=ASSET,
    version=3,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=measure_release,
    unsettled=_unsettled,
    today=documents_in_force,
)
