"""Releases of a few tokens, as no chain makes them: any policy, masks, rows, files and shards.

They are written by the native writers and published with a manifest all of whose gates pass.
"""

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform import gates
from corpus_platform.config import ChecksSettings
from corpus_platform.document import RELEASE_DOCUMENTS
from corpus_platform.formats.token_bin import PIECE_DTYPE
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.packed_bins import bin_products
from corpus_platform.stages.project import Project
from corpus_platform.stages.tables import write_table
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Manifest, Output

__all__ = ["Documents", "empty_project", "policy_of", "write_release", "write_rows"]

Documents = Sequence[Sequence[int]]
TOKENIZER = b'{"a tokenizer": "that nobody reads"}'
SHARD = "2026-40/a.jsonl"


def empty_project(folder: Path, more: str = "") -> Project:
    """Return a project of which nothing is made."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "corpus.yaml"
    config.write_text(f"storage: data\nsources: [{{glob: 'source/{{crawl}}/*'}}]\n{more}")
    return open_project(load_settings(config))


def policy_of(**changes: int | None) -> Policy:
    """Return a policy of 100 ids whose documents end in 0."""
    values = {"vocab_size": 100, "eos_id": 0, "bos_id": None, "pad_id": None, **changes}
    vocab_size = values.pop("vocab_size")
    assert vocab_size is not None
    return Policy(vocab_size, hashlib.sha256(TOKENIZER).hexdigest(), **values)


def write_release(
    project: Project,
    files: Mapping[str, Documents],
    *,
    policy: Policy | None = None,
    masks: Mapping[str, Sequence[int]] | None = None,
    excluded: Sequence[str] = (),
) -> str:
    """Publish a release of documents, given without control tokens; return its id."""
    policy = policy or policy_of()
    lines = []
    with project.store.draft("shuffled_bins", None) as draft:
        for base, documents in files.items():
            flat = np.array([i for d in documents for i in d], np.uint32)
            ends = np.cumsum([len(d) for d in documents], dtype=np.int64)
            mask = None if masks is None or base not in masks else np.array(masks[base], np.bool_)
            with TokenBinWriter(draft, base, policy) as writer:
                writer.append_many(flat, ends, loss=mask)
            lengths = np.diff(ends, prepend=0) + policy.controls
            lines += [
                (f"{base}.bin", start, count, SHARD, row, f"{base}-{row}", 0)
                for row, (start, count) in enumerate(
                    zip((np.cumsum(lengths) - lengths).tolist(), lengths.tolist(), strict=True)
                )
            ]
        return _publish(project, draft, list(files), lines, policy, excluded)


def write_rows(
    project: Project, files: Mapping[str, Sequence[Sequence[tuple[int, int, Sequence[int]]]]]
) -> str:
    """Publish a release of rows of 4 tokens, each a list of (document, offset, ids); padding is 9."""
    policy, lines = policy_of(pad_id=9), []
    with project.store.draft("shuffled_bins", None) as draft:
        for base, rows in files.items():
            pieces = [piece for row in rows for piece in row]
            flat = np.array([i for _, _, ids in pieces for i in ids], np.uint16)
            ends = np.cumsum([len(ids) for _, _, ids in pieces])
            said = np.array([(document, offset) for document, offset, _ in pieces], PIECE_DTYPE)
            with RowBinWriter(draft, base, policy, row_tokens=4) as writer:
                writer.append_rows(flat, ends, said)
            lines += [
                (f"{base}.bin", int(end) - len(ids), len(ids), SHARD, document, f"d{document}", at)
                for end, (document, at, ids) in zip(ends.tolist(), pieces, strict=True)
                if document >= 0
            ]
        return _publish(project, draft, list(files), lines, policy, ())


def _publish(
    project: Project,
    draft: Path,
    bases: Sequence[str],
    lines: Sequence[tuple],
    policy: Policy,
    excluded: Sequence[str],
) -> str:
    frame = pl.DataFrame(lines, schema=RELEASE_DOCUMENTS.names, orient="row")
    rows = write_table(draft / "documents.parquet", pa.table(frame.to_arrow()).cast(RELEASE_DOCUMENTS))  # fmt: skip
    (draft / "tokenizer.json").write_bytes(TOKENIZER)
    (draft / "settings.json").write_text("{}\n")
    from corpus_platform.formats.token_bin import Header

    products = [p for b in bases for p in bin_products(b, Header.read(draft / f"{b}.json"))]
    outputs = [_output(draft, p.name, tokens=p.tokens) for p in products]
    outputs += [_output(draft, "documents.parquet", rows=rows)]
    outputs += [_output(draft, name) for name in ("tokenizer.json", "settings.json")]
    manifest = Manifest(
        asset="shuffled_bins",
        partition=None,
        version=2,
        settings={"files": list(bases), "hash": file_sha256(draft / f"{bases[0]}.bin")},
        inputs={},
        outputs=tuple(outputs),
        ledger={"shards": [SHARD], "excluded": list(excluded)},
        numbers={**_passing(), "shards_left_out": len(excluded)},
    )
    return project.store.publish(draft, manifest).folder.name


def _output(draft: Path, name: str, **counts: int | None) -> Output:
    path = draft / name
    return Output(name, path.stat().st_size, file_sha256(path), **counts)


class _Noted(dict[str, float]):
    def __missing__(self, name: str) -> float:
        self[name] = 0.0
        return 0.0


def _passing() -> dict[str, float]:
    """Return a number of 0 for each that a gate of releases looks at."""
    noted, today = _Noted(), datetime.date(2026, 1, 1)
    gates.judge("shuffled_bins", None, noted, checks=ChecksSettings(), waivers=(), today=today)
    return dict(noted)
