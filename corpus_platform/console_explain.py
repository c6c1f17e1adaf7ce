"""What `corpus explain` prints: the stations of each document, and the token that was asked for."""

import dataclasses
from collections.abc import Iterator, Sequence

from corpus_platform.console import printable
from corpus_platform.stages.explaining import Explanation
from corpus_platform.stages.release_places import Line, TokenPlace
from corpus_platform.stages.stations import Story

__all__ = ["explain_json", "explain_lines"]

PIECES = 5  # of a document that are shown
INDENT = "  "


def explain_json(found: Explanation) -> dict[str, object]:
    """Return the stories, to be printed as JSON."""
    return dataclasses.asdict(found) | {
        "at": None if found.at is None else _place_json(found.at),
        "documents": [_story_json(story) for story in found.documents],
    }


def _place_json(place: TokenPlace) -> dict[str, object]:
    line = None if place.line is None else place.line._asdict()
    return {**dataclasses.asdict(place), "line": line, "padding": place.line is None}


def _story_json(story: Story) -> dict[str, object]:
    released = None
    if story.released is not None:
        places = [
            {n: getattr(p, n) for n in ("file", "start", "tokens", "offset")}
            for p in story.released.places
        ]
        released = {**dataclasses.asdict(story.released), "places": places}
    return dataclasses.asdict(story) | {
        "source": None if story.source is None else story.source._asdict(),
        "twin": None if story.twin is None else _story_json(story.twin),
        "released": released,
    }


def explain_lines(found: Explanation) -> Iterator[str]:
    """Yield what is known of what was asked for, line by line."""
    if found.at is not None:
        yield from _token_lines(found.at)
    for story in found.documents:
        yield from _story_lines(story)
    if found.more:
        yield f"and {found.more:,} more documents with this id or URL"
    yield from found.said


def _token_lines(place: TokenPlace) -> Iterator[str]:
    where = f"{place.file}:{place.offset} of release {place.release}"
    if place.line is None:
        yield f"{where}: token {place.token}, padding: it belongs to no document"
        return
    line = place.line
    yield f"{where}: token {place.token}, number {place.inside} of {line.shard}:{line.row}"
    yield f"{INDENT}text: {_shown(place.before)}»{_shown(place.text)}«{_shown(place.after)}"


def _shown(text: str) -> str:
    return printable(text.replace("\n", "\\n"))


def _story_lines(story: Story) -> Iterator[str]:
    yield _name(story)
    for station, words in _stations(story):
        yield f"{INDENT}{station:<9} {words}"


def _name(story: Story) -> str:
    names = [f"{story.shard}:{story.row}"]
    names += [f"id {story.id}"] if story.id is not None else []
    names += [story.url] if story.url is not None else []
    return "  ".join(names)


def _stations(story: Story) -> Iterator[tuple[str, str]]:
    if (source := story.source) is not None:
        yield "source", f"{source.source}, line {source.line:,}, record {source.row:,}"
    yield from _cleaned(story)
    yield from _copies(story)
    if (packed := story.packed) is not None:
        cut = f"; {packed.cut:,} more were cut off" if packed.cut else ""
        silent = f"; {packed.masked:,} without loss" if packed.masked else ""
        yield "packed", f"{packed.split}, {packed.tokens:,} tokens{cut}{silent}"
    yield from _released(story)
    for note in story.notes:
        yield "note", note


def _cleaned(story: Story) -> Iterator[tuple[str, str]]:
    if (bad := story.quarantined) is not None:
        yield (
            "cleaned",
            f"in quarantine: {bad.reason}, line {bad.line:,} of the shard: {bad.excerpt}",
        )
    elif (drop := story.dropped) is not None:
        yield (
            "cleaned",
            f"dropped by {drop.rule}: {_number(drop.value)}, limit {_number(drop.threshold)}",
        )
    elif story.id is not None and (story.source is not None or story.lang is not None):
        score = "" if story.lang_score is None else f" ({story.lang_score:.2f})"
        yield "cleaned", f"kept by all rules; language {story.lang or 'unknown'}{score}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.6g}"


def _copies(story: Story) -> Iterator[tuple[str, str]]:
    copies = story.copies
    if copies is None:
        if story.state == "undecided":
            yield "copies", "not decided: no clusters know it"
        return
    others = copies.cluster_size - 1
    cluster = f"cluster {copies.cluster} of {copies.cluster_size:,}"
    if story.state == "kept":
        yield "copies", "kept; it has no copies" if not others else f"kept; {cluster} documents"
        return
    kind = story.state.replace("_", " ")
    twin = story.twin
    of = "" if twin is None else f" of {_name(twin)}"
    yield "copies", f"{kind}{of}, similarity {_number(copies.similarity)}; {cluster} documents"
    if twin is not None:
        for station, words in _stations(twin):
            yield "twin", f"{station}: {words}"


def _released(story: Story) -> Iterator[tuple[str, str]]:
    released = story.released
    if released is None:
        return
    pieces = f" in {len(released.places)} pieces" if len(released.places) > 1 else ""
    yield (
        "release",
        f"{released.release}, {released.split}, {released.tokens:,} tokens{pieces}: {_places(released.places)}",
    )


def _places(places: Sequence[Line]) -> str:
    shown = ", ".join(f"{p.file}:{p.start}" for p in places[:PIECES])
    return shown + (f" and {len(places) - PIECES} more" if len(places) > PIECES else "")
