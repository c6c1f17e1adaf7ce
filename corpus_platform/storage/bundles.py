"""Listed files to shards: one each, or small ones joined to bundles.

A bundle is fixed when it is registered: later listings add bundles of their new files and change
none that is there, whatever `bundle_bytes` says by then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from corpus_platform.config import Fields
from corpus_platform.errors import SettingsError
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Shard, key_order
from corpus_platform.storage.transfer import shown

__all__ = ["Bundled", "bundled_files", "to_shards"]

Bundled = Mapping[str, str]  # the key of a bundle by the key that each of its files would have


def bundled_files(registered: Mapping[str, Shard]) -> Bundled:
    """Return which files are in bundles already."""
    return {
        f"{shard.crawl}/{member.name}": shard.key
        for shard in registered.values()
        for member in shard.members
        if member.name is not None
    }


def to_shards(
    listed: Iterable[Listed],
    *,
    bundle_bytes: int,
    fields: Fields,
    registered: Mapping[str, Shard],
    bundled: Bundled,
) -> Iterator[Shard]:
    """Yield the shards of one source's files.

    A registered bundle comes with what is listed of its files now. Raises SettingsError where
    files are to be joined whose sizes are not listed.
    """
    free: list[Listed] = []
    seen: dict[str, dict[str, Listed]] = {}
    for file in listed:
        if (bundle := bundled.get(file.key)) is not None:
            seen.setdefault(bundle, {})[_name(file)] = file
        elif bundle_bytes and file.key not in registered:
            free.append(file)
        else:
            yield Shard(file.key, (file.member,), fields)
    for key, files in seen.items():
        yield _refreshed(registered[key], files, fields)
    for files_of_one in _joined(sorted(free, key=lambda f: key_order(f.key)), bundle_bytes):
        yield _bundle(files_of_one, fields)


def _refreshed(shard: Shard, files: Mapping[str, Listed], fields: Fields) -> Shard:
    listed = {name: replace(file.member, name=name) for name, file in files.items()}
    members = tuple(listed.get(m.name or "", m) for m in shard.members)
    return Shard(shard.key, members, fields)


def _joined(files: Iterable[Listed], bundle_bytes: int) -> Iterator[list[Listed]]:
    """Yield files of one crawl that have about `bundle_bytes` together, in order."""
    bundle: list[Listed] = []
    size = 0
    for file in files:
        if file.member.bytes is None:
            raise SettingsError(
                f"sources: bundle_bytes: the size of {shown(file.member.location)} is not listed;"
                " files of unknown size cannot be joined"
            )
        full = size + file.member.bytes > bundle_bytes
        if bundle and (full or bundle[0].crawl != file.crawl):
            yield bundle
            bundle, size = [], 0
        bundle.append(file)
        size += file.member.bytes
    if bundle:
        yield bundle


def _bundle(files: list[Listed], fields: Fields) -> Shard:
    """Make a bundle, named by its first file and how many more there are; one file is none.

    `%+` is in no key of a file, whatever its name: there, hexadecimal digits follow a %.
    """
    first = files[0]
    if len(files) == 1:
        return Shard(first.key, (first.member,), fields)
    members = tuple(replace(file.member, name=_name(file)) for file in files)
    return Shard(f"{first.key}%+{len(files) - 1}", members, fields)


def _name(file: Listed) -> str:
    return key_order(file.key)[1]
