"""Tests of what `corpus explain` prints: every line written out, and no terminal steered."""

import json

from corpus_platform.console_explain import explain_json, explain_lines
from corpus_platform.stages.explaining import Explanation
from corpus_platform.stages.record_places import RecordPlace
from corpus_platform.stages.release_places import Line, TokenPlace
from corpus_platform.stages.stations import Copies, Drop, Packed, Quarantined, Released, Story

SHARD = "2026-40/a.jsonl"
PIECES = (
    Line("train-00000.bin", 100, 200, SHARD, 7, "d7", 0),
    Line("train-00003.bin", 0, 1034, SHARD, 7, "d7", 200),
)
KEPT = Story(
    SHARD,
    7,
    "kept",
    id="d7",
    url="https://x/7",
    lang="en",
    lang_score=0.996,
    source=RecordPlace("a.jsonl", "/crawl/a.jsonl", 7, 1009),
    copies=Copies(12, 2, None),
    packed=Packed("train", 1234, 66, 10),
    released=Released("abcd", "train", 1234, PIECES),
)
KEPT_LINES = [
    f"{SHARD}:7  id d7  https://x/7",
    "  source    /crawl/a.jsonl, line 1,009, record 7",
    "  cleaned   kept by all rules; language en (1.00)",
    "  copies    kept; cluster 12 of 2 documents",
    "  packed    train, 1,234 tokens; 66 more were cut off; 10 without loss",
    "  release   abcd, train, 1,234 tokens in 2 pieces: train-00000.bin:100, train-00003.bin:0",
]


def _lines(*stories: Story, more: int = 0) -> list[str]:
    return list(explain_lines(Explanation("x", stories, more)))


def test_a_kept_document_has_a_line_for_each_station() -> None:
    assert _lines(KEPT) == KEPT_LINES
    assert _lines(KEPT, more=1200)[-1] == "and 1,200 more documents with this id or URL"


def test_a_copy_shows_its_twin_and_the_stations_of_that() -> None:
    twin = Story(SHARD, 7, "kept", id="d7", lang="en", copies=Copies(12, 2, None), packed=Packed("train", 5, 0, 0))  # fmt: skip
    copy = Story("2026-44/b", 1, "near_copy", id="c", lang="en", copies=Copies(12, 2, 0.875), twin=twin)  # fmt: skip
    assert _lines(copy) == [
        "2026-44/b:1  id c",
        "  cleaned   kept by all rules; language en",
        f"  copies    near copy of {SHARD}:7  id d7, similarity 0.875; cluster 12 of 2 documents",
        "  twin      cleaned: kept by all rules; language en",
        "  twin      copies: kept; cluster 12 of 2 documents",
        "  twin      packed: train, 5 tokens",
    ]


def test_what_is_not_kept_says_why() -> None:
    dropped = Story(SHARD, 1, "dropped", id="s", dropped=Drop("too_short", 10.0, 200.0))
    bad = Story(SHARD, 2, "quarantined", quarantined=Quarantined(5, 40, "invalid_json", "{x"))
    waiting = Story(SHARD, 3, "undecided", id="w", lang="en", notes=["dedup_clusters: never made"])
    assert _lines(dropped, bad, waiting) == [
        f"{SHARD}:1  id s",
        "  cleaned   dropped by too_short: 10, limit 200",
        f"{SHARD}:2",
        "  cleaned   in quarantine: invalid_json, line 5 of the shard: {x",
        f"{SHARD}:3  id w",
        "  cleaned   kept by all rules; language en",
        "  copies    not decided: no clusters know it",
        "  note      dedup_clusters: never made",
    ]


def test_a_token_shows_the_text_around_it_and_padding_is_called_so() -> None:
    place = TokenPlace("abcd", "train-00000.bin", 105, 42, PIECES[0], 5, "be\n\x1b[2J", "fo", "re")
    assert list(explain_lines(Explanation("x", at=place))) == [
        f"train-00000.bin:105 of release abcd: token 42, number 5 of {SHARD}:7",
        "  text: be\\n\\x1b[2J»fo«re",
    ]
    padding = TokenPlace("abcd", "train-00000.bin", 9, 0, None, None, "", "", "")
    assert list(explain_lines(Explanation("x", at=padding))) == [
        "train-00000.bin:9 of release abcd: token 0, padding: it belongs to no document"
    ]


def test_the_json_has_the_names_of_all_fields() -> None:
    place = TokenPlace("abcd", "train-00000.bin", 105, 42, PIECES[0], 5, "be", "fo", "re")
    whole = json.loads(json.dumps(explain_json(Explanation("x", (KEPT,), 3, place, ("said",)))))
    assert (whole["asked"], whole["more"], whole["said"]) == ("x", 3, ["said"])
    assert whole["at"]["line"]["shard"] == SHARD
    assert whole["at"]["padding"] is False
    (story,) = whole["documents"]
    assert story["source"] == {"member": "a.jsonl", "source": "/crawl/a.jsonl", "row": 7, "line": 1009}  # fmt: skip
    assert story["released"]["places"][1] == {"file": "train-00003.bin", "start": 0, "tokens": 1034, "offset": 200}  # fmt: skip
    assert story["packed"] == {"split": "train", "tokens": 1234, "cut": 66, "masked": 10}
