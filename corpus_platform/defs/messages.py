"""What is told in Slack: failures, missed nights and heartbeats as values, and each as one line.

Pure: facts in, text out. Names and reasons come from shards, which anyone may have written: they
are escaped, freed of control characters and cut, so that no text of theirs notifies anybody or
looks like ours.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "MAX_LINE",
    "MAX_SINGLE",
    "CrashedCheck",
    "Fact",
    "FailedNight",
    "FailedRun",
    "GateFailure",
    "Heartbeat",
    "MissedNight",
    "line",
    "messages",
    "plain",
]

MAX_LINE = 600  # characters of one fact, as sent
MAX_SINGLE = 5  # more facts than that go as one message
MAX_LISTED = 20  # lines of such a message
MAX_HEARTBEAT = 20_000  # characters; Slack cuts a message at 40,000
NOTHING = "a heartbeat without words"  # Slack takes no empty text, and would hold up what follows
ERROR = ":red_circle: ERROR"


@dataclass(frozen=True)
class GateFailure:
    """A gate that failed, or that refused what comes after it; the same one for the same content."""

    asset: str
    partition: str | None
    gate: str
    reason: str
    content: str  # of the artifact judged; empty where there is none
    run_id: str
    at: float
    severity: str = "ERROR"
    value: float | None = None
    limit: float | None = None
    waived: str | None = None
    refused_in: str | None = None  # for a refusal: the partition of its run, or empty

    @property
    def key(self) -> str:
        """Name the failure, whichever run met it."""
        judged = self.content or f"reason: {self.reason}"
        return _key("gate", self.asset, self.gate, self.partition, judged)


@dataclass(frozen=True)
class CrashedCheck:
    """A check that raised an error, and so said nothing of what it was to judge."""

    asset: str
    partition: str | None
    check: str
    reason: str
    run_id: str
    at: float

    @property
    def key(self) -> str:
        """Name the crash, whichever run met it."""
        return _key("crash", self.asset, self.check, self.partition, self.reason)


@dataclass(frozen=True)
class FailedRun:
    """A run that failed for a reason of code or machine, in its last try; `asset` where it stood."""

    job: str
    asset: str | None
    partition: str | None
    reason: str
    run_id: str
    at: float

    @property
    def key(self) -> str:
        """Name the run."""
        return _key("run", self.run_id)


@dataclass(frozen=True)
class Heartbeat:
    """What a night says of itself."""

    night: str
    text: str
    at: float

    @property
    def key(self) -> str:
        """Name the night and what it said."""
        return _key("heartbeat", self.night, self.text)


@dataclass(frozen=True)
class MissedNight:
    """A night that the schedule was to start and did not; `last` is the last one it did.

    `outdated` says in words that the schedule waits for new settings to be loaded.
    """

    expected: str
    last: str | None
    at: float
    outdated: str | None = None

    @property
    def key(self) -> str:
        """Name the night."""
        return _key("missed", self.expected)


@dataclass(frozen=True)
class FailedNight:
    """A night that was started and could not list what to make."""

    night: str
    reason: str
    at: float

    @property
    def key(self) -> str:
        """Name the night."""
        return _key("night", self.night)


Fact = GateFailure | CrashedCheck | FailedRun | FailedNight | Heartbeat | MissedNight


def messages(facts: Sequence[Fact], ui_url: str) -> Iterator[tuple[str, Sequence[Fact]]]:
    """Yield messages in the order of the facts, each with those it tells: one each, or all in one."""
    if len(facts) > MAX_SINGLE:
        yield _grouped(facts, ui_url), facts
        return
    for fact in facts:
        text = _heartbeat(fact) if isinstance(fact, Heartbeat) else line(fact, ui_url)
        yield text, [fact]


def _grouped(facts: Sequence[Fact], ui_url: str) -> str:
    lines = [f"{len(facts)} things to tell:", *(line(f, ui_url) for f in facts[:MAX_LISTED])]
    if len(facts) > MAX_LISTED:
        lines.append(f"and {len(facts) - MAX_LISTED} more")
    return "\n".join(lines)


def line(fact: Fact, ui_url: str) -> str:
    """Return a fact in one line of less than MAX_LINE characters."""
    match fact:
        case GateFailure():
            return _fitted(_gate_head(fact), fact.reason, _link(fact.run_id, ui_url))
        case CrashedCheck():
            head = f"{ERROR} {_where(fact.asset, fact.partition)}: check {plain(fact.check, 60)} crashed"
            return _fitted(head, fact.reason, _link(fact.run_id, ui_url))
        case FailedRun():
            head = f"{ERROR} {_where(fact.asset or fact.job, fact.partition)}: run of {plain(fact.job, 60)} failed"
            return _fitted(head, fact.reason, _link(fact.run_id, ui_url))
        case FailedNight():
            return _fitted(f"{ERROR} the night of {plain(fact.night, 60)} failed", fact.reason, "")
        case Heartbeat():
            return plain(fact.text, MAX_LINE - 1) or NOTHING
        case MissedNight():
            return _missed_line(fact)


def _fitted(head: str, reason: str, link: str) -> str:
    """Join the parts of a line; the reason is cut to what room there is."""
    room = MAX_LINE - len(head) - len(link) - len(": ") - len(" ") - 1
    return f"{head}: {plain(reason, room)} {link}".rstrip()


def _gate_head(fact: GateFailure) -> str:
    mark = ":large_yellow_circle: WARN" if fact.severity == "WARN" else ERROR
    waived = " (waived)" if fact.waived is not None else ""
    value = "" if fact.value is None else f" {_number(fact.value)}"
    against = "" if fact.limit is None else f" against limit {_number(fact.limit)}"
    check = f"check {plain(fact.gate, 60)}{value}{against}"
    return f"{mark}{waived} {_where(fact.asset, fact.partition)}: {check}"


def _missed_line(fact: MissedNight) -> str:
    last = "none was ever recorded" if fact.last is None else f"the last was {plain(fact.last, 60)}"
    why = fact.outdated or "is the schedule stopped, or the daemon?"
    head = f"{ERROR} the night of {plain(fact.expected, 60)} was not started ({last})"
    return _fitted(head, why, "")


def _where(asset: str, partition: str | None) -> str:
    return plain(asset, 60) + ("" if partition is None else f" [{plain(partition, 120)}]")


def _heartbeat(fact: Heartbeat) -> str:
    """Return the text of a heartbeat with its lines as they stand."""
    whole = "\n".join(plain(text, MAX_LINE - 1) for text in fact.text.splitlines())
    return (whole if len(whole) <= MAX_HEARTBEAT else plain(fact.text, MAX_HEARTBEAT)) or NOTHING


def _link(run_id: str, ui_url: str) -> str:
    """Return a link to a run; nothing where no run is known, or its address would fill the line."""
    address = _escape(f"{ui_url.rstrip('/')}/runs/{run_id}").replace("|", "%7C")
    return f"<{address}|run {run_id[:8]}>" if run_id and len(address) < 250 else ""


def _number(value: float) -> str:
    """Return a whole number whole, any other with at most six digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def plain(text: str, most: int) -> str:
    """Return text in one line that Slack shows as it stands, in at most `most` characters."""
    parts, length = [], 0
    for character in " ".join(_visible(text[: 4 * most]).split()):
        part = _escape(character)
        if length + len(part) > most - 1:
            return "".join(parts) + "…"
        parts.append(part)
        length += len(part)
    return "".join(parts)


def _escape(text: str) -> str:
    """Return text without what Slack takes for the begin of a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _visible(text: str) -> str:
    """Return text without what is not seen: white space is a blank, all other control is gone."""
    return "".join(
        " " if character.isspace() else character
        for character in text
        if character.isspace() or not unicodedata.category(character).startswith("C")
    )


def _key(*parts: str | None) -> str:
    """Return a short name of a fact: its kind, and a hash of what tells it from others."""
    whole = json.dumps(parts).encode()
    return f"{parts[0]}:{hashlib.sha256(whole).hexdigest()[:24]}"
