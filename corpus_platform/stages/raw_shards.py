"""raw_shards: brings the members of a shard from their source, unchanged, and records their hashes.

Where no hash is stated, the first bytes seen are the recorded ones. A damaged copy is fetched again;
a source that no longer has the recorded bytes blocks its shard, until they are accepted as a new
generation. How one member comes is for `members`, reading records is the next stage's business.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from corpus_platform.errors import StorageError, Uncleared, UsageError
from corpus_platform.stages.members import VERIFIED, Copy, Delivery, member_names
from corpus_platform.stages.project import Making, Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.source_lock import drop_pin, locked_hashes
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json, Manifest
from corpus_platform.storage.registry import Member, Shard

__all__ = ["STAGE", "accept_source", "fetch_shard", "not_begun"]

ASSET = "raw_shards"


def not_begun(project: Project, shard: Shard) -> Member | None:
    """Return the first member that a network would have to bring from its first byte on."""
    stored = project.artifact(ASSET, shard.key)
    if stored is not None and not project.store.damage(stored):
        return None
    remote = [m for m in shard.members if m.path is None]
    return next((m for m in remote if not project.downloads.begun(m)), None)


def fetch_shard(project: Project, key: str, *, progress: Progress = quiet) -> Report:
    """Bring a shard's members into the store; do nothing when a whole copy is there.

    Raises Uncleared: gate `source_present` when the source does not have a member, `expected` when
    it is not what its listing says, `source_unchanged` or `lock` when the source has other bytes
    than recorded. StorageError when it cannot be had: another try goes on where this one ended.
    """
    shard = project.shard(key)
    with project.making(ASSET, key) as making:
        recorded = project.store.find(ASSET, key, project.expected(ASSET, key).key)
        if recorded is not None:
            _source_unchanged(project, key, recorded)
        if (report := making.current()) is not None:
            _settle_downloads(project, shard)  # of a process that was killed when it had published
            return report
        try:
            report = _bring(project, shard, making, recorded, progress)
        except (Uncleared, StorageError) as failure:
            with contextlib.suppress(OSError):  # a full disk, which the failure itself tells
                project.failures.note(key, str(failure))
            raise
        project.failures.forget(key)
    return report


def _bring(
    project: Project,
    shard: Shard,
    making: Making,
    recorded: Artifact | None,
    progress: Progress,
) -> Report:
    total, done, copies = _source_bytes(shard), 0, list[Copy]()

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    before = recorded or project.last_generation(ASSET, shard.key)
    is_accepted = before is not None and _generation(before) != shard.generation
    outdated = frozenset(before.hashes().values() if before and is_accepted else ())
    delivery = Delivery(project, shard, read, outdated)
    with making.draft() as draft:
        names = member_names(shard)
        for member, name in zip(shard.members, names, strict=True):
            copies.append(delivery.bring(member, draft / name))
        found = {copy.name: copy.sha256 for copy in copies}
        known = before.manifest if before is not None and not is_accepted else None
        _agree_or_drop(project, shard, found, known)
        if any(member.changed for member in shard.members):
            project.registry.settle(shard)  # first: a copy that is there is held against it
        where = {"source": [copy.to_json() for copy in copies]}
        products = list(map(Product, names))
        report = making.publish(draft, products, ledger=_ledger(copies), measured=where)
    _settle_downloads(project, shard)
    return report


def _ledger(copies: Sequence[Copy]) -> dict[str, object]:
    return {
        "members": [{"name": c.name, "bytes": c.bytes, "sha256": c.sha256} for c in copies],
        "bytes": sum(c.bytes for c in copies),
        # `_`: the same bytes are the same content, however they are known to be right.
        "_verified": dict(Counter(copy.verified for copy in copies)),
    }


def _generation(artifact: Artifact) -> int:
    return artifact.manifest.settings["_generation"]


def _settle_downloads(project: Project, shard: Shard) -> None:
    for member in shard.members:
        if member.path is None:
            project.downloads.settle(member)


def _source_bytes(shard: Shard) -> int | None:
    """Return the bytes of a shard's members, None where that is not known.

    Raises Uncleared when one that lies on this machine is not there.
    """
    sizes: list[int | None] = []
    for member in shard.members:
        if member.path is None:
            sizes.append(member.bytes)
            continue
        if (seen := stamp(member.path)) is None:
            reason = f"{member.path} is not there any more, and no whole copy is stored; restore it"
            raise Uncleared(ASSET, shard.key, gate="source_present", reason=reason)
        sizes.append(seen.bytes)
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _agree_or_drop(
    project: Project, shard: Shard, found: dict[str, str], recorded: Manifest | None
) -> None:
    """Do as `_agree`; what was downloaded and is refused is dropped: the source may be restored."""
    try:
        _agree(project, shard, found, recorded)
    except Uncleared:
        for member in shard.members:
            if member.path is None:
                project.downloads.drop(member)
        raise


def _agree(
    project: Project, shard: Shard, found: Mapping[str, str], recorded: Manifest | None
) -> None:
    """Raise Uncleared when the source's bytes are not those recorded, or locked.

    By the place of a file in its shard, since another name makes no other bytes right.
    """
    known = [member["sha256"] for member in recorded.ledger["members"]] if recorded else []
    locked = list(locked_hashes(project, shard.key).values())
    for place, name in enumerate(member_names(shard)):
        for gate, wanted in (("source_unchanged", known), ("lock", locked)):
            stated = wanted[place] if place < len(wanted) else None
            if name in found and stated not in (None, found[name]):
                reason = (
                    f"{name}: the source has sha256 {found[name]}, recorded is {stated}; restore the"
                    f" source, or take its bytes with: corpus lock --accept {shard.key}"
                )
                raise Uncleared(ASSET, shard.key, gate=gate, reason=reason)


def _source_unchanged(project: Project, key: str | None, artifact: Artifact) -> None:
    """Raise Uncleared when the source has other bytes than the stored shard, as far as is known.

    Files of this machine are hashed; of others the listing may state a hash, or name a new version.
    """
    shard = project.shard(key or "")
    found = {}
    for member, name in _members(shard):
        sha256 = _sha256_now(project, member)
        if sha256 is not None:
            found[name] = sha256
        elif member.changed is not None and member.path is None:
            what = f"version {member.changed}, recorded is {member.version}"
            _refuse_change(shard, name, what)
        elif member.bytes not in (None, artifact.sizes().get(name)) and member.path is None:
            what = f"{member.bytes} bytes, recorded are {artifact.sizes().get(name)}"
            _refuse_change(shard, name, what)
    stored = artifact.hashes()
    if found and any(stored.get(n) != h for n, h in found.items()):
        _agree(project, shard, found, artifact.manifest)
    _agree(project, shard, stored, None)


def _sha256_now(project: Project, member: Member) -> str | None:
    """Return the hash that a member has at its source, None where only fetching it would tell."""
    return member.sha256 if member.path is None else project.hashes.sha256(member.path)


def _refuse_change(shard: Shard, name: str, what: str) -> None:
    reason = (
        f"{name}: the source lists {what}; restore the source, or take its bytes with: corpus lock"
        f" --accept {shard.key}"
    )
    raise Uncleared(ASSET, shard.key, gate="source_unchanged", reason=reason)


def _ready(project: Project, key: str | None) -> None:
    """Raise Uncleared when the shard cannot be fetched: no source, or other bytes than locked."""
    shard = project.shard(key or "")
    _source_bytes(shard)
    if locked_hashes(project, shard.key):
        now = {n: h for m, n in _members(shard) if (h := _sha256_now(project, m)) is not None}
        _agree(project, shard, now, None)


def accept_source(project: Project, key: str) -> Shard:
    """Take the source's present bytes of a shard as right, and drop an old pin of it.

    Bytes other than the stored ones are a new generation. Raises UsageError when the source is
    known to have the recorded bytes.
    """
    shard = project.shard(key)
    artifact = project.artifact(ASSET, key)
    found = {name: _sha256_now(project, member) for member, name in _members(shard)}
    unknown = any(m.path is None and m.sha256 is None for m in shard.members)
    pins = locked_hashes(project, key)
    if artifact is None or artifact.hashes() != found or unknown:
        shard = project.registry.accept(key)
    elif not pins or pins == found:
        raise UsageError(f"{key}: the source has the recorded bytes; there is nothing to accept")
    if pins:
        drop_pin(project, key)
    return shard


def _members(shard: Shard) -> list[tuple[Member, str]]:
    """Return each member with its name in the artifact."""
    return list(zip(shard.members, member_names(shard), strict=True))


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
        **{f"verified/{kind}": ledger.get("_verified", {}).get(kind, 0) for kind in VERIFIED},
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
