"""Tests of what the command draws: on a terminal of 80 columns, and where there is none."""

import io
import re
from collections import Counter
from dataclasses import dataclass

import pytest
from rich.console import Console

from corpus_platform.console import (
    RunView,
    crawl_table,
    printable,
    say,
    standard_output,
    status_table,
)
from corpus_platform.planner import State, Survey
from corpus_platform.stages.tally import CrawlTally

STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Task:
    job: str
    partition: str | None = None


@dataclass
class Paper:
    """A console that writes into memory."""

    console: Console
    file: io.StringIO

    def lines(self) -> list[str]:
        text = STEERING.sub("", self.file.getvalue()).replace("\r", "\n")
        return [line.rstrip() for line in text.splitlines() if line.strip()]


def _paper(*, terminal: bool) -> Paper:
    file = io.StringIO()
    width = 80 if terminal else 10_000
    console = Console(file=file, force_terminal=terminal, width=width, highlight=False)
    return Paper(console, file)


def _tally(number: int) -> CrawlTally:
    return CrawlTally(
        shards=number,
        lines=10 * number,
        quarantined=Counter({"invalid_json": number}),
        documents=9 * number,
        dropped=Counter({"too_short": 2 * number}),
        cleaned=7 * number,
        kept=7 * number,
        train_documents=7 * number,
        train_tokens=1_000_000 * number,
    )


def _table(crawls: dict[str, CrawlTally], *, width: int = 80) -> list[list[str]]:
    paper = _paper(terminal=True)
    paper.console.print(crawl_table(crawls, width=width))
    rows = [line for line in paper.lines() if line[0] in "┃│"]
    return [[cell.strip() for cell in re.split("[┃│]", row)[1:-1]] for row in rows]


def test_the_table_has_a_column_per_crawl_and_one_for_all() -> None:
    table = _table({"2026-40": _tally(1), "2026-44": _tally(20)})
    assert table[0] == ["", "2026-40", "2026-44", "all"]
    assert ["shards", "1", "20", "21"] in table
    assert ["quarantined: invalid_json", "1", "20", "21"] in table
    assert ["dropped: too_short", "2", "40", "42"] in table
    assert ["train tokens", "1,000,000", "20,000,000", "21,000,000"] in table


def test_crawls_that_do_not_fit_share_a_column_and_nothing_is_cut() -> None:
    table = _table({f"2026-{number:02d}": _tally(number) for number in range(1, 10)})
    assert table[0] == ["", "8 earlier", "2026-09", "all"]
    assert ["shards", "36", "9", "45"] in table  # 1 + 2 + ... + 8 = 36
    assert ["train tokens", "36,000,000", "9,000,000", "45,000,000"] in table


def test_a_wide_line_has_room_for_all_crawls() -> None:
    names = [f"2026-{number:02d}" for number in range(1, 10)]
    paper = _paper(terminal=False)
    paper.console.print(crawl_table({name: _tally(1) for name in names}, width=10_000))
    assert all(name in "".join(paper.lines()) for name in names)


def test_where_not_even_two_crawls_fit_only_the_sums_are_shown() -> None:
    table = _table({"a": _tally(1), "b": _tally(2), "c": _tally(3)}, width=50)
    assert table[0] == ["", "all"]
    assert ["shards", "6"] in table


def test_without_a_crawl_the_table_is_all_zeros() -> None:
    assert ["kept", "0"] in _table({})


def test_a_name_in_brackets_is_no_markup() -> None:
    name = "2026-40/[bold]a[red] [link=x].jsonl"
    paper = _paper(terminal=True)
    with RunView(paper.console) as view:
        view.phase("ingest", [Task("ingest_shard", name)])
        view.progressed(Task("ingest_shard", name), "raw_shards", 1, 2)
        view.ended(Task("ingest_shard", name), False, ["[/nothing] was opened"])
    states = [State("raw_shards", name, "current", "")]
    paper.console.print(status_table(Survey(states)))
    assert f"  1/1 {name}: not done: [/nothing] was opened" in paper.lines()
    assert sum(name in line for line in paper.lines()) >= 2


def test_bars_of_long_names_fit_the_terminal_and_show_what_is_done_first() -> None:
    task = Task("ingest_shard", "2026-40/" + "long-" * 40 + ".jsonl.zst")
    paper = _paper(terminal=True)
    with RunView(paper.console) as view:
        view.phase("ingest", [task, Task("ingest_shard", "b")])
        view.progressed(task, "cleaned_documents", 1_500_000, 2_000_000)
    assert max(map(len, paper.lines())) <= 80
    assert re.fullmatch(r"ingest +━+ +0/2 \d:\d\d:\d\d", paper.lines()[0])
    bar = r"  cleaned_documents 2026-40/long-.*… [━╸╺]+ +75% \d:\d\d:\d\d"
    assert any(re.fullmatch(bar, line) for line in paper.lines())


def test_without_a_terminal_a_phase_has_a_heading_and_a_line_per_task() -> None:
    paper = _paper(terminal=False)
    shards = [Task("ingest_shard", "2026-40/a"), Task("ingest_shard", "2026-40/b")]
    with RunView(paper.console) as view:
        view.phase("ingest", shards)
        view.progressed(shards[0], "raw_shards", 1, 2)
        view.ended(shards[0], True, [])
        view.ended(shards[1], False, ["gate: a reason " + "that is long " * 20 + "indeed"])
        view.phase("dedup_clusters", [Task("build_corpus")])
        view.ended(Task("build_corpus"), True, [])
    assert paper.lines() == [
        "ingest: 2 to make",
        "  1/2 2026-40/a (at 0 s)",
        "  2/2 2026-40/b: not done: gate: a reason " + "that is long " * 20 + "indeed",
        "dedup_clusters: over all shards",
        "  1/1 build_corpus (at 0 s)",
    ]


def test_a_message_is_folded_at_blanks_on_a_terminal_and_whole_elsewhere() -> None:
    words = "word " * 30 + "end"
    on_terminal, elsewhere = _paper(terminal=True), _paper(terminal=False)
    for paper in (on_terminal, elsewhere):
        say(paper.console, words)
    assert on_terminal.lines() == ["word " * 15 + "word", "word " * 14 + "end"]
    assert elsewhere.lines() == [words]


def test_what_would_steer_a_terminal_or_cannot_be_encoded_is_escaped() -> None:
    assert printable("a\x1b[31m\rb\udcff é 文 \x07") == "a\\x1b[31m\\rb\\udcff é 文 \\x07"
    assert printable("two\nlines") == "two\nlines"


def test_output_into_a_file_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    say(standard_output(), "x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"
