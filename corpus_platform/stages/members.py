"""One member of a shard to a file of the store: copied or downloaded, and held against what is stated.

A hash or a size that its listing or a sidecar states has to be that of the bytes; what other
versions of the shard had, and what is published, is for `raw_shards`. How bytes come over a network
is for `storage`.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from corpus_platform.errors import SourceRefused, StorageError, Uncleared
from corpus_platform.stages.project import Project
from corpus_platform.storage.catalog import stamp
from corpus_platform.storage.files import copy_hashed, is_special, safe_name
from corpus_platform.storage.hub import access_advice
from corpus_platform.storage.locations import file_name
from corpus_platform.storage.manifest import MANIFEST_NAME
from corpus_platform.storage.registry import Member, Shard
from corpus_platform.storage.remote import MAX_SIDECAR_BYTES
from corpus_platform.storage.sidecars import parse_sidecar
from corpus_platform.storage.transfer import Fetched, Read, shown

__all__ = ["VERIFIED", "Copy", "Delivery", "legible", "member_names"]

ASSET = "raw_shards"
# By what a file is known to be whole and right, the weakest first.
VERIFIED = ("nothing", "length", "sha256")


@dataclass(frozen=True)
class Copy:
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

    def to_json(self) -> dict[str, object]:
        """Return what is known of it, for its manifest."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def legible(text: str) -> str:
    """Return a text with escapes for the bytes of a file's name that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=1 << 16)
def _file_name(location: str) -> str:
    name = safe_name(legible(file_name(location)))
    return f"%{ord(name[0]):02X}{name[1:]}" if name == MANIFEST_NAME else name


def member_names(shard: Shard) -> list[str]:
    """Return the file names of a shard's members in its artifact, in order."""
    names = [_file_name(m.location) for m in shard.members]
    return names if len(names) == 1 else [f"{i:05d}-{n}" for i, n in enumerate(names)]


@dataclass(frozen=True)
class Delivery:
    """Brings the members of one shard; `read` hears of their bytes.

    A download that is here with an `outdated` sha256 is fetched anew.
    """

    project: Project
    shard: Shard
    read: Read
    outdated: Collection[str] = ()

    def bring(self, member: Member, target: Path) -> Copy:
        """Bring a member from its source to `target`.

        Raises Uncleared: gate `source_present` when the source does not have it, `expected` when it
        is not what its listing says. StorageError when it cannot be had now.
        """
        if member.path is not None:
            return self._copied(member, member.path, target)
        return self._downloaded(member, target)

    def _copied(self, member: Member, path: Path, target: Path) -> Copy:
        """Copy a member that lies on this machine."""
        if is_special(path):  # a hostile list may fill the disk with it
            raise self._uncleared("source_present", f"{path}: a pipe or a device; list files")
        before = stamp(path)
        try:
            size, sha256 = copy_hashed(path, target, read=self.read)
        except OSError as error:  # of a disk or a network share: another try may help
            raise StorageError(f"shard {self.shard.key}: {path}: {error}; run again") from error
        if before is None or stamp(path) != before or size != before.bytes:
            raise StorageError(
                f"shard {self.shard.key}: {path} changed while it was read; run again"
            )
        self.project.hashes.note(path, before, sha256)
        expected = self._expected_sha256(member)
        self._as_listed(member, size, sha256, expected)
        verified = "sha256" if expected else "length"
        return Copy(target.name, legible(str(path)), size, sha256, verified)

    def _downloaded(self, member: Member, target: Path) -> Copy:
        """Bring a member from another machine; wrong bytes are fetched a second time, whole."""
        expected = self._expected_sha256(member)
        got = self._fetched(member, target, expected)
        if expected not in (None, got.sha256):
            self.read(-got.bytes)
            got = self._fetched(member, target, expected)
            self._as_listed(member, got.bytes, got.sha256, expected)
        verified = "sha256" if expected else "length" if got.length_known else "nothing"
        return Copy(
            name=target.name,
            source=shown(member.location),
            bytes=got.bytes,
            sha256=got.sha256,
            verified=verified,
            version=got.version,
            transferred=got.transferred,
            attempts=got.attempts,
        )

    def _fetched(self, member: Member, target: Path, expected: str | None) -> Fetched:
        """Fetch a member; it is put at `target` only with the expected hash, if there is one."""
        downloads = self.project.downloads
        try:
            with downloads.get(member, read=self.read, outdated=self.outdated) as download:
                if expected in (None, download.fetched.sha256):
                    download.take(target)
                else:
                    download.drop()
                return download.fetched
        except OSError as error:
            raise StorageError(
                f"shard {self.shard.key}: {target}: cannot be written: {error}; make room and run"
                " again"
            ) from error
        except SourceRefused as refusal:
            advice = access_advice(member.location) if member.location.startswith("hf://") else ""
            reason = f"{refusal}; {advice}" if advice else str(refusal)
            raise self._uncleared("source_present", reason) from None

    def _expected_sha256(self, member: Member) -> str | None:
        """Return the hash that the listing or a sidecar states for a member."""
        if member.sha256 is not None or member.sidecar is None:
            return member.sha256
        try:
            data = self.project.remote.get_bytes(member.sidecar, max_bytes=MAX_SIDECAR_BYTES)
        except SourceRefused as refusal:
            raise self._uncleared("source_present", str(refusal)) from None
        where, name = shown(member.sidecar), file_name(member.location)
        try:
            return parse_sidecar(data, location=where, file_name=name)
        except StorageError as error:  # also wrong bytes: what it says cannot be known
            raise self._uncleared("expected", str(error)) from error

    def _as_listed(self, member: Member, size: int, sha256: str, expected: str | None) -> None:
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
                raise self._uncleared("expected", reason)

    def _uncleared(self, gate: str, reason: str) -> Uncleared:
        return Uncleared(ASSET, self.shard.key, gate=gate, reason=reason)
