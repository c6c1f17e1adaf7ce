"""The whole story of a document: what each stage did with it, and where it lies in a release.

A document is asked for by its id, its URL, its shard and row, or a token of a release that is its
own. Stages are asked in the order of the chain, by the artifacts that are wanted now; where one is
stale or not there the story says so and goes on.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.stages.document_index import Kind, documents_index
from corpus_platform.stages.members import legible
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import NamedRelease, name_release
from corpus_platform.stages.release_places import TokenPlace, is_token_file, token_at
from corpus_platform.stages.shuffled_bins import release_in_force
from corpus_platform.stages.stations import CLEANED, Story, has_value, records, standing, story

__all__ = ["MOST", "Explanation", "explain"]

MOST = 20  # documents of one id or URL that are told of
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
    try:
        with project.unchanging():
            return _explained(project, asked, release, progress)
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise StorageError(
            f"a table cannot be read: {error}; `corpus verify` says which file is damaged"
        ) from error


def _explained(project: Project, asked: str, release: str | None, progress: Told) -> Explanation:
    pinned = _release(project, release)
    before, _, number = asked.rpartition(":")
    if before and number.isascii() and number.isdigit():
        if before in project.registry.all():
            return _record(project, asked, before, int(number), pinned)
        if pinned and is_token_file(before, pinned):
            return _token(project, asked, before, int(number), pinned)
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
    return Explanation(asked, (story(project, shard, row, release),))


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
    places, unread = _find(project, asked, progress)
    if places:
        told = tuple(story(project, *place, release) for place in places[:MOST])
        return Explanation(asked, told, len(places) - len(told))
    return Explanation(asked, said=tuple(_nearest(project, asked, release, unread)))


def _find(project: Project, asked: str, progress: Told) -> tuple[list[tuple[str, int]], list[str]]:
    """Return where documents of an id or URL stand, and the shards that cannot be looked into."""
    places, unread, shards = list[tuple[str, int]](), list[str](), list(project.registry.all())
    for done, shard in enumerate(shards, start=1):
        cleaned, _ = standing(project, CLEANED, shard)
        if cleaned is None or not cleaned.numbers.get("readable"):
            unread.append(shard)
        else:
            index = documents_index(project, shard, cleaned)
            kinds: tuple[Kind, ...] = ("id", "url")
            found = {(row, kind) for kind in kinds for row in index.rows(kind, asked)}
            # The hash of 64 bits has said so: beyond those that are shown that will do.
            rows = sorted({r for r, k in found if len(places) > MOST or has_value(cleaned, r, k, asked)})  # fmt: skip
            places += [(shard, row) for row in rows]
        progress(done, len(shards))
    return places, unread


def _nearest(
    project: Project, asked: str, release: NamedRelease | None, unread: list[str]
) -> Iterator[str]:
    """Say in words what comes nearest to something that is not there."""
    shards = project.registry.all()
    before, _, number = asked.rpartition(":")
    is_url = "://" in asked
    if number.isdigit() and _TOKEN_FILE.fullmatch(before):
        yield f"no token file {before}: {_token_files(release)}"
    elif number.isdigit() and not is_url and (bundles := [k for k, s in shards.items() if before in s.files]):  # fmt: skip
        yield f"{legible(before)} is a file of the shard {bundles[0]}: name a row of that"
    elif number.isdigit() and not is_url and (near := difflib.get_close_matches(before, shards, n=1)):  # fmt: skip
        yield f"no shard {before!r}; there is {near[0]}"
    what = "URL" if is_url else "id or URL"
    yield f"no document of {len(shards) - len(unread):,} shards has the {what} {asked!r}"
    if is_url:
        yield "URLs of records that a rule dropped are not kept: ask for their id, or SHARD:ROW"
    yield "records in quarantine have neither id nor URL: ask for SHARD:ROW"
    if unread:
        more = f" and {len(unread) - 3:,} more" if len(unread) > 3 else ""
        yield f"not looked into, since they are not cleaned or cannot be read: {', '.join(unread[:3])}{more}"


def _token_files(release: NamedRelease | None) -> str:
    if release is None:
        return "no release is in force; name one with --release"
    files = [o.name for o in release.manifest.outputs if o.name.endswith(".bin")]
    more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
    return f"release {release.id} has {', '.join(files[:3])}{more}"
