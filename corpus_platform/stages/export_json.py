"""export.json: what an export holds, of which release, in which files, and what of it was lost.

It is written last: without it an export is not finished. Version 1, UTF-8 JSON, keys sorted; its
keys are described in docs/reference/json.md.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from corpus_platform.errors import StorageError
from corpus_platform.stages.bins_writing import BIN_NAMES
from corpus_platform.stages.export_formats import TOKENIZER_NAME, FormatName, Lost, dtype_of, notes
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.pinned_release import PinnedRelease

__all__ = ["Finished", "export_json", "read_export"]

VERSION = 1


@dataclass(frozen=True)
class Finished:
    """What export.json says: what was exported and how (`identity`), the files by path, the ids.

    `row_tokens` is the length of its rows, None where it is documents back to back.
    """

    identity: Mapping[str, object]
    files: dict[str, ExportedFile]
    dtype: str | None
    vocab_size: int
    eos_id: int | None
    row_tokens: int | None = None


def export_json(
    release: PinnedRelease,
    name: FormatName,
    options: object,
    files: Sequence[ExportedFile],
    lost: Sequence[Lost],
) -> bytes:
    """Return the bytes of export.json."""
    policy = release.policy
    dtype = dtype_of(name, policy.vocab_size)
    counts = {split: release.counts(split) for split in BIN_NAMES}
    of_rows = dtype is not None and release.row_tokens is not None
    whole = {
        "version": VERSION,
        "format": name,
        "release": {"id": release.id, "content": release.content},
        "shards": len(release.shards),
        "excluded": release.excluded,
        "options": options,
        "files": [file.to_json() for file in files],
        "tokens": {s: sum(f.tokens for f in files if f.split == s) for s in BIN_NAMES},
        "padding": {s: c.padding for s, c in counts.items()} if of_rows else None,
        "rows": {s: c.rows for s, c in counts.items()} if of_rows else None,
        "documents": {s: c.documents for s, c in counts.items()},
        "dtype": None if dtype is None else dtype.name,
        "row_tokens": release.row_tokens,
        "vocab_size": policy.vocab_size,
        "eos_id": policy.eos_id,
        "bos_id": policy.bos_id,
        "pad_id": policy.pad_id if release.row_tokens else None,
        "tokenizer": {"path": TOKENIZER_NAME, "sha256": policy.tokenizer_sha256},
        "lost": [loss._asdict() for loss in lost],
        "notes": notes(name, release),
    }
    return (json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_export(data: bytes, where: str) -> Finished:
    """Return what an export.json says; StorageError, naming `where`, for one that says it wrongly."""
    try:
        said = json.loads(data)
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']}, {VERSION} is read")
        files = [ExportedFile(**file) for file in said["files"]]
        for file in files:
            _check_file(file)
        identity = {
            "format": said["format"],
            "release": said["release"]["content"],
            "options": said["options"],
        }
        ids = said["dtype"], said["vocab_size"], said["eos_id"]
        _check_ids(*ids)
        rows = said.get("row_tokens")
        if rows is not None and (type(rows) is not int or rows < 1):
            raise ValueError(f"row_tokens {rows!r}")
        return Finished(identity, {file.path: file for file in files}, *ids, rows)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{where}: does not say what was exported: {error!r}; delete the folder to export there again"
        ) from error


def _check_file(file: ExportedFile) -> None:
    """Raise ValueError for a file that says something of another type, or lies elsewhere."""
    texts = file.split, file.shard, file.content_sha256
    counts = file.bytes, file.tokens, file.documents
    if not (
        isinstance(file.path, str)
        and isinstance(file.sha256, str)
        and all(text is None or isinstance(text, str) for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
    ):
        raise ValueError(f"file {file}")
    if PurePosixPath(file.path).is_absolute() or ".." in PurePosixPath(file.path).parts:
        raise ValueError(f"path {file.path!r} leads out of the folder")


def _check_ids(dtype: object, vocab_size: object, eos_id: object) -> None:
    if dtype not in (None, "uint8", "uint16", "uint32", "int32"):
        raise ValueError(f"dtype {dtype!r}")
    if type(vocab_size) is not int or vocab_size < 1:
        raise ValueError(f"vocab_size {vocab_size!r}")
    if eos_id is not None and (type(eos_id) is not int or not 0 <= eos_id < vocab_size):
        raise ValueError(f"eos_id {eos_id!r}, the vocabulary has {vocab_size} ids")
