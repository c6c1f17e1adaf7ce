"""Tests of REPORT.md: every figure has its line, and nothing of a crawl becomes markup."""

import dataclasses

from corpus_platform.reports.acceptance import Decoded
from corpus_platform.reports.release import (
    Crawl,
    LanguageTokens,
    RareToken,
    ReleaseReport,
    Source,
    Vocabulary,
    acceptance_section,
    report_text,
)
from corpus_platform_tests.reports.test_acceptance import SOUND

CRAWL = Crawl(2, 2100, 100, 2000, 400, 1600, 600, 1000, 999, 1, 999_000, 11_000)
REPORT = ReleaseReport(
    figures=SOUND,
    crawls={"2026-40": CRAWL, "2026-44": Crawl(1, 3, 0, 3, 1, 2, 1, 1, 1, 0, 5, 0)},
    languages={"en": LanguageTokens(9, 90, 1, 10), "": LanguageTokens(1, 900, 0, 0)},
    shards=[("2026-40/a", 999, 1_000_000), ("2026-40/b", 1, 10_000)],
    left_out={"2026-40/c": "cleaned_documents: readable"},
    sources=[
        Source("2026-40", 2, 2, 500, "ab" * 32, "https://host/x/*", ("CC-BY-4.0", "ODC-BY")),
        Source("2026-44", 1, 1, 50, "cd" * 32, "source/a", ()),
    ],
    tokenizer={"algorithm": "bpe", "vocabulary": "400 (asked: 400)"},
    vocabulary=Vocabulary(5, 397, 3, 2, [RareToken(9, " *|\n", 4, 0), RareToken(7, "z", 1, 4)]),
    settings={"packed_bins": {"strategy": "concat", "rules": {"b": 1, "a": [1, 2]}}},
    files=[("train-00000.bin", 2_000_000, "ef" * 32)],
)


def _section(text: str, name: str) -> list[str]:
    return text.split(f"## {name}\n\n")[1].split("\n\n")[0].splitlines()[2:]


def test_the_acceptance_list_comes_first() -> None:
    text = report_text(REPORT)
    assert text.startswith("# Release\n\n## Acceptance\n\n|  | question |  | found | where |\n")
    assert [line.split(" | ")[2] for line in _section(text, "Acceptance")] == ["**pass**"] * 9


def test_crawls_are_summed_where_there_are_several() -> None:
    assert _section(report_text(REPORT), "What became of the documents") == [
        "| 2026-40 | 2 | 2,100 | 100 | 2,000 | 400 | 1,600 | 600 | 1,000 | 999 | 1 | 999,000 | 11,000 |",
        "| 2026-44 | 1 | 3 | 0 | 3 | 1 | 2 | 1 | 1 | 1 | 0 | 5 | 0 |",
        "| all | 3 | 2,103 | 100 | 2,003 | 401 | 1,602 | 601 | 1,001 | 1,000 | 1 | 999,005 | 11,000 |",
    ]
    alone = dataclasses.replace(REPORT, crawls={"2026-40": CRAWL})
    assert len(_section(report_text(alone), "What became of the documents")) == 1


def test_tokens_that_train_has_hardly_any_of_are_counted_and_the_longest_shown() -> None:
    text = report_text(REPORT)
    said = "Of 397 tokens that a text may hold 3 (0.8%) occur fewer than 5 times in train, 2 of them never."
    assert f"## Tokens that train has hardly any of\n\n{said} The longest of them:\n\n" in text
    rows = text.split("The longest of them:\n\n")[1].split("\n\n")[0].splitlines()[2:]
    assert rows == ['| 9 | " \\*\\|\\\\n" | 4 | 0 |', '| 7 | "z" | 1 | 4 |']
    none = dataclasses.replace(REPORT, vocabulary=Vocabulary(5, 397, 0, 0, []))
    assert "Of 397 tokens that a text may hold 0 (0.0%) occur" in report_text(none)
    assert "The longest of them" not in report_text(none)


def test_tables_have_a_line_for_each_rule_language_shard_source_and_file() -> None:
    text = report_text(REPORT)
    assert _section(text, "What the rules dropped") == [
        "| too\\_short | 400 | 20.0% |",
        "| low\\_alnum | 0 | 0.0% |",
    ]
    assert _section(text, "Tokens by language") == [
        "| no language | 1 | 900 | 0 | 0 |",
        "| en | 9 | 90 | 1 | 10 |",
    ]
    assert _section(text, "Compression") == [
        "| en | 900 | 800,000 | 4.000 | 4.010 |",
        "| zh | 99 | 190,000 | 1.500 | 4.500 |",
    ]
    assert _section(text, "Tokens by shard")[1] == "| 2026-40/b | 1 | 10,000 |"
    assert _section(text, "Shards left out") == ["| 2026-40/c | cleaned\\_documents: readable |"]
    assert _section(text, "Sources") == [
        f"| 2026-40 | https://host/x/\\* | CC-BY-4.0 or ODC-BY | 2 | 2 | 500 | `{'ab' * 32}` |",
        f"| 2026-44 | source/a | not stated | 1 | 1 | 50 | `{'cd' * 32}` |",
    ]
    assert _section(text, "Files") == [f"| train-00000.bin | 2,000,000 | `{'ef' * 32}` |"]
    assert _section(text, "Settings") == [
        "| packed\\_bins.rules.a | \\[1, 2\\] |",
        "| packed\\_bins.rules.b | 1 |",
        '| packed\\_bins.strategy | "concat" |',
    ]


def test_nothing_of_a_crawl_becomes_markup() -> None:
    odd = "a|b\n# <img src=x> [x](javascript:y) **"
    figures = dataclasses.replace(SOUND, decoded=[Decoded("train-00000.bin", 1, odd, 0.0)])
    report = dataclasses.replace(
        REPORT,
        figures=figures,
        shards=[(odd, 1, 1)],
        left_out={odd: odd},
        languages={odd: LanguageTokens(1, 1, 1, 1)},
        sources=[Source(odd, 1, 1, 1, "", odd, (odd,))],
    )
    text = report_text(report)
    assert "<img" not in text
    assert "](javascript" not in text
    assert [line for line in text.splitlines() if "img" in line and line[0] != "|"] == []


def test_long_tables_say_how_much_they_leave_out() -> None:
    shards = [(f"c/{i:04d}", 1, 10) for i in range(10_000)]
    rows = _section(report_text(dataclasses.replace(REPORT, shards=shards)), "Tokens by shard")
    assert len(rows) == 501
    assert rows[-1] == "| 9,500 more | 9,500 | 95,000 |"
    left_out = {name: "raw_shards: sha256" for name, _, _ in shards}
    rows = _section(report_text(dataclasses.replace(REPORT, left_out=left_out)), "Shards left out")
    assert rows[-1] == "| 9,500 more |  |"


def test_the_acceptance_list_is_found_again_in_a_report() -> None:
    section = acceptance_section(report_text(REPORT))
    assert section is not None
    assert section.splitlines()[0] == "|  | question |  | found | where |"
    assert section.count("**pass**") == len(section.splitlines()) - 2 == 9
    assert acceptance_section("# Release\n") is None
