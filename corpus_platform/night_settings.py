"""The settings of what goes on by itself: when the nightly refresh runs, and who hears of what failed."""

import re
import zoneinfo
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from corpus_platform.rule_settings import Section, from_list
from corpus_platform.source_settings import HttpAddress

__all__ = ["AlertsSettings", "Owners", "ScheduleSettings", "SlackSettings"]

# Of each field of a cron line: its name, least and largest number, and the names of numbers.
_CRON_FIELDS: tuple[tuple[str, int, int, str], ...] = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("weekday", 0, 7, "sun mon tue wed thu fri sat"),
)
_CRON_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([1-9]\d{0,2}))?", re.ASCII)


def _cron(value: str) -> str:
    parts = value.split()
    if len(parts) != len(_CRON_FIELDS):
        raise ValueError(
            f"five fields are wanted (minute hour day month weekday), not {len(parts)}"
        )
    for text, (field, low, high, names) in zip(parts, _CRON_FIELDS, strict=True):
        for part in text.split(","):
            match = _CRON_PART.fullmatch(part)
            ends = [_cron_number(e, low, names) for e in match.groups()[:2] if e] if match else []
            if match is None or ends != sorted(ends) or any(not low <= e <= high for e in ends):
                raise ValueError(f"{field} {text!r}: numbers from {low} to {high} are wanted: *, 5, 1-5, */10, 1,15")  # fmt: skip
    return value


def _cron_number(text: str, low: int, names: str) -> int:
    """Return the number of one end of a range, -1 for what is none."""
    if text.isdecimal():
        return int(text)
    known = names.split()
    return low + known.index(text.lower()) if text.lower() in known else -1


def _timezone(value: str) -> str:
    try:
        known = value == "UTC" or zoneinfo.ZoneInfo(value)  # UTC needs no tables of the system
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = None
    if not known:
        raise ValueError("no such time zone; names are like UTC, Europe/Berlin")
    return value


def _owner(value: str) -> str:
    if not re.fullmatch(r"team:[A-Za-z0-9_-]+|[^@\s:]+@[^@\s]+\.[^@\s]+", value, re.ASCII):
        raise ValueError("team:NAME or name@host.example is wanted")
    return value


Owners = Annotated[tuple[Annotated[str, AfterValidator(_owner)], ...], BeforeValidator(from_list)]
Cron = Annotated[str, AfterValidator(_cron)]
Timezone = Annotated[str, AfterValidator(_timezone)]


class ScheduleSettings(Section):
    """When the nightly refresh runs, and how much of it."""

    cron: Cron = Field("0 2 * * *", description="Minute, hour, day, month, weekday.")
    timezone: Timezone = Field("UTC", description="Where that hour is.")
    max_shards: int = Field(
        200,
        ge=1,
        description="Most shards that a night begins; further new ones are registered in the next.",
    )
    keep_history_days: int = Field(
        90,
        ge=1,
        description="The job prune_history removes older runs from Dagster's history, except the newest of each partition; manifests stay.",
    )


class SlackSettings(Section):
    """Where alerts go; the token comes from SLACK_BOT_TOKEN, and SLACK_CHANNEL wins over `channel`."""

    channel: str = Field("#corpus", min_length=1, description="Name or id of the channel.")
    base_url: HttpAddress = Field(
        "https://slack.com/api/", description="Where Slack's API is; another for a proxy."
    )


class AlertsSettings(Section):
    """Who hears of failures, and what links in messages begin with."""

    slack: SlackSettings | None = Field(
        None, description="Left out: nothing is sent, unless SLACK_CHANNEL names a channel."
    )
    ui_url: HttpAddress = Field(
        "http://127.0.0.1:3000/", description="Where the web UI is, for links to runs."
    )
