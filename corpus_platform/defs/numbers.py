"""The numbers of an artifact as the UI shows and plots them: what was counted, shares of it, rates.

Names are data: plots and alerts go by them, and they never change. What is counted, and which
numbers a gate looks at, is the stages' business.
"""

import math
from collections.abc import Iterator, Mapping

__all__ = ["shown_numbers"]

SHARES = (
    ("kept_share", "kept", "documents"),
    ("quarantined_share", "quarantined", "lines"),
    ("copy_share", "copies", "documents"),
    ("exact_copy_share", "exact_copies", "documents"),
    ("near_copy_share", "near_copies", "documents"),
    ("validation_share", "validation", "kept"),
    ("validation_token_share", "validation_tokens", "tokens"),
    ("tokens_per_document", "tokens", "documents"),
)
SUMS = (
    ("copies", ("exact_copies", "near_copies")),
    ("tokens", ("train_tokens", "validation_tokens")),
    ("documents", ("train_documents", "validation_documents")),
)
MAX_NUMBERS = 200  # each event is a row of the event log
RECORDS = ("bad_no_loss_ranges/", "rare_token/")  # to be named: no two artifacts have the same


def shown_numbers(
    numbers: Mapping[str, float],
    *,
    seconds: float = 0.0,
    bytes_in: int = 0,
    sequence_length: int = 0,
) -> dict[str, float]:
    """Return numbers under stable names, after the shares and rates that a person looks at first."""
    sums = {
        name: sum(numbers[part] for part in parts)
        for name, parts in SUMS
        if name not in numbers and all(part in numbers for part in parts)
    }
    whole = {**numbers, **sums}
    shown = {
        **dict(_shares(whole)),
        **dict(_rates(whole, seconds, bytes_in)),
        **dict(_windows(whole, sequence_length)),
        **whole,
    }
    plotted = [(name, value) for name, value in shown.items() if not name.startswith(RECORDS)]
    return dict(plotted[:MAX_NUMBERS])


def _shares(numbers: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, part, total in SHARES:
        if part in numbers and numbers.get(total):
            yield name, numbers[part] / numbers[total]
    for name, value in numbers.items():
        if name.startswith("dropped/") and numbers.get("documents"):
            yield f"drop_rate/{name.removeprefix('dropped/')}", value / numbers["documents"]


def _rates(
    numbers: Mapping[str, float], seconds: float, bytes_in: int
) -> Iterator[tuple[str, float]]:
    """Yield what was done in a second; megabytes are those of the text where that was unpacked."""
    done = {
        "mb_per_second": numbers.get("decompressed_bytes", bytes_in) / 1e6,
        "documents_per_second": numbers.get("documents", 0),
        "tokens_per_second": numbers.get("tokens", 0),
    }
    yield from ((name, value / seconds) for name, value in done.items() if seconds and value)


def _windows(numbers: Mapping[str, float], length: int) -> Iterator[tuple[str, float]]:
    """Yield how many training sequences the tokens make, and how full those are."""
    tokens = numbers.get("train_tokens", 0)
    in_rows = any(
        numbers.get(name) for name in ("padding_tokens", "strategy/best_fit", "strategy/pad")
    )
    if tokens and length and not in_rows:
        sequences = math.ceil(tokens / length)
        yield "sequences", sequences
        yield "utilisation", tokens / (sequences * length)
