"""The nightly refresh by the real `corpus ui`, told to a stand-in for Slack: new shards become a
release by themselves, each piece once, whatever is killed, broken or out of reach meanwhile."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.e2e.live import Live, live, prepare
from corpus_platform_tests.slack_server import SlackServer
from corpus_platform_tests.small import SHARDS, write_shard

pytestmark = pytest.mark.xdist_group("live")

NEW = ("2026-44/part-00001.jsonl.zst", "2026-44/part-00002.jsonl.gz")
SHORT = "A line that is short.\n"
MORE = "\nIn a later version of this page one more line was added at its end, and no other."
Record = dict[str, str]


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    """A stand-in for Slack."""
    with SlackServer() as server:
        yield server


def _text(number: int) -> str:
    """Return a text that passes the rules and resembles no other."""
    words = [f"w{number}x{i * 7919 % 1009}" for i in range(120)]
    return "\n".join(" ".join(words[i : i + 8]) for i in range(0, 120, 8))


def _records(first: int, count: int, *, short: int = 0) -> list[Record]:
    good = [{"id": f"n{i}", "text": _text(i), "lang": "en"} for i in range(first, first + count)]
    bad = [{"id": f"s{first}-{i}", "text": f"{SHORT}{i}", "lang": "en"} for i in range(short)]
    return good + bad


def _write(corpus: Corpus, shard: str, records: list[Record]) -> Path:
    crawl, name = shard.split("/")
    path = corpus.folder / "source" / f"crawl={crawl}" / name
    write_shard(path, records)
    return path


def _write_new(corpus: Corpus) -> list[str]:
    """Drop the two new shards; return the texts that are to be kept of them.

    25 documents pass the rules; one is a copy, and one nearly so.
    """
    first, second = _records(0, 12, short=1), _records(100, 11, short=2)
    copies = [
        {"id": "exact", "text": _text(3), "lang": "en"},
        {"id": "near", "text": _text(4) + MORE, "lang": "en"},
    ]
    _write(corpus, NEW[0], first)
    _write(corpus, NEW[1], [*second, *copies])
    return [_text(i) for i in (*range(12), *range(100, 111))]


def _tokens(corpus: Corpus, texts: list[str]) -> int:
    """Return the tokens of texts by the corpus's tokenizer, one end token after each."""
    (file,) = corpus.data.glob("tokenizer/*/tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    return sum(len(tokenizer.encode(text).ids) + 1 for text in texts)


def _of_new_shards(slack: SlackServer) -> list[str]:
    """Return the heartbeats of nights that took in two shards."""
    return [text for text in slack.texts if "2 new shards" in text]


def _all_flowed(corpus: Live, slack: SlackServer, before: set[str]) -> None:
    """Wait until a new release is in force and the night was told."""
    corpus.wait_for("a new release in force", lambda: corpus.in_force() not in before)
    corpus.wait_for("the heartbeat", lambda: _of_new_shards(slack))


def test_two_new_shards_become_a_release_by_themselves(made: Corpus, slack: SlackServer) -> None:
    prepare(made, slack)
    kept = _write_new(made)
    with live(made) as served:
        before, packs = served.releases(), _packs(made)
        assert len(before) == 1
        _all_flowed(served, slack, before)
        assert served.materialized("raw_shards") == Counter([*SHARDS, *NEW])
        assert served.materialized("dedup_clusters") == Counter({"": 2})  # that of `made`, and one
        assert served.materialized("packed_bins") == Counter([*SHARDS, *NEW])
        assert served.materialized("shuffled_bins") == Counter({"": 2})
        assert len(served.releases() - before) == 1
        assert all(run.is_success for run in served.instance.get_runs())
        assert "Traceback" not in served.logs()
    assert {p for p in packs if p in _packs(made)} == packs
    (told,) = _of_new_shards(slack)
    assert (
        f": 2 new shards with 25 documents, 2 of them copies, {_tokens(made, kept):,} tokens"
        in told
    )
    assert (
        f"Release in force: {json.loads((made.data / 'releases/current.json').read_bytes())['id']}"
        in told
    )


def _packs(corpus: Corpus) -> set[tuple[str, int]]:
    """Return the manifests of all packs, with the times they were written at."""
    found = corpus.data.glob("packed_bins/**/manifest.json")
    return {(str(p), p.stat().st_mtime_ns) for p in found}
