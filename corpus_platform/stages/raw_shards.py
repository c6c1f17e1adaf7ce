"""raw_shards: brings the members of a shard from their source, unchanged, and records their hashes.

A hash that the listing or a sidecar states is held against the bytes; where none is stated, the
first bytes seen are the recorded ones. A damaged copy is fetched again; a source that no longer has
the recorded bytes blocks its shard, until they are accepted as a new generation. How bytes come
over a network is for `storage`, reading records is the next stage's business.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from corpus_platform.errors import SourceRefused, StorageError, Uncleared, UsageError
from corpus_platform.stages.project import Making, Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.source_lock import drop_pin, locked_hashes
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.files import copy_hashed, file_sha256, safe_name
from corpus_platform.storage.hub import access_advice
from corpus_platform.storage.locations import file_name
from corpus_platform.storage.manifest import MANIFEST_NAME, Json, Manifest
from corpus_platform.storage.registry import Member, Shard
from corpus_platform.storage.remote import MAX_SIDECAR_BYTES
from corpus_platform.storage.sidecars import parse_sidecar
from corpus_platform.storage.transfer import Fetched, Read, shown

__all__ = [
    "STAGE",
    "VERIFIED",
    "accept_source",
    "fetch_shard",
    "legible",
    "member_names",
    "not_begun",
]

ASSET = "raw_shards"
# By what a file is known to be whole and right, the weakest first.
VERIFIED = ("nothing", "length", "sha256")


@dataclass(frozen=True)
class _Copy:
    """A member in the store. `verified`: by what it is known to be whole and right.

    `transferred` and `attempts` are those of this fetch; None for a file of this machine.
    """

    name: str
    source: str
    bytes: int
    sha256: str
    verified: Literal["sha256", "length", "nothing"]
    version: str | None = None
    transferred: int | None = None
    attempts: int | None = None


@lru_cache(maxsize=1 << 16)
def _file_name(location: str) -> str:
    name = safe_name(legible(file_name(location)))
    return f"%{ord(name[0]):02X}{name[1:]}" if name == MANIFEST_NAME else name


def member_names(shard: Shard) -> list[str]:
    """Return the file names of a shard's members in its artifact, in order."""
    names = [_file_name(m.location) for m in shard.members]
    return names if len(names) == 1 else [f"{i:05d}-{n}" for i, n in enumerate(names)]


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
    total, done, copies = _source_bytes(shard), 0, list[_Copy]()

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    before = recorded or project.last_generation(ASSET, shard.key)
    is_accepted = before is not None and _generation(before) != shard.generation
    outdated = frozenset(before.hashes().values() if before and is_accepted else ())
    with making.draft() as draft:
        names = member_names(shard)
        for member, name in zip(shard.members, names, strict=True):
            if member.path is not None:
                copies.append(_copied(project, shard, member, draft / name, read))
            else:
                copies.append(
                    _downloaded(project, shard, member, draft / name, read, outdated=outdated)
                )
        found = {copy.name: copy.sha256 for copy in copies}
        _agree_or_drop(
            project, shard, found, before.manifest if before and not is_accepted else None
        )
        if any(member.changed for member in shard.members):
            project.registry.settle(shard)  # first: a copy that is there is held against it
        members = [{"name": c.name, "bytes": c.bytes, "sha256": c.sha256} for c in copies]
        ledger = {
            "members": members,
            "bytes": sum(c.bytes for c in copies),
            # `_`: the same bytes are the same content, however they are known to be right.
            "_verified": dict(Counter(copy.verified for copy in copies)),
        }
        where = {"source": [_told(copy) for copy in copies]}
        report = making.publish(draft, list(map(Product, names)), ledger=ledger, measured=where)
    _settle_downloads(project, shard)
    return report


def _generation(artifact: Artifact) -> int:
    return artifact.manifest.settings["_generation"]


def _settle_downloads(project: Project, shard: Shard) -> None:
    for member in shard.members:
        if member.path is None:
            project.downloads.settle(member)


def _told(copy: _Copy) -> dict[str, object]:
    return {name: value for name, value in asdict(copy).items() if value is not None}


def _copied(project: Project, shard: Shard, member: Member, target: Path, read: Read) -> _Copy:
    """Copy a member that lies on this machine."""
    path = Path(member.location)
    before = stamp(path)
    try:
        size, sha256 = copy_hashed(path, target, read=read)
    except OSError as error:  # of a disk or a network share: another try may help
        raise StorageError(f"shard {shard.key}: {path}: {error}; run again") from error
    if before is None or stamp(path) != before or size != before.bytes:
        raise StorageError(f"shard {shard.key}: {path} changed while it was read; run again")
    project.hashes.note(path, before, sha256)
    expected = _expected_sha256(project, shard, member)
    _as_listed(shard, member, size, sha256, expected)
    verified = "sha256" if expected else "length"
    return _Copy(target.name, legible(str(path)), size, sha256, verified)


def legible(text: str) -> str:
    """Return a text with escapes for the bytes of a file's name that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _downloaded(
    project: Project,
    shard: Shard,
    member: Member,
    target: Path,
    read: Read,
    *,
    outdated: Collection[str],
) -> _Copy:
    """Bring a member from another machine; wrong bytes are fetched a second time, whole."""
    expected = _expected_sha256(project, shard, member)
    fetch = partial(_try, project, shard, member, target, expected, read, outdated)
    got = fetch()
    if expected not in (None, got.sha256):
        read(-got.bytes)
        got = fetch()
        _as_listed(shard, member, got.bytes, got.sha256, expected)
    verified = "sha256" if expected else "length" if got.length_known else "nothing"
    return _Copy(
        name=target.name,
        source=shown(member.location),
        bytes=got.bytes,
        sha256=got.sha256,
        verified=verified,
        version=got.version,
        transferred=got.transferred,
        attempts=got.attempts,
    )


def _try(
    project: Project,
    shard: Shard,
    member: Member,
    target: Path,
    expected: str | None,
    read: Read,
    outdated: Collection[str],
) -> Fetched:
    """Fetch a member; it is put at `target` only if it has the expected hash, where there is one."""
    try:
        with project.downloads.get(member, read=read, outdated=outdated) as download:
            if expected in (None, download.fetched.sha256):
                download.take(target)
            else:
                download.drop()
            return download.fetched
    except OSError as error:
        raise StorageError(
            f"shard {shard.key}: {target}: cannot be written: {error}; make room and run again"
        ) from error
    except SourceRefused as refusal:
        advice = access_advice(member.location) if member.location.startswith("hf://") else ""
        reason = f"{refusal}; {advice}" if advice else str(refusal)
        raise Uncleared(ASSET, shard.key, gate="source_present", reason=reason) from None


def _expected_sha256(project: Project, shard: Shard, member: Member) -> str | None:
    """Return the hash that the listing or a sidecar states for a member."""
    if member.sha256 is not None or member.sidecar is None:
        return member.sha256
    where = shown(member.sidecar)
    try:
        data = project.remote.get_bytes(member.sidecar, max_bytes=MAX_SIDECAR_BYTES)
    except SourceRefused as refusal:
        raise Uncleared(ASSET, shard.key, gate="source_present", reason=str(refusal)) from None
    name = file_name(member.location)
    try:
        return parse_sidecar(data, location=where, file_name=name)
    except StorageError as error:  # also wrong bytes: what it says cannot be known
        raise Uncleared(ASSET, shard.key, gate="expected", reason=str(error)) from error


def _as_listed(shard: Shard, member: Member, size: int, sha256: str, expected: str | None) -> None:
    """Raise Uncleared when a member is not what its listing or sidecar says."""
    for what, found, stated in (
        ("bytes", size, member.bytes),
        ("sha256", sha256, expected),
    ):
        if stated not in (None, found):
            reason = (
                f"{shown(member.location)}: its listing says {what} {stated}, the source has"
                f" {found}; correct the listing, or restore the file"
            )
            raise Uncleared(ASSET, shard.key, gate="expected", reason=reason)


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
