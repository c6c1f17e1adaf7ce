"""Tests of what `corpus export` prints."""

import dataclasses
import io

import pytest
from rich.console import Console

from corpus_platform import console_export
from corpus_platform.console_export import ExportView, export_lines, validation_lines
from corpus_platform.stages.export_formats import Lost
from corpus_platform.stages.export_target import ExportedFile
from corpus_platform.stages.exporting import ExportReport
from corpus_platform.stages.pinned_release import Counts

FILES = (
    ExportedFile("tokenizer.json", 1000, "a"),
    ExportedFile("train.bin", 4000, "b", "train", 2000, 30),
)


def _report(written: int, *, was_finished: bool = False) -> ExportReport:
    lost = (Lost("padding", "5 tokens of it", True), Lost("header", "in export.json"))
    notes = ("read it so",)
    return ExportReport(
        "7e19", "nanogpt", "/out", FILES, written, lost, notes, Counts(30, 2000, 0, 0), None,
        was_finished,
    )  # fmt: skip


def test_the_lines_say_what_was_made_lost_and_is_to_be_known() -> None:
    assert list(export_lines(_report(1))) == [
        "release 7e19 as nanogpt in /out: 1 files written and read again, 1 were there before",
        "2,000 tokens, 30 documents, 5.0 kB",
        "lost, as accepted: padding: 5 tokens of it",
        "not held: header: in export.json",
        "note: read it so",
    ]
    finished = next(export_lines(_report(0, was_finished=True)))
    assert finished == "nothing to do: release 7e19 as nanogpt in /out is finished"
    gone_on = next(export_lines(_report(0)))
    assert gone_on == "release 7e19 as nanogpt in /out: all of its 2 files were there before"


def test_of_rows_the_lines_count_tokens_padding_rows_and_documents() -> None:
    rows = dataclasses.replace(_report(1), counts=Counts(241, 210_637, 1843, 830), row_tokens=256)
    assert list(export_lines(rows))[1] == (
        "210,637 tokens and 1,843 of padding in 830 rows of 256; 241 documents, 5.0 kB"
    )
    texts = dataclasses.replace(_report(1), counts=Counts(241, 0, 0, 0), row_tokens=256)
    assert list(export_lines(texts))[1] == "241 documents, 5.0 kB"


def test_faults_come_before_their_sum() -> None:
    lines = list(validation_lines(3, ["a: is cut", "b: is gone"]))
    assert lines[:2] == ["a: is cut", "b: is gone"]
    assert lines[2] == (
        "3 files validated, 2 not as recorded; delete them, and the same export makes them again"
    )


def test_where_there_is_no_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    now = [100.0]
    monkeypatch.setattr(console_export.time, "monotonic", lambda: now[0])
    with ExportView(Console(file=out, width=100)) as view:
        view.progressed("writing a.bin", 1, 10)
        now[0] += 31
        view.progressed("writing b.bin", 5, 10)
        view.progressed("writing c.bin", 6, 10)
        view.waiting("process 7 on host")
        view.collecting("process 8 on host")
    assert out.getvalue().splitlines() == [
        "  50%, writing b.bin",
        "another export to the same place is at work (process 7 on host); waiting for it to end",
        "releases are being collected or pinned (process 8 on host); waiting for that to end",
    ]


def test_on_a_terminal_a_bar_is_drawn() -> None:
    out = io.StringIO()
    with ExportView(Console(file=out, width=100, force_terminal=True)) as view:
        view.hashed(500, 1000)
    assert "hashed 500 bytes of 1.0 kB" in out.getvalue()
    assert "50%" in out.getvalue()
