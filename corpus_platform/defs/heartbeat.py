"""The heartbeat: one message a night that sums it up, so that silence means that nothing ran.

It is put together from the numbers of artifacts as the catalogs know them; no file is opened.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from corpus_platform.defs.memory import Memory
from corpus_platform.defs.nightly import Night
from corpus_platform.errors import place
from corpus_platform.planner import Survey
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import release_in_force

__all__ = ["Counts", "note_heartbeat", "words_of"]

HEARTBEATS = "heartbeats"  # the name in Memory
KEPT_NIGHTS = 30  # more than `nightly` keeps: what was told is not told again
SHOWN = 10  # blocked ones


@dataclass(frozen=True)
class Counts:
    """What came of some shards that are packed: cleaned documents, copies among them, tokens of
    the others."""

    documents: int = 0
    copies: int = 0
    tokens: int = 0


def note_heartbeat(
    memory: Memory, project: Project, found: Survey, night: Night, *, at: float
) -> str | None:
    """Leave the message of a night to be sent; return it, None when it was left before."""
    kept = memory.get(HEARTBEATS) or []
    if any(one["night"] == night.scheduled for one in kept):
        return None
    words = words_of(project, found, night)
    kept.append({"night": night.scheduled, "text": words, "at": at})
    memory.set(HEARTBEATS, kept[-KEPT_NIGHTS:])
    return words


def words_of(project: Project, found: Survey, night: Night) -> str:
    """Return the message of a night, as things stand."""
    return "\n".join(_lines(project, found, night))


def _lines(project: Project, found: Survey, night: Night) -> Iterable[str]:
    known = set(project.registry.keys())  # a killed tick may have noted more than it registered
    new = [shard for shard in night.new if shard in known]
    counts, corpus = _count(project, new), _count(project, project.shards())
    yield (
        f"Night of {night.scheduled}: {len(new):,} new shards with {counts.documents:,}"
        f" documents, {counts.copies:,} of them copies, {counts.tokens:,} tokens"
    )
    yield (
        f"Corpus: {len(project.shards()):,} shards, {corpus.documents:,} documents,"
        f" {corpus.copies:,} copies, {corpus.tokens:,} tokens"
    )
    release = release_in_force(project)
    yield f"Release in force: {release['id']}" if release else "No release is in force"
    pending = found.of("shuffled_bins")
    if pending.state in ("missing", "stale") and not pending.due:  # it is for a person to make
        yield f"No new release: {pending.reason}"
    if night.trouble:
        yield f"Trouble: {night.trouble}"
    if night.left or night.waiting:
        yield f"Left for the next nights: {night.left + night.waiting:,} shards"
    if night.gone:
        yield f"Listed no more, and kept: {len(night.gone):,} shards, such as {night.gone[0]}"
    if due := found.due:
        yield f"Still due: {len(due):,}, such as {due[0].asset}: {due[0].reason}"
    blocked = found.blocked
    for one in blocked[:SHOWN]:
        yield f"Blocked: {place(one.asset, one.partition)}: {one.gate}: {one.reason}"
    if len(blocked) > SHOWN:
        yield f"and {len(blocked) - SHOWN:,} more blocked"


def _count(project: Project, shards: Iterable[str]) -> Counts:
    documents = copies = tokens = 0
    with project.unchanging():
        for shard in shards:
            cleaned = project.artifact("cleaned_documents", shard)
            packed = project.artifact("packed_bins", shard)
            if cleaned is None or packed is None:  # blocked ones are named below
                continue
            cleaned_documents = int(cleaned.numbers["kept"])
            documents += cleaned_documents
            copies += cleaned_documents - _sum(packed.numbers, "documents")
            tokens += _sum(packed.numbers, "tokens")
    return Counts(documents, copies, tokens)


def _sum(numbers: Mapping[str, float], what: str) -> int:
    return int(sum(numbers.get(f"{split}_{what}", 0) for split in ("train", "validation")))
