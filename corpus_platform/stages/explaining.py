"""The whole story of a document: what each stage did with it, and where it lies in a release.

A document is asked for by its id, its URL, its shard and row, or a token of a release that is its
own. Stages are asked in the order of the chain, by the artifacts that are wanted now; where one is
stale or not there the story says so and goes on.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from corpus_platform.errors import UsageError
from corpus_platform.stages.document_index import Kind, documents_index
from corpus_platform.stages.dropped_urls import ReadShard, find_dropped
from corpus_platform.stages.members import legible
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import NamedRelease, name_release
from corpus_platform.stages.release_places import TokenPlace, is_token_file, token_at
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.stages.stations import (
    CLEANED,
    RAW,
    Story,
    add_released,
    has_value,
    records,
    standing,
    story,
)
from corpus_platform.stages.tables import readable
from corpus_platform.storage.artifacts import Artifact

__all__ = ["MOST", "Explanation", "explain"]

MOST = 20  # documents of one id or URL that are told of
MOST_DIGITS = 18  # of a row or an offset: they are 64 bits
_TOKEN_FILE = re.compile(r"(train|val)-\d{5,}(\.bin)?")
Told = Callable[[int, int], None]  # shards looked at, of all


@dataclass(frozen=True)
class Explanation:
    """The stories of what was asked for; `more` documents are counted only.

    `at` is the token that was asked for. `said` tells in words what is not there.
    """

    asked: str
    documents: tuple[Story, ...] = ()
    more: int = 0
    at: TokenPlace | None = None
    said: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is anything of what was asked for."""
        return bool(self.documents or self.at)


def explain(
    project: Project,
    asked: str,
    *,
    release: str | None = None,
    progress: Told = lambda done, total: None,
) -> Explanation:
    """Tell the story of a document id, a URL, `SHARD:ROW`, or `FILE:OFFSET` of a release.

    The release is that in force unless one is named. Raises UsageError for one that is not there,
    StorageError for tables that cannot be read.
    """
    with readable(), project.unchanging():
        return _explained(project, asked, release, progress)


def _explained(project: Project, asked: str, release: str | None, progress: Told) -> Explanation:
    pinned = _release(project, release)
    before, _, number = asked.rpartition(":")
    if before and number.isascii() and number.isdigit():
        digits = number.lstrip("0") or "0"
        # A longer one is beyond every end all the same.
        place = int(digits) if len(digits) <= MOST_DIGITS else 10**MOST_DIGITS
        if before in project.registry.all():
            return _record(project, asked, before, place, pinned)
        if pinned and is_token_file(before, pinned):
            return _token(project, asked, before, place, pinned)
    return _named(project, asked, pinned, progress)


def _release(project: Project, name: str | None) -> NamedRelease | None:
    if name is not None:
        return name_release(project, name)
    return name_release(project, "current") if release_in_force(project) else None


def _record(
    project: Project, asked: str, shard: str, row: int, release: NamedRelease | None
) -> Explanation:
    cleaned, note = standing(project, CLEANED, shard)
    if cleaned is None:
        return Explanation(asked, said=(f"nothing is known of the records of {shard}: {note}",))
    if not cleaned.numbers.get("readable"):
        failure = cleaned.manifest.ledger["failure"]
        return Explanation(asked, said=(f"{shard} cannot be read, so none of its records was taken: {failure}",))  # fmt: skip
    count = records(cleaned)
    if row >= count:
        last = f": rows 0 to {count - 1:,}" if count else ""
        return Explanation(asked, said=(f"{shard} has {count:,} records{last}",))
    return Explanation(asked, tuple(_stories(project, [(shard, row)], release)))


def _stories(
    project: Project, places: Sequence[tuple[str, int]], release: NamedRelease | None
) -> list[Story]:
    told = [story(project, shard, row) for shard, row in places]
    add_released(project, told, release)
    return told


def _token(
    project: Project, asked: str, file: str, offset: int, release: NamedRelease
) -> Explanation:
    try:
        place = token_at(release, file, offset)
    except UsageError as beyond:
        return Explanation(asked, said=(str(beyond),))
    if place.line is None:
        return Explanation(asked, at=place)
    shard, row = place.line.shard, place.line.row
    if shard not in project.registry.all():
        return Explanation(asked, at=place, said=(f"shard {shard} is not registered any more",))
    found = _record(project, asked, shard, row, release)
    return replace(found, at=place)


def _named(
    project: Project, asked: str, release: NamedRelease | None, progress: Told
) -> Explanation:
    """Tell of all documents that have an id or a URL."""
    looked = _find(project, asked, progress)
    if not looked.places and "/" in asked:  # as URLs have, and few ids
        dropped = find_dropped(project, asked, list(_stored(project, looked.read)), progress)
        looked = replace(looked, places=dropped.places, urls_unread=dropped.unread)
    told = _stories(project, looked.places[:MOST], release)
    for one in told:
        if one.state == "dropped" and one.id != asked:
            one.url = asked
    if told:
        return Explanation(asked, tuple(told), len(looked.places) - len(told))
    return Explanation(asked, said=tuple(_nearest(project, asked, release, looked)))


@dataclass(frozen=True)
class _Looked:
    """Where documents stand, the shards that were looked into, and those that could not be."""

    places: list[tuple[str, int]]
    read: dict[str, Artifact]
    unread: list[str]
    urls_unread: int = 0


def _find(project: Project, asked: str, progress: Told) -> _Looked:
    """Return where documents of an id or URL stand."""
    looked, shards = _Looked([], {}, []), list(project.registry.all())
    kinds: tuple[Kind, ...] = ("id", "url")
    for done, shard in enumerate(shards, start=1):
        cleaned, _ = standing(project, CLEANED, shard)
        if cleaned is None or not cleaned.numbers.get("readable"):
            looked.unread.append(shard)
            continue
        index = documents_index(project, shard, cleaned)
        found = [(row, kind) for kind in kinds for row in index.rows(kind, asked)]
        # A hash of 64 bits has said so: beyond those that are shown that will do.
        is_sure = len(looked.places) > MOST
        rows = {r for r, k in found if is_sure or has_value(cleaned, r, k, asked)}
        looked.places.extend((shard, row) for row in sorted(rows))
        looked.read[shard] = cleaned
        progress(done, len(shards))
    return looked


def _stored(project: Project, read: Mapping[str, Artifact]) -> Iterator[ReadShard]:
    """Yield the shards that were looked into and are stored, as they should be or were at last."""
    for shard, cleaned in read.items():
        raw, _ = standing(project, RAW, shard)
        if raw is not None:
            yield ReadShard(shard, raw, cleaned)


def _nearest(
    project: Project, asked: str, release: NamedRelease | None, looked: _Looked
) -> Iterator[str]:
    """Say in words what comes nearest to something that is not there."""
    before, _, number = asked.rpartition(":")
    if number.isdigit() and "://" not in asked:
        yield from _nearest_place(project, before, release)
    elif asked in project.registry.all():
        yield f"{asked!r} is a shard: ask for one of its records, from {asked}:0 on"
    what, unread = "URL" if "://" in asked else "id or URL", looked.unread
    count = len(project.registry.all()) - len(unread)
    yield f"no document of {count:,} shards has the {what} {asked!r}"
    if looked.urls_unread:
        yield (
            f"URLs of records that a rule dropped are not kept, and {looked.urls_unread:,} shards"
            " are too large to be read for them: ask for the id, or SHARD:ROW"
        )
    yield "records in quarantine have neither id nor URL: ask for SHARD:ROW"
    if unread:
        more = f" and {len(unread) - 3:,} more" if len(unread) > 3 else ""
        named = ", ".join(unread[:3])
        yield f"not looked into, since they are not cleaned or cannot be read: {named}{more}"


def _nearest_place(project: Project, before: str, release: NamedRelease | None) -> Iterator[str]:
    shards = project.registry.all()
    if _TOKEN_FILE.fullmatch(before):
        yield f"no token file {before}: {_token_files(release)}"
    elif bundle := next((key for key, s in shards.items() if before in s.files), None):
        yield f"{legible(before)} is a file of the shard {bundle}: name a row of that"
    elif near := difflib.get_close_matches(before, shards, n=1):
        yield f"no shard {before!r}; there is {near[0]}"


def _token_files(release: NamedRelease | None) -> str:
    if release is None:
        return "no release is in force; name one with --release"
    files = [o.name for o in release.manifest.outputs if o.name.endswith(".bin")]
    more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
    return f"release {release.id} has {', '.join(files[:3])}{more}"
