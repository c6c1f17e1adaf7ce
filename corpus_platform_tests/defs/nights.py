"""What the tests of nights share: when they are, what comes in, and what they say of themselves."""

import datetime
from pathlib import Path

import yaml

from corpus_platform.defs.memory import Memory
from corpus_platform.defs.resources import load_corpus
from corpus_platform_tests.daemon import Daemon

__all__ = ["DAY", "NEW", "NIGHT", "change", "heartbeats", "records", "source", "text"]

NIGHT = datetime.datetime(2026, 11, 30, 2, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NEW = ("2026-44/part-00001.jsonl.zst", "2026-44/part-00002.jsonl.gz")
SHORT = "A line that is short.\n"


def text(number: int) -> str:
    """Return a text that passes the rules and resembles no other."""
    words = [f"w{number}x{i * 7919 % 1009}" for i in range(120)]
    lines = [" ".join(words[i : i + 8]) for i in range(0, 120, 8)]
    return "\n".join(lines)


def records(first: int, count: int, *, short: int = 0) -> list[dict[str, str]]:
    """Return records of good texts, numbered from `first`, and after them so many short ones."""
    good = [{"id": f"n{i}", "text": text(i), "lang": "en"} for i in range(first, first + count)]
    return good + [
        {"id": f"s{first}-{i}", "text": f"{SHORT}{i}", "lang": "en"} for i in range(short)
    ]


def source(config: Path, shard: str) -> Path:
    """Return where the file of a shard lies."""
    crawl, name = shard.split("/")
    return config.parent / "source" / f"crawl={crawl}" / name


def change(config: Path, **sections: object) -> None:
    """Replace sections of a settings file."""
    whole = yaml.safe_load(config.read_text(encoding="utf-8")) | sections
    config.write_text(yaml.safe_dump(whole), encoding="utf-8")


def heartbeats(daemon: Daemon) -> list[str]:
    """Return what the nights said of themselves."""
    with daemon.instance() as instance:
        said = Memory(instance, load_corpus(daemon.config).name).get("heartbeats") or []
    return [one["text"] for one in said]
