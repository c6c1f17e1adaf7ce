"""Tests of what `corpus tokens` prints: every line written out, and no terminal steered."""

import io
import json
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from corpus_platform.console_tokens import counting, tokens_json, tokens_lines, tokens_table
from corpus_platform.stages.token_counts import Count, TokenCounts

FOUND = TokenCounts(
    tokenizer="0123456789abcdef" * 4,
    engines=Counter({"tokenizers": 1, "fastokens": 2}),
    counts=(
        Count("2026-40/a", "en", "cleaned", 10, 4000, 1000),
        Count("2026-40/a", "en", "train", 8, 3000, 800),
        Count("2026-40/a", "en", "validation", 1, 500, 100),
        Count("2026-40/b", "en", "cleaned", 1, 100, 50),
        Count("2026-44/c", "x\x1b[2J", "cleaned", 2, 0, 0),
    ),
    left_out=("2026-44/d",),
    undecided=tuple(f"2026-44/{name}" for name in "cefghij"),
)


@pytest.mark.parametrize(
    ("by_shard", "first"),
    [
        (
            False,
            [
                "crawl language documents cleaned tokens train tokens validation tokens bytes/token",
                "2026-40 en 11 1,050 800 100 3.90",
                "2026-44 x\\x1b[2J 2 0",
            ],
        ),
        (
            True,
            [
                "shard language documents cleaned tokens train tokens validation tokens bytes/token",
                "2026-40/a en 10 1,000 800 100 4.00",
                "2026-40/b en 1 50 2.00",
                "2026-44/c x\\x1b[2J 2 0",
            ],
        ),
    ],
)
def test_a_row_for_each_crawl_or_shard_and_those_of_all(
    first: list[str], *, by_shard: bool
) -> None:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as seen:
        console.print(tokens_table(FOUND, by_shard=by_shard))
    assert [" ".join(line.split()) for line in seen.get().splitlines()] == [
        *first,
        "all en 11 1,050 800 100 3.90",
        "all x\\x1b[2J 2 0",
        "all all 13 1,050 800 100 3.90",
    ]


def test_the_lines_name_tokenizer_engines_and_what_was_left_out() -> None:
    assert list(tokens_lines(FOUND)) == [
        "tokenizer 0123456789abcdef; shards by engine: fastokens 2, tokenizers 1",
        "tokens of texts alone: each control token of a document is one more",
        "not yet decided, so counted as cleaned only: 2026-44/c, 2026-44/e, 2026-44/f, 2026-44/g,"
        " 2026-44/h and 2 more",
        "not cleaned, so left out: 2026-44/d",
    ]


def test_json_has_an_object_for_each_count() -> None:
    found = json.loads(json.dumps(tokens_json(FOUND)))
    assert found["tokenizer"] == FOUND.tokenizer
    assert found["engines"] == {"fastokens": 2, "tokenizers": 1}
    assert len(found["counts"]) == 5
    assert found["counts"][1] == {
        "shard": "2026-40/a",
        "lang": "en",
        "state": "train",
        "documents": 8,
        "bytes": 3000,
        "tokens": 800,
    }
    assert (found["left_out"], len(found["undecided"])) == (["2026-44/d"], 7)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_and_nowhere_else(*, terminal: bool) -> None:
    file = io.StringIO()
    with counting(Console(file=file, force_terminal=terminal, width=80)) as progressed:
        progressed(1, 4)
    assert ("25%" in file.getvalue()) == terminal
    assert terminal or file.getvalue() == ""


def test_a_language_of_any_text_takes_one_short_line_as_it_is() -> None:
    names = ("a\nb", "x" * 1000, "[/]")
    counts = tuple(Count("c/a", name, "cleaned", 1, 4, 2) for name in names)
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as seen:
        console.print(tokens_table(replace(FOUND, counts=counts), by_shard=False))
    lines = [line.split() for line in seen.get().splitlines()]
    assert len(lines) == 8
    assert [line[1] for line in lines[1:4]] == ["a\\nb", "x" * 79 + "…", "[/]"]
