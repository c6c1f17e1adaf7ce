"""The registry of shards: which exist, of which members, from which source.

It is the truth about the set of partitions: a shard once registered stays, whatever a later
listing says, until it is retired. One JSON file, replaced whole under a lease.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # values of a JSON object, checked where they are read

from corpus_platform.config import Fields
from corpus_platform.errors import StorageError, UsageError
from corpus_platform.storage import lease
from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import publish_bytes

__all__ = ["Member", "Registry", "Shard", "key_order"]

_FORMATS = (1, 2)


@dataclass(frozen=True)
class Member:
    """One source file of a shard: an absolute path, or a URL (http, https, s3, hf).

    The rest is what its listing says of it, None where it says nothing. `version` is how the store
    names this state of the file (an ETag) when it was registered, `changed` how it names a later
    one that the listing has now; `sidecar` where a file with its sha256 lies. A member of
    a bundle has the `name` that it would have below its crawl as a shard of its own.
    """

    location: str
    bytes: int | None = None
    sha256: str | None = None
    version: str | None = None
    sidecar: str | None = None
    name: str | None = None
    changed: str | None = None

    @property
    def listed_version(self) -> str | None:
        """The version that the listing names now."""
        return self.changed or self.version

    @property
    def path(self) -> Path | None:
        """The file on this machine, None for one that is fetched over a network."""
        return None if "://" in self.location else Path(self.location)


@dataclass(frozen=True)
class Shard:
    """One registered shard. `members` are its source files, in order; `generation` rises when
    changed source bytes are accepted."""

    key: str
    members: tuple[Member, ...]
    fields: Fields
    generation: int = 0
    retired: bool = False

    @property
    def files(self) -> list[str]:
        """The keys that its files have or would have as shards of their own."""
        return [self.key if m.name is None else f"{self.crawl}/{m.name}" for m in self.members]

    @property
    def crawl(self) -> str:
        """The delivery it came with."""
        return self.key.split("/", 1)[0]


class Registry:
    """Shards by key, sorted: crawl first, so that older crawls come first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: FileStamp | None = None
        self._shards: dict[str, Shard] = {}

    def shards(self) -> dict[str, Shard]:
        """Return the shards that are not retired."""
        return {k: s for k, s in self._read().items() if not s.retired}

    def all(self) -> Mapping[str, Shard]:
        """Return all shards, retired ones included; not to be changed."""
        return self._read()

    def keys(self) -> list[str]:
        """Return the keys of all shards, retired ones included."""
        return list(self._read())

    def shard(self, key: str) -> Shard:
        """Return one shard; raise UsageError when it is not registered."""
        self._read()
        if key not in self._shards:
            raise UsageError(f"shard {key!r} is not registered; `corpus status` lists the shards")
        return self._shards[key]

    def register(self, found: Iterable[Shard]) -> list[str]:
        """Add shards and refresh where known ones lie; return the keys that are new.

        The members of a known shard may move, but not change in number or name. A file is in one
        shard only: a new one with a file of another is left to the next listing.
        """
        with lease.hold(self._path.with_suffix(".lease")):
            before = self._read()
            shards = self._merged(found)
            if shards != before:
                self._write(shards)
        return sorted(shards.keys() - before.keys())

    def merged(self, found: Iterable[Shard]) -> dict[str, Shard]:
        """Return what `shards` would after `register`, in key order; nothing is written."""
        shards = self._merged(found)
        return {k: shards[k] for k in sorted(shards, key=key_order) if not shards[k].retired}

    def _merged(self, found: Iterable[Shard]) -> dict[str, Shard]:
        shards = dict(self._read())
        taken = {file for shard in shards.values() for file in shard.files}
        for shard in found:
            old = shards.get(shard.key)
            if old is not None and _names(old) != _names(shard):
                continue  # another process has bundled other files under that name meanwhile
            if old is not None:
                members = tuple(map(_relisted, old.members, shard.members))
                shards[shard.key] = replace(old, members=members, fields=shard.fields)
            elif taken.isdisjoint(shard.files):  # else another process has bundled them meanwhile
                shards[shard.key] = shard
                taken.update(shard.files)
        return shards

    def accept(self, key: str) -> Shard:
        """Take the source's present bytes of a shard as a new generation."""
        with lease.hold(self._path.with_suffix(".lease")):
            old = self.shard(key)
            shards = dict(self._read())
            shards[key] = replace(old, generation=old.generation + 1)
            self._write(shards)
        return shards[key]

    def settle(self, fetched: Shard) -> None:
        """Take the versions that a shard was fetched in as those registered.

        `fetched` is the shard as it was when that began; what was listed since is a change.
        """
        with lease.hold(self._path.with_suffix(".lease")):
            now = self.shard(fetched.key)
            shards = dict(self._read())
            members = tuple(map(_settled, fetched.members, now.members))
            shards[now.key] = replace(now, members=members)
            self._write(shards)

    def retire(self, key: str, *, retired: bool = True) -> Shard:
        """Take a shard out of the corpus, or back into it; raise UsageError when it is so already."""
        with lease.hold(self._path.with_suffix(".lease")):
            old = self.shard(key)
            if old.retired == retired:
                raise UsageError(
                    f"shard {key!r} is {'retired already' if retired else 'not retired'};"
                    " nothing was changed"
                )
            shards = dict(self._read())
            shards[key] = replace(old, retired=retired)
            self._write(shards)
        return shards[key]

    def _read(self) -> Mapping[str, Shard]:
        """Return all shards, not to be changed; the file is parsed again only when it changed."""
        seen = stamp(self._path)
        if seen is None or seen != self._seen:
            self._shards, self._seen = self._parse(), seen
        return self._shards

    def _parse(self) -> dict[str, Shard]:
        try:
            raw = json.loads(self._path.read_bytes())
            if raw["format"] not in _FORMATS:
                raise ValueError(f"format {raw['format']} is unknown, 1 and 2 are read")
            return {
                key: _shard(key, row)
                for key, row in sorted(raw["shards"].items(), key=lambda row: key_order(row[0]))
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"{self._path}: not a registry: {error!r}; restore it from a backup, or delete it"
                " to register all listed shards anew"
            ) from error

    def _write(self, shards: Mapping[str, Shard]) -> None:
        whole = {"format": 2, "shards": {key: _row(shard) for key, shard in shards.items()}}
        publish_bytes(self._path, (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode())


def key_order(key: str) -> tuple[str, str]:
    """Return what shard keys are sorted by: the crawl, then the name."""
    crawl, _, name = key.partition("/")
    return crawl, name


def _names(shard: Shard) -> list[str | None]:
    return [member.name for member in shard.members]


def _relisted(old: Member, new: Member) -> Member:
    """Return a member as it is listed now, which remembers the version that was registered."""
    if new.version is None or old.version in (None, new.version):
        return new
    return replace(new, version=old.version, changed=new.version)


def _settled(fetched: Member, now: Member) -> Member:
    """Return a member as it is listed now, registered in the version that was fetched."""
    return _relisted(
        replace(fetched, version=fetched.listed_version),
        replace(now, version=now.listed_version, changed=None),
    )


def _row(shard: Shard) -> dict[str, object]:
    """Return a shard for the file. By `vars`: `asdict` copies, which took half of the time."""
    members = [_told(member) for member in shard.members]
    row = {**vars(shard), "fields": shard.fields.model_dump(), "members": members}
    del row["key"]
    return row


def _told(member: Member) -> dict[str, str | int]:
    """Return what is known of a member; with 10,000 shards the rest would be half the file."""
    return {name: value for name, value in vars(member).items() if value is not None}


def _shard(key: str, row: Mapping[str, Any]) -> Shard:
    return Shard(
        key=key,
        # A text alone: as format 1 had them.
        members=tuple(Member(m) if isinstance(m, str) else Member(**m) for m in row["members"]),
        fields=Fields.model_validate(row["fields"]),
        generation=int(row["generation"]),
        retired=bool(row["retired"]),
    )
