"""corpus.lock: the hashes of source files that a corpus is pinned to, kept in the user's git.

A shard that the lock names is refused with other bytes. `verify_lock` is stricter: stored shards and
locked ones have to be the same, hashed again, and the source manifest the one that was locked.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any  # values of a JSON object, checked where they are read

from corpus_platform.errors import SettingsError, UsageError
from corpus_platform.stages.project import Project
from corpus_platform.stages.uncleared import allowed_missing
from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import canonical_json, publish_bytes, text_sha256

__all__ = ["drop_pin", "lock_path", "locked_hashes", "verify_lock", "write_lock"]

ASSET = "raw_shards"


def lock_path(project: Project) -> Path:
    """Return where the lock file lies: beside the settings."""
    return project.settings.base / "corpus.lock"


def write_lock(project: Project, source_manifest: str) -> int:
    """Pin the hashes of all stored shards, and the source manifest's; return how many shards."""
    shards = {}
    for key in project.shards():
        if (artifact := project.artifact(ASSET, key)) is not None:
            shards[key] = _pinned(artifact.manifest.ledger["members"])
    _write(lock_path(project), shards, source_manifest)
    return len(shards)


def drop_pin(project: Project, key: str) -> None:
    """Take a shard out of the lock, which then pins no source manifest any more."""
    path = lock_path(project)
    shards = _read(path)["shards"]
    del shards[key]
    _write(path, shards, None)


def locked_hashes(project: Project, key: str) -> Mapping[str, str]:
    """Return the pinned sha256 of a shard's files by name; empty where the lock does not name it."""
    path = lock_path(project)
    seen = project.once("lock", lambda: stamp(path))
    return _pins(path, seen).get(key, {}) if seen is not None else {}


def verify_lock(project: Project, source_manifest: str) -> list[tuple[str | None, str]]:
    """Return how stored shards and the source manifest's hash differ from the lock, in words.

    A difference of no shard comes with None.
    Raises UsageError where there is no lock.
    """
    path = lock_path(project)
    if not path.exists():
        raise UsageError(f"{path}: there is no lock to verify against; write it with: corpus lock")
    whole = _read(path)
    return [
        *_differing_shards(project, whole["shards"]),
        *_differing_manifest(whole.get("source_manifest"), source_manifest),
    ]


def _differing_shards(
    project: Project, locked: Mapping[str, Any]
) -> Iterator[tuple[str | None, str]]:
    keys = project.shards()
    for key in sorted({*keys, *locked}):
        artifact = project.artifact(ASSET, key) if key in keys else None
        if artifact is None:
            if key in locked:
                yield key, f"the lock names it, and {_why_not_stored(project, key)}"
            elif not allowed_missing(project, key):
                yield key, "it is neither stored nor locked: first corpus run, then corpus lock"
        elif key not in locked:
            yield key, "it is stored, and the lock does not name it; lock it: corpus lock"
        elif (stored := _pinned(artifact.manifest.ledger["members"])) != _pinned(locked[key]):
            yield key, f"stored is {_told(stored)}, the lock has {_told(_pinned(locked[key]))}"
        else:
            for damage in project.store.deep_damage(artifact.folder, artifact.manifest.outputs):
                yield key, f"{artifact.path(damage.name)}: {damage.reason}"


def _why_not_stored(project: Project, key: str) -> str:
    known = project.registry.all().get(key)
    if known is not None and known.retired:
        return "it is retired; lock what is left: corpus lock"
    return "no whole copy is stored; fetch it: corpus fetch"


def _differing_manifest(wanted: str | None, found: str) -> Iterator[tuple[str | None, str]]:
    if wanted is None:
        yield None, "the lock pins no source manifest: first corpus run, then corpus lock"
    elif wanted != found:
        yield (
            None,
            f"the source manifest has sha256 {found}, the lock has {wanted}: sources, counts or"
            " verdicts changed; where they are right: corpus lock",
        )


def _pinned(members: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: m[name] for name in ("name", "bytes", "sha256")} for m in members]


def _told(members: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(members) - 2} more files" if len(members) > 2 else ""
    return "; ".join(f"{m['name']} sha256 {m['sha256']}" for m in members[:2]) + more


def _write(path: Path, shards: Mapping[str, Any], source_manifest: str | None) -> None:
    whole = {"format": 2, "shards": shards, "source_manifest": source_manifest}
    whole["sha256"] = text_sha256(canonical_json(whole))
    publish_bytes(path, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())


def _read(path: Path) -> dict[str, Any]:
    """Read a lock and check it against its own hash; raises SettingsError.

    Format 1 had none, and pinned no source manifest.
    """
    data = path.read_bytes()
    try:
        if b"\n<<<<<<< " in data or data.startswith(b"<<<<<<< "):
            raise ValueError("it has the marks of a merge that was not finished")
        whole = json.loads(data)
        _ = [(m["name"], m["bytes"], m["sha256"]) for row in whole["shards"].values() for m in row]
        recorded = whole.get("sha256")
        found = text_sha256(canonical_json({k: v for k, v in whole.items() if k != "sha256"}))
        if whole["format"] not in (1, 2):
            raise ValueError(f"format {whole['format']!r} is unknown, 1 and 2 are read")
        if whole["format"] != 1 and recorded != found:
            raise ValueError(f"its sha256 is {found}, recorded in it is {recorded}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SettingsError(
            f"{path}: not a lock file: {error!r}; restore it, or write it anew with: corpus lock"
        ) from error
    return whole


@lru_cache(maxsize=4)
def _pins(path: Path, seen: FileStamp) -> Mapping[str, Mapping[str, str]]:
    """Return all pins of a lock file; it is parsed once while its size and time stay the same."""
    del seen  # part of the cache's key
    return {
        key: {m["name"]: m["sha256"] for m in rows} for key, rows in _read(path)["shards"].items()
    }
