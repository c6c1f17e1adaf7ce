"""Tests of what collections and pins print."""

from pathlib import Path

from corpus_platform.console_collecting import (
    collected_line,
    collected_lines,
    found_lines,
    kept_lines,
    pin_lines,
)
from corpus_platform.stages.collecting import Collected, Found

PACK = Collected("artifacts", Path("/x/ab12"), "nothing wants it", 2_000, ("packed_bins", "c/a"))
RELEASE = Collected("releases", Path("/x/cd34"), "older", 5_000_000, ("shuffled_bins", None))
PART = Collected("scratch", Path("/x/.registry.json.part"), "of a writer that was killed", 3)
USED = Collected("artifacts", Path("/x/ef"), "nothing wants it", 7, ("tokenizer", None), skipped="in use: process 3")  # fmt: skip


def test_a_thing_is_named_with_its_size_and_why_it_went_or_stayed() -> None:
    assert collected_line(PACK) == "removed packed_bins[c/a] ab12: 2.0 kB, nothing wants it"
    assert collected_line(PART) == (
        "removed .registry.json.part: 3 bytes, of a writer that was killed"
    )
    assert collected_line(USED) == (
        "left: in use: process 3: tokenizer ef: 7 bytes, nothing wants it"
    )


def test_what_was_freed_is_summed_and_what_stayed_told_apart() -> None:
    assert list(collected_lines([PACK, RELEASE, PART, PACK])) == [
        "freed 5.0 MB: 1 release, 2 generations, 1 leftover"
    ]
    assert list(collected_lines([USED])) == ["freed 0 bytes", "left 7 bytes: 1 generation"]


def test_a_dry_run_says_what_would_go_and_what_stays() -> None:
    found = Found((RELEASE,), {"wanted now": 16, "release cd is in force": 1})
    assert list(found_lines(found)) == [
        "would remove shuffled_bins cd34: 5.0 MB, older",
        "would free 5.0 MB: 1 release",
    ]
    assert list(kept_lines(found)) == [
        "kept 1 for: release cd is in force",
        "kept 16 for: wanted now",
    ]


def test_pins_are_named_where_they_have_another_name_than_the_release() -> None:
    assert list(pin_lines({"gpt-1": "ab", "cd": "cd"})) == [
        "release cd is pinned",
        "release ab is pinned as gpt-1",
    ]
    assert list(pin_lines({})) == ["no release is pinned"]
