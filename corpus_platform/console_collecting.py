"""What `corpus gc` and `corpus pin` print: what goes, what stays and why, and the pins."""

from collections.abc import Iterable, Iterator, Mapping

from rich.filesize import decimal

from corpus_platform.stages.collecting import Collected, Found

__all__ = ["collected_line", "collected_lines", "found_lines", "kept_lines", "pin_lines"]

WORDS = {"releases": "release", "artifacts": "generation", "scratch": "leftover"}


def collected_line(item: Collected) -> str:
    """Say of one thing that it went, or why it stayed."""
    verb = f"left: {item.skipped}:" if item.skipped else "removed"
    return f"{verb} {_named(item)}"


def collected_lines(items: Iterable[Collected]) -> Iterator[str]:
    """Say what was freed, and how much stayed that was to go."""
    items = list(items)
    gone = [item for item in items if not item.skipped]
    yield f"freed {_summed(gone)}"
    if len(gone) < len(items):
        yield f"left {_summed(item for item in items if item.skipped)}"


def found_lines(found: Found) -> Iterator[str]:
    """Say what would go."""
    for item in found.items:
        yield f"would remove {_named(item)}"
    yield f"would free {_summed(found.items)}"


def kept_lines(found: Found) -> Iterator[str]:
    """Say what stays: for each reason how many generations, with all that they were made of."""
    for reason, count in sorted(found.kept.items()):
        yield f"kept {count:,} for: {reason}"


def pin_lines(pins: Mapping[str, str]) -> Iterator[str]:
    """Say which releases are pinned."""
    for name, release in sorted(pins.items()):
        yield f"release {release} is pinned" + (f" as {name}" if name != release else "")
    if not pins:
        yield "no release is pinned"


def _named(item: Collected) -> str:
    return f"{item.name}: {decimal(item.bytes)}, {item.reason}"


def _summed(items: Iterable[Collected]) -> str:
    items = list(items)
    counts = [(word, sum(i.kind == kind for i in items)) for kind, word in WORDS.items()]
    parts = [f"{n:,} {word}{'s' * (n != 1)}" for word, n in counts if n]
    return f"{decimal(sum(i.bytes for i in items))}" + (f": {', '.join(parts)}" if parts else "")
