"""The registry of shards: which exist, of which members, from which source.

It is the truth about the set of partitions: a shard once registered stays, whatever a later
listing says, until it is retired. One JSON file, replaced whole under a lease.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any  # values of a JSON object, checked where they are read

from corpus_platform.config import Fields
from corpus_platform.errors import StorageError, UsageError
from corpus_platform.storage import lease
from corpus_platform.storage.catalog import FileStamp, stamp
from corpus_platform.storage.files import publish_bytes

__all__ = ["Registry", "Shard", "key_order"]


@dataclass(frozen=True)
class Shard:
    """One registered shard. `members` are absolute paths of its source files, in order;
    `generation` rises when changed source bytes are accepted."""

    key: str
    members: tuple[str, ...]
    fields: Fields
    generation: int = 0
    retired: bool = False

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

        The members of a known shard may move, but not change in number or name.
        """
        with lease.hold(self._path.with_suffix(".lease")):
            before = self._read()
            shards = dict(before)
            new = []
            for shard in found:
                old = shards.get(shard.key)
                if old is None:
                    new.append(shard.key)
                    shards[shard.key] = shard
                else:
                    shards[shard.key] = replace(old, members=shard.members, fields=shard.fields)
            if shards != before:
                self._write(shards)
        return sorted(new)

    def accept(self, key: str) -> Shard:
        """Take the source's present bytes of a shard as a new generation."""
        with lease.hold(self._path.with_suffix(".lease")):
            old = self.shard(key)
            shards = dict(self._read())
            shards[key] = replace(old, generation=old.generation + 1)
            self._write(shards)
        return shards[key]

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
            return {
                key: _shard(key, row)
                for key, row in sorted(raw["shards"].items(), key=lambda row: key_order(row[0]))
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                f"{self._path}: not a registry: {error!r}; restore it from a backup, or delete it"
                " to register all listed shards anew"
            ) from error

    def _write(self, shards: Mapping[str, Shard]) -> None:
        rows = {}
        for key, shard in shards.items():
            row = asdict(shard)
            row["fields"] = shard.fields.model_dump()
            del row["key"]
            rows[key] = row
        whole = {"format": 1, "shards": rows}
        publish_bytes(self._path, (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode())


def key_order(key: str) -> tuple[str, str]:
    """Return what shard keys are sorted by: the crawl, then the name."""
    crawl, _, name = key.partition("/")
    return crawl, name


def _shard(key: str, row: Mapping[str, Any]) -> Shard:
    return Shard(
        key=key,
        members=tuple(row["members"]),
        fields=Fields.model_validate(row["fields"]),
        generation=int(row["generation"]),
        retired=bool(row["retired"]),
    )
