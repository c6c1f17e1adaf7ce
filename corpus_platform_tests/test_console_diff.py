"""Tests of what `corpus diff` prints: every line written out."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from corpus_platform.console_diff import changes_table, diff_json, diff_lines, reasons_table
from corpus_platform.stages.release_diff import Changes, Reason, ReleaseDiff, Side

CHANGES = Changes(
    added_documents=1,
    added_tokens=50,
    removed_documents=1200,
    removed_tokens=99000,
    kept_documents=3,
    kept_tokens_old=400,
    kept_tokens_new=390,
    resized_documents=2,
    to_validation_documents=1,
    to_validation_tokens=7,
)
FOUND = ReleaseDiff(
    old=Side("aaaa", "2026-01-01T00:00:00+00:00", 8, 1203, 99400, "1" * 64),
    new=Side("bbbb", None, 7, 4, 440, "2" * 64),
    total=CHANGES,
    crawls={"2026-40": CHANGES},
    languages={"en": replace(CHANGES, added_documents=0)},
    removed=[Reason("rule", "too_short", 1100, 9000), Reason("near_copy", "2026-44", 100, 90000)],
    added=[Reason("no_shard", None, 1, 50)],
    settings={"split.validation": (0.1, 0.2), "dedup.width": (None, 5)},
    shards_added=["2026-44/a"],
    shards_removed=[f"2026-40/{n}" for n in range(7)],
    left_out_old={},
    left_out_new={"2026-44/x": "raw_shards: readable"},
    repacked=1000,
)


def _shown(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as seen:
        console.print(table)
    return [" ".join(line.split()) for line in seen.get().splitlines()]


def test_what_differs_besides_documents_has_a_line_each() -> None:
    assert list(diff_lines(FOUND)) == [
        "old: release aaaa, made 2026-01-01T00:00:00+00:00: 1,203 documents, 99,400 tokens of 8 shards",
        "new: release bbbb: 4 documents, 440 tokens of 7 shards",
        "tokenizer: 1111111111111111 became 2222222222222222",
        "setting split.validation: 0.1 became 0.2",
        "setting dedup.width: nothing became 5",
        "shards added: 2026-44/a",
        "shards not in the new one: 2026-40/0, 2026-40/1, 2026-40/2, 2026-40/3, 2026-40/4 and 2 more",
        "shards packed anew: 1,000",
        "left out of the new one: 2026-44/x: raw_shards: readable",
    ]


def test_documents_are_counted_by_crawl_and_language() -> None:
    assert _shown(changes_table(FOUND)) == [
        "by of added removed kept other length to validation to train",
        "crawl 2026-40 1 (50) 1,200 (99,000) 3 (390) 2 (-10) 1 (7)",
        "language en 1,200 (99,000) 3 (390) 2 (-10) 1 (7)",
        "all 1 (50) 1,200 (99,000) 3 (390) 2 (-10) 1 (7)",
    ]


def test_every_reason_has_a_row() -> None:
    assert _shown(reasons_table(FOUND)) == [
        "documents why number tokens",
        "removed dropped by a rule: too_short 1,100 9,000",
        "removed near copy of a document of 2026-44 100 90,000",
        "added before: its shard was not in the release 1 50",
    ]


@pytest.mark.parametrize(
    "reason",
    [
        *("rule", "exact_copy", "near_copy", "quarantined", "not_in_source", "unknown"),
        *("no_shard", "retired", "left_out"),
    ],
)
def test_each_reason_has_words_on_both_sides(reason: str) -> None:
    both = [Reason(reason, None, 1, 1)]
    assert len(_shown(reasons_table(replace(FOUND, removed=both, added=both)))) == 3


def test_the_json_says_whether_the_tokenizer_changed() -> None:
    whole = json.loads(json.dumps(diff_json(FOUND)))
    assert whole["tokenizer_changed"] is True
    assert whole["settings"]["split.validation"] == {"old": 0.1, "new": 0.2}
    assert whole["removed"][0] == {"reason": "rule", "detail": "too_short", "documents": 1100, "tokens": 9000}  # fmt: skip
    assert whole["crawls"]["2026-40"]["kept_tokens_new"] == 390


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    odd = replace(FOUND, languages={"[/]": CHANGES}, removed=[Reason("rule", "[red]", 1, 2)])
    assert any("[/]" in line for line in _shown(changes_table(odd)))
    assert "removed dropped by a rule: [red] 1 2" in _shown(reasons_table(odd))
