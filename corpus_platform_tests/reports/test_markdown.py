"""Text of a crawl is shown in Markdown and does nothing there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_platform.reports.markdown import cell, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("part-00000.jsonl.zst", "part-00000.jsonl.zst"),
        ("a|b", r"a\|b"),
        ("`rm`", r"\`rm\`"),
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y&gt;"),
        ("&lt;", "&amp;lt;"),
        ("![x](http://e)", r"\!\[x\]\(http://e\)"),
        ("one\ntwo\r\n\tthree", "one two three"),
        ("a\\|b", r"a\\\|b"),
        ("\u202egnp", "gnp"),
        ("\ud800", ""),
        ("Файл 文件", "Файл 文件"),
    ],
)
def test_markup_is_escaped_and_a_line_stays_a_line(text: str, shown: str) -> None:
    assert cell(text) == shown


def test_a_long_text_is_cut_before_it_is_escaped() -> None:
    assert cell("|" * 1000, limit=4) == r"\|\|\|…"
    assert cell("abcd", limit=4) == "abcd"


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_whatever_a_cell_holds_the_table_keeps_its_lines_and_columns(texts: list[str]) -> None:
    lines = table(("a", "b"), [[cell(text) for text in texts]]).split("\n")
    assert lines[:2] == ["| a | b |", "| --- | --- |"]
    assert len(lines) == 3
    assert lines[2].replace("\\\\", "").replace(r"\|", "").count("|") == 3
    assert "<" not in lines[2]
