"""Sources of shards: turns the settings into the shards that the sources list now.

Each kind lists its files in a module of its own (`globs`, `listings`, `hub`, `s3`); here they get
their keys, are left out where `exclude` says so, and are joined to bundles. Fetching a file is for
the stage `raw_shards`.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from corpus_platform.config import SourceSettings
from corpus_platform.errors import SettingsError
from corpus_platform.storage.bundles import bundled_files, to_shards
from corpus_platform.storage.globs import excluded, glob_files
from corpus_platform.storage.hub import list_dataset
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.listings import MAX_LISTING_BYTES, listing_location, read_listing
from corpus_platform.storage.locations import source_of
from corpus_platform.storage.registry import Shard, key_order
from corpus_platform.storage.remote import Remote
from corpus_platform.storage.transfer import shown

__all__ = ["discover", "discover_some"]

_log = logging.getLogger(__name__)


def discover_some(
    sources: Sequence[SourceSettings],
    base: Path,
    *,
    registered: Mapping[str, Shard],
    remote: Remote | None = None,
) -> list[Shard]:
    """Return what `discover` does, for a corpus that has these shards already.

    Raises SettingsError when it has none and the sources list none: a glob is wrong.
    """
    found = discover(sources, base, registered=registered, remote=remote)
    if not found and not registered:
        names = ", ".join(_name(source, base) for source in sources)
        raise SettingsError(
            f"sources: there is no shard: no file matches {names}; correct `glob` or `exclude`,"
            " or put files there"
        )
    return found


def discover(
    sources: Sequence[SourceSettings],
    base: Path,
    *,
    registered: Mapping[str, Shard] | None = None,
    remote: Remote | None = None,
) -> list[Shard]:
    """Return the shards that the sources list now, sorted by key; a warning names a source without.

    Files in bundles of `registered` shards stay in them. `remote` lists what is not on this
    machine. Raises SettingsError when two files claim one key.
    """
    registered, remote = registered or {}, remote or Remote()
    bundled, found = bundled_files(registered), dict[str, Shard]()
    claimed: dict[str, str] = {}  # locations by key
    for source in sources:
        files = sorted(_files(source, base, remote), key=lambda f: key_order(f.key))
        files = _first(files, source.limit, {*registered, *bundled})
        if not files:
            _log.warning("sources: %s lists no file", _name(source, base))
        for file in files:
            _claim(claimed, file)
        shards = to_shards(
            files,
            bundle_bytes=source.bundle_bytes,
            fields=source.fields,
            registered=registered,
            bundled=bundled,
        )
        found.update((shard.key, shard) for shard in shards)
    return [found[key] for key in sorted(found, key=key_order)]


def _first(files: list[Listed], limit: int | None, known: Set[str]) -> list[Listed]:
    """Return the first files, and those further on that are registered: they may have moved."""
    if limit is None:
        return files
    return files[:limit] + [file for file in files[limit:] if file.key in known]


def _claim(claimed: dict[str, str], file: Listed) -> None:
    """Note where the file of a key lies; raises SettingsError where another has that key."""
    key, location = file.key, file.member.location
    other = claimed.setdefault(key, location)
    if other != location and source_of(other) != source_of(location):
        raise SettingsError(
            f"sources: {shown(location)} and {shown(other)} are both shard {key!r}; exclude one of"
            " them or give them different crawls"
        )


def _name(source: SourceSettings, base: Path) -> str:
    """Return how messages name a source."""
    if source.glob is not None:
        return source.glob if "://" in source.glob else os.path.normpath(base / source.glob)
    return source.huggingface or shown(listing_location(source, base))


def _files(source: SourceSettings, base: Path, remote: Remote) -> Iterable[Listed]:
    if source.glob is not None and source.glob.startswith("s3://"):
        return remote.glob(source)
    if source.glob is not None:
        return glob_files(source, base)  # which knows names relative to `base` too
    if source.huggingface is not None:
        return _not_excluded(list_dataset(source, get=remote.get_hub), source)
    where = listing_location(source, base)
    data = remote.get_bytes(where, max_bytes=MAX_LISTING_BYTES)
    return _not_excluded(read_listing(data, location=where, source=source), source)


def _not_excluded(files: Iterable[Listed], source: SourceSettings) -> Iterator[Listed]:
    if not source.exclude:
        yield from files
        return
    for file in files:
        path = re.sub(r"^[a-z][a-z0-9+.-]*:/", "", shown(file.member.location))
        if not excluded(Path(path), Path("/"), source.exclude):
            yield file
