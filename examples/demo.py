"""A synthetic corpus, from writing it to the release, in half a minute: run `python examples/demo.py`.

Writes two zstd shards of made-up articles and a listing of their `file://` URLs, with hashes, into a
folder (by default a temporary one), runs the whole chain on them, and prints the source manifest and
what became of the copies: an article with three other footers, a program under two licences, a post
with tracking parameters in its links. Ends with 0 when all of them were found.
"""

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from backports import zstd

WORDS = [
    "river",
    "market",
    "window",
    "engine",
    "harvest",
    "letter",
    "stone",
    "winter",
    "council",
    "bridge",
    "teacher",
    "garden",
    "signal",
    "paper",
    "morning",
    "island",
    "metal",
    "forest",
    "journey",
    "machine",
    "village",
    "theory",
    "colour",
    "answer",
    "song",
    "measure",
    "history",
    "captain",
    "coast",
    "pattern",
    "number",
    "season",
    "voice",
    "silver",
    "branch",
    "question",
    "corner",
]
FOOTERS = (
    "Subscribe to our newsletter to hear of new articles.",
    "Copyright held by the author. All rights reserved.",
    "Read more in the archive of this month.",
)
SETTINGS = """\
sources:
  - listing: shards.json
    crawl: demo
clean: {preset: none}
dedup: {threshold: 0.8}
tokenizer: {vocab_size: 500}
split: {validation: 0.02}
"""


def article(seed: int, sentences: int = 40) -> str:
    """Return a made-up article; the same one for the same seed."""
    chosen = random.Random(seed)
    lines = (" ".join(chosen.choices(WORDS, k=12)).capitalize() + "." for _ in range(sentences))
    return "\n".join(lines)


def families() -> Iterator[tuple[str, list[str]]]:
    """Yield near-copies of one text each, under the name of what makes them differ."""
    yield "footer", [f"{article(1)}\n{footer}" for footer in FOOTERS]
    code = "\n".join(f"def step_{i}(value):\n    return value * {i} + 1\n" for i in range(60))
    yield "licence", [f"# Licence: {name}\n{code}" for name in ("MIT", "Apache 2.0")]
    link = "https://example.org/post?id=7&utm_source={}"
    yield "tracking", [f"{article(2)}\nSee {link.format(who)}" for who in ("mail", "feed", "ads")]


def records() -> list[dict[str, str]]:
    """Return all documents: 200 articles of their own, and the near-copies among them."""
    found = [{"id": f"article-{i}", "text": article(100 + i)} for i in range(200)]
    for name, texts in families():
        found += [{"id": f"{name}-{i}", "text": text} for i, text in enumerate(texts)]
    random.Random(7).shuffle(found)
    return found


def write_corpus(folder: Path) -> Path:
    """Write shards, listing and settings; return the settings file."""
    listing, every = [], records()
    for number, part in enumerate((every[::2], every[1::2])):
        lines = "".join(json.dumps(record) + "\n" for record in part)
        path = folder / f"part-{number:05d}.jsonl.zst"
        path.write_bytes(zstd.compress(lines.encode()))
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        listing.append({"url": path.as_uri(), "bytes": path.stat().st_size, "sha256": sha256})
    (folder / "shards.json").write_text(json.dumps(listing), encoding="utf-8")
    settings = folder / "corpus.yaml"
    settings.write_text(SETTINGS, encoding="utf-8")
    return settings


def lost_copies(folder: Path) -> list[str]:
    """Print what became of each family; return those of which more or less than one was kept."""
    (table,) = (folder / "data" / "dedup_clusters").glob("*/clusters.parquet")
    clusters, lost = pl.read_parquet(table), []
    for name, texts in families():
        rows = clusters.filter(pl.col("id").str.starts_with(f"{name}-")).sort("id")
        print(rows.select("id", "kept", "kind", "twin_id", "similarity"))
        if rows["kept"].sum() != 1 or len(rows) != len(texts):
            lost.append(name)
    return lost


def main(folder: Path) -> int:
    """Make and run the demo in a folder; return the exit code."""
    settings = write_corpus(folder)
    corpus = [sys.executable, "-c", "from corpus_platform.cli import main; main()"]
    code = subprocess.run([*corpus, "run", "--config", str(settings)], check=False).returncode
    if code:
        return code
    print((folder / "data" / "source-manifest.json").read_text(encoding="utf-8"))
    lost = lost_copies(folder)
    print(f"not found: {', '.join(lost)}" if lost else "all copies were found; one of each is kept")
    return 1 if lost else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        chosen = Path(sys.argv[1]).absolute()
        chosen.mkdir(parents=True, exist_ok=True)
        sys.exit(main(chosen))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
