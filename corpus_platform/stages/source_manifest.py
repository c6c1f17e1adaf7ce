"""The source manifest: every shard of the corpus, planned, stored or failed, in one file with its own
hash; what a training run pins.

It is put together from the registry and the manifests of raw and cleaned shards, which stay the
truth, and holds no time, no host and no path outside the corpus, so that it is the same wherever
the same sources were read.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # values of a JSON object

from corpus_platform.errors import StorageError
from corpus_platform.stages.members import VERIFIED, legible, member_names
from corpus_platform.stages.project import Project
from corpus_platform.storage.files import (
    canonical_json,
    publish_bytes,
    read_if_there,
    text_sha256,
)
from corpus_platform.storage.registry import Member, Shard
from corpus_platform.storage.transfer import shown

__all__ = [
    "SourceManifest",
    "differs_from_file",
    "read_source_manifest",
    "source_manifest",
    "source_manifest_path",
    "write_source_manifest",
]

RAW, CLEANED = "raw_shards", "cleaned_documents"
_COUNTS = ("lines", "documents", "kept", "quarantined", "decompressed_bytes")


@dataclass(frozen=True)
class SourceManifest:
    """The rows by shard, in key order, and the sha256 of their canonical JSON."""

    shards: Mapping[str, Mapping[str, Any]]

    @property
    def sha256(self) -> str:
        """The hash of all that it says."""
        return text_sha256(canonical_json({"format": 1, "shards": self.shards}))

    def to_bytes(self) -> bytes:
        """Return the file's bytes: JSON with sorted keys, its own hash among them."""
        whole = {"format": 1, "sha256": self.sha256, "shards": self.shards}
        return (json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def source_manifest_path(project: Project) -> Path:
    """Return where the source manifest lies."""
    return project.settings.storage_path / "source-manifest.json"


def source_manifest(project: Project) -> SourceManifest:
    """Put the source manifest together as things stand."""
    with project.unchanging():
        return SourceManifest({k: _row(project, s) for k, s in project.shards().items()})


def differs_from_file(project: Project, manifest: SourceManifest) -> str | None:
    """Return how a source manifest differs from the file that is stored, in words; None where not."""
    path = source_manifest_path(project)
    if not path.exists():
        return f"{path}: there is none; the next `corpus run` or `corpus fetch` writes it"
    try:
        found = read_source_manifest(path).sha256
    except StorageError as error:
        return str(error)
    if found == manifest.sha256:
        return None
    return (
        f"{path}: its sha256 is {found}, that of what is stored is {manifest.sha256}; the next"
        " `corpus run` writes it anew"
    )


def write_source_manifest(project: Project) -> SourceManifest:
    """Put the source manifest together, and write it where it changed."""
    manifest, path = source_manifest(project), source_manifest_path(project)
    data = manifest.to_bytes()
    if read_if_there(path) != data:
        publish_bytes(path, data)
    return manifest


def read_source_manifest(path: Path) -> SourceManifest:
    """Read a source manifest; raises StorageError where its hash is not that of what it says."""
    try:
        whole = json.loads(path.read_bytes())
        manifest, recorded = SourceManifest(whole["shards"]), whole["sha256"]
        found = manifest.sha256 if whole["format"] == 1 else f"of format {whole['format']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path}: not a source manifest: {error!r}; the next `corpus run` writes it anew"
        ) from error
    if found != recorded:
        raise StorageError(
            f"{path}: its sha256 is {found}, recorded in it is {recorded}; it was changed by hand or"
            " by a fault, and the next `corpus run` writes it anew"
        )
    return manifest


def _row(project: Project, shard: Shard) -> dict[str, Any]:
    raw = project.artifact(RAW, shard.key)
    if raw is None:
        return _not_stored(project, shard)
    hashes, sizes = raw.hashes(), raw.sizes()
    members = [
        {
            "name": name,
            "source": _source(project, member),
            "bytes": sizes[name],
            "sha256": hashes[name],
        }
        for member, name in zip(shard.members, member_names(shard), strict=True)
    ]
    numbers = raw.numbers
    weakest = next((kind for kind in VERIFIED if numbers.get(f"verified/{kind}")), "length")
    return {
        "state": "stored",
        "bytes": int(numbers["bytes"]),
        "verified": weakest,
        "members": members,
        **_judged(project, shard),
    }


def _not_stored(project: Project, shard: Shard) -> dict[str, Any]:
    """Return the row of a shard that is planned, or could not be fetched when that was tried last."""
    members = []
    for member in shard.members:
        stated = {"bytes": member.bytes, "sha256": member.sha256}
        known = {name: value for name, value in stated.items() if value is not None}
        members.append({"source": _source(project, member), **known})
    reason = project.failures.reason(shard.key)
    if reason is None:
        return {"state": "planned", "members": members}
    return {"state": "failed", "reason": _without_folders(project, reason), "members": members}


def _without_folders(project: Project, reason: str) -> str:
    """Return a reason with paths as seen from the settings file."""
    base = project.settings.base.absolute()
    storage = os.path.relpath(project.settings.storage_path, base)
    for folder, seen in ((project.settings.storage_path, f"{storage}/"), (base, "")):
        reason = re.sub(rf"(?<![^\s'\":]){re.escape(str(folder))}/", lambda _, s=seen: s, reason)
    return legible(reason)


def _judged(project: Project, shard: Shard) -> dict[str, Any]:
    """Return the counts of the cleaned shard, and whether its gates let it through."""
    cleaned = project.artifact(CLEANED, shard.key)
    if cleaned is None:
        return {"verdict": "not read yet"}
    counts = {name: int(cleaned.numbers[name]) for name in _COUNTS if name in cleaned.numbers}
    refusal = project.refusal((RAW, CLEANED), shard.key)
    verdict = "cleared" if refusal is None else f"refused: {refusal.asset}: {refusal.gate}"
    return {"verdict": verdict, **counts}


def _source(project: Project, member: Member) -> str:
    """Return a member's URL without secrets, or its path as seen from the settings file."""
    if member.path is None:
        return shown(member.location)
    return legible(os.path.relpath(member.path, project.settings.base.absolute()))
