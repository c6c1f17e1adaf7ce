"""raw_shards: copies the members of a shard from its source, unchanged, and records their hashes.

The first bytes seen are the recorded ones. A damaged copy is fetched again; a source that no
longer has the recorded bytes blocks its shard, until they are accepted as a new generation.
Reading records is the next stage's business.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from corpus_platform.errors import SettingsError, StorageError, Uncleared, UsageError
from corpus_platform.stages.project import Making, Product, Progress, Project, Report, Stage, quiet
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import copy_hashed, file_sha256, publish_bytes, safe_name
from corpus_platform.storage.manifest import Json, Manifest
from corpus_platform.storage.registry import Shard

__all__ = ["STAGE", "accept_source", "fetch_shard", "lock_path", "member_names", "write_lock"]

ASSET = "raw_shards"


@lru_cache(maxsize=1 << 16)
def _file_name(member: str) -> str:
    return safe_name(Path(member).name)


def member_names(shard: Shard) -> list[str]:
    """Return the file names of a shard's members in its artifact, in order."""
    names = [_file_name(m) for m in shard.members]
    return names if len(names) == 1 else [f"{i:05d}-{n}" for i, n in enumerate(names)]


def fetch_shard(project: Project, key: str, *, progress: Progress = quiet) -> Report:
    """Copy a shard's members into the store; do nothing when a whole copy is there.

    Raises Uncleared (gate `source_unchanged` or `lock`) when the source has other bytes than
    recorded: both hashes are named.
    """
    shard = project.shard(key)
    with project.making(ASSET, key) as making:
        recorded = project.store.find(ASSET, key, project.expected(ASSET, key).key)
        if recorded is not None:
            _source_unchanged(project, key, recorded)
        if (report := making.current()) is not None:
            return report
        return _copy(project, shard, making, recorded.manifest if recorded else None, progress)


def _copy(
    project: Project,
    shard: Shard,
    making: Making,
    recorded: Manifest | None,
    progress: Progress,
) -> Report:
    total, done, sources = _source_bytes(shard), 0, []

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    with making.draft() as draft:
        names = member_names(shard)
        for member, name in zip(shard.members, names, strict=True):
            before = stamp(Path(member))
            try:
                size, sha256 = copy_hashed(Path(member), draft / name, read=read)
            except OSError as error:  # of a disk or a network share: another try may help
                raise StorageError(f"shard {shard.key}: {member}: {error}; run again") from error
            if before is None or stamp(Path(member)) != before or size != before.bytes:
                raise StorageError(
                    f"shard {shard.key}: {member} changed while it was read; run again"
                )
            project.hashes.note(Path(member), before, sha256)
            sources.append({"name": name, "bytes": size, "sha256": sha256})
        _agree(project, shard.key, {s["name"]: s["sha256"] for s in sources}, recorded)
        ledger = {"members": sources, "bytes": sum(s["bytes"] for s in sources)}
        products = [Product(name) for name in names]
        where = {"source": list(shard.members)}
        return making.publish(draft, products, ledger=ledger, measured=where)


def _source_bytes(shard: Shard) -> int:
    """Return the bytes of a shard's members; raise Uncleared when one is not there."""
    total = 0
    for member in shard.members:
        seen = stamp(Path(member))
        if seen is None:
            reason = f"{member} is not there any more, and no whole copy is stored; restore it"
            raise Uncleared(ASSET, shard.key, gate="source_present", reason=reason)
        total += seen.bytes
    return total


def _agree(project: Project, key: str, found: dict[str, str], recorded: Manifest | None) -> None:
    """Raise Uncleared when the source's bytes are not those recorded, or locked."""
    known = {o.name: o.sha256 for o in recorded.outputs} if recorded else {}
    locked = _locked(project, key)
    for name, sha256 in found.items():
        for gate, wanted in (("source_unchanged", known), ("lock", locked)):
            if name in wanted and wanted[name] != sha256:
                reason = (
                    f"{name}: the source has sha256 {sha256}, recorded is {wanted[name]};"
                    f" restore the source, or take its bytes with: corpus lock --accept {key}"
                )
                raise Uncleared(ASSET, key, gate=gate, reason=reason)


def _source_unchanged(project: Project, key: str | None, artifact: Artifact) -> None:
    """Raise Uncleared when a source file that is there has other bytes than the stored shard."""
    shard = project.shard(key or "")
    found = {}
    for member, name in zip(shard.members, member_names(shard), strict=True):
        sha256 = project.hashes.sha256(Path(member))
        if sha256 is not None:
            found[name] = sha256
    stored = artifact.hashes()
    if found and any(stored.get(n) != h for n, h in found.items()):
        _agree(project, shard.key, found, artifact.manifest)
    _agree(project, shard.key, stored, None)


def _ready(project: Project, key: str | None) -> None:
    """Raise Uncleared when the shard cannot be fetched: no source, or other bytes than locked."""
    shard = project.shard(key or "")
    _source_bytes(shard)
    locked = _locked(project, shard.key)
    if locked:
        hashes = [project.hashes.sha256(Path(m)) or "" for m in shard.members]
        _agree(project, shard.key, dict(zip(member_names(shard), hashes, strict=True)), None)


def _ledger(artifact: Artifact) -> Json:
    return artifact.manifest.ledger


def lock_path(project: Project) -> Path:
    """Return where the lock file lies: beside the settings."""
    return project.settings.base / "corpus.lock"


def write_lock(project: Project) -> int:
    """Pin the hashes of all stored shards in corpus.lock; return how many."""
    shards = {}
    for key in project.shards():
        if (artifact := project.artifact(ASSET, key)) is not None:
            shards[key] = _ledger(artifact)["members"]
    whole = {"format": 1, "shards": shards}
    publish_bytes(lock_path(project), (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
    return len(shards)


def accept_source(project: Project, key: str) -> Shard:
    """Take the source's present bytes of a shard as right, and drop an old pin of it.

    Bytes other than the stored ones are a new generation. Raises UsageError when the source has
    the recorded bytes.
    """
    shard = project.shard(key)
    artifact = project.artifact(ASSET, key)
    found = {n: project.hashes.sha256(Path(m)) for m, n in _members(shard)}
    pins = _locked(project, key)
    if artifact is None or artifact.hashes() != found:
        shard = project.registry.accept(key)
    elif not pins or pins == found:
        raise UsageError(f"{key}: the source has the recorded bytes; there is nothing to accept")
    if pins:
        path = lock_path(project)
        whole = json.loads(path.read_bytes())
        del whole["shards"][key]
        publish_bytes(path, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
    return shard


def _members(shard: Shard) -> list[tuple[str, str]]:
    """Return where each member lies, and its name in the artifact."""
    return list(zip(shard.members, member_names(shard), strict=True))


def _locked(project: Project, key: str) -> Mapping[str, str]:
    """Return the pinned sha256 of a shard's files by name; empty where the lock does not name it."""
    path = lock_path(project)
    seen = project.once("lock", lambda: stamp(path))
    return _pins(path, seen).get(key, {}) if seen is not None else {}


@lru_cache(maxsize=4)
def _pins(path: Path, seen: FileStamp) -> Mapping[str, Mapping[str, str]]:
    """Return all pins of a lock file; it is parsed once while its size and time stay the same."""
    del seen  # part of the cache's key
    try:
        shards = json.loads(path.read_bytes())["shards"]
        return {key: {r["name"]: r["sha256"] for r in rows} for key, rows in shards.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{path}: not a lock file: {error!r}; write it anew with: corpus lock"
        ) from error


def _settings(project: Project, key: str | None) -> Json:
    shard = project.shard(key or "")
    # `_`: a generation of its own, but the same content where the bytes are the same.
    return {"members": member_names(shard), "_generation": shard.generation}


def _audit(project: Project, key: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    differing, sizes, total = 0, 0, 0
    for member in ledger["members"]:
        path = folder / member["name"]
        size = path.stat().st_size if path.exists() else -1
        sizes += size != member["bytes"]
        differing += size < 0 or file_sha256(path) != member["sha256"]
        total += max(size, 0)
    return {
        "files": len(ledger["members"]),
        "bytes": total,
        "files_differing": differing,
        "sizes_differing": sizes,
    }


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=True,
    settings=_settings,
    inputs=lambda project, key: {},
    audit=_audit,
    common=lambda project: {},
    witness=_source_unchanged,
    ready=_ready,
)
