"""Where the shards of a release came from, by crawl: files, bytes, one hash, place and licence.

And what each shard has in the release. Places are those of the registry without queries, users and folders of this machine; licences those
that the settings state now.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from corpus_platform.config import SourceSettings
from corpus_platform.reports.release import Source
from corpus_platform.stages.members import legible
from corpus_platform.stages.project import Project
from corpus_platform.storage.files import canonical_json, text_sha256
from corpus_platform.storage.globs import glob_expression
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.registry import Member
from corpus_platform.storage.transfer import shown

__all__ = ["SOURCES_FILE", "licences_of", "location_of", "release_sources", "sources_json"]

SOURCES_FILE = "sources.json"


def release_sources(project: Project, shards: Sequence[str]) -> list[Source]:
    """Return a row for each crawl, oldest first. The raw shards must be there."""
    by_crawl: dict[str, list[str]] = {}
    for shard in shards:
        by_crawl.setdefault(shard.split("/", 1)[0], []).append(shard)
    return [_source(project, crawl, keys) for crawl, keys in by_crawl.items()]


def sources_json(sources: Sequence[Source], by_shard: Json) -> bytes:
    """Return the bytes of sources.json; `by_shard` is what each shard has in the release."""
    whole = {"format": 1, "crawls": {s.crawl: _row(s) for s in sources}, "shards": by_shard}
    return (json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _row(source: Source) -> Mapping[str, object]:
    row = source._asdict()
    del row["crawl"]
    return row


def _source(project: Project, crawl: str, keys: Sequence[str]) -> Source:
    files: list[tuple[str, str, int, str]] = []
    members: list[Member] = []
    for key in keys:
        raw = project.present("raw_shards", key)
        sizes = raw.sizes()
        files += [(key, name, sizes[name], digest) for name, digest in sorted(raw.hashes().items())]
        members += project.shard(key).members
    return Source(
        crawl=crawl,
        shards=len(keys),
        files=len(files),
        bytes=sum(size for _, _, size, _ in files),
        sha256=text_sha256(canonical_json(files)),
        location=location_of(project, members),
        licences=licences_of(project, crawl, members),
    )


def location_of(project: Project, members: Sequence[Member]) -> str:
    """Return what all members' places begin with, up to a folder, and `*` for the rest."""
    places = [_place(project, member) for member in members]
    if len(set(places)) == 1:
        return places[0]
    pairs = zip(min(places), max(places), strict=False)
    begin = "".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return f"{begin[: begin.rfind('/') + 1]}*"


def _place(project: Project, member: Member) -> str:
    """Return a member's URL without secrets, or its path below the settings file, else its end."""
    if member.path is None:
        return shown(member.location)
    path = os.path.relpath(member.path, project.settings.base.absolute())
    if path.startswith(".."):
        path = "/".join(["…", *member.path.parts[-2:]])
    return legible(path)


def licences_of(project: Project, crawl: str, members: Sequence[Member]) -> tuple[str, ...]:
    """Return what the sources state that may have brought a crawl; of several each, sorted."""
    sources = list(_sources_of(project, crawl, members))
    return tuple(sorted({s.license for s in sources if s.license is not None}))


def _sources_of(
    project: Project, crawl: str, members: Sequence[Member]
) -> Iterator[SourceSettings]:
    """Yield the sources that name the crawl, or else may have found it by their glob or listing."""
    every = project.settings.sources
    named = [s for s in every if s.crawl == crawl]
    open_ = [s for s in every if s.crawl is None]
    found = [s for s in open_ if s.glob is not None and _matches(project, s.glob, members)]
    yield from named or found or [s for s in open_ if s.listing is not None]


def _matches(project: Project, glob: str, members: Sequence[Member]) -> bool:
    if glob.startswith("s3://"):
        expression = glob_expression(f"/{glob.removeprefix('s3://')}")
        places = [f"/{m.location.removeprefix('s3://')}" for m in members if m.location.startswith("s3://")]  # fmt: skip
    else:
        base = project.settings.base.absolute()
        pattern = os.path.normpath(os.path.join(base, glob.removeprefix("file://")))
        expression = glob_expression(pattern)
        places = [str(m.path) for m in members if m.path is not None]
    return any(expression.fullmatch(place) for place in places)
