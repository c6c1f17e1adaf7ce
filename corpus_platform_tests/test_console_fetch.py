"""Tests of what `corpus fetch` draws: bars on a terminal, lines elsewhere, and names that steer none."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from corpus_platform import console_fetch
from corpus_platform.config import Fields
from corpus_platform.console_fetch import FetchView, fetched_line
from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.fetching import Outcome
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.storage.registry import Member, Shard
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.storage.fetching import OBJECT, OBJECT_SHA256

FAILED = Outcome("c/b", None, StorageError("http://h/b: HTTP 503; given up"))


def _shard(key: str, size: int | None) -> Shard:
    return Shard(key, (Member(f"http://h/{key}", size),), Fields())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(console_fetch.time, "monotonic", lambda: now[0])
    return now


def _lines(*, terminal: bool = False, width: int = 200) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=width, highlight=False), text


def test_lines_say_how_much_of_all_and_of_each_is_there_and_how_fast(clock: list[float]) -> None:
    console, text = _lines()
    with FetchView(console, [_shard("c/a", 3_000_000), _shard("c/b", 7_000_000)]) as view:
        view.progressed("c/a", 1_000_000, 3_000_000)
        clock[0] = 31.0
        view.progressed("c/b", 2_100_000, 7_000_000)
        view.progressed("c/b", 2_200_000, 7_000_000)
        view.ended(FAILED)
        clock[0] = 62.0
        view.progressed("c/a", 3_000_000, 3_000_000)
    assert text.getvalue().splitlines() == [
        "  0/2 shards, 3.1 MB of 10.0 MB, 100.0 kB/s, 0:01:09 left",
        "    c/a: 1.0 MB of 3.0 MB",
        "    c/b: 2.1 MB of 7.0 MB",
        "  1/2 c/b: not fetched: http://h/b: HTTP 503; given up",
        "  1/2 shards, 5.2 MB of 10.0 MB, 67.7 kB/s, 0:01:11 left",
        "    c/a: 3.0 MB of 3.0 MB",
    ]


def test_without_known_sizes_lines_say_what_is_there(clock: list[float]) -> None:
    console, text = _lines()
    with FetchView(console, [_shard("c/a", None), _shard("c/b", 5)]) as view:
        clock[0] = 50.0
        view.progressed("c/a", 1000, None)
    assert text.getvalue().splitlines() == ["  0/2 shards, 1.0 kB, 20 bytes/s", "    c/a: 1.0 kB"]


def test_a_terminal_has_bars_of_each_shard_and_of_all() -> None:
    console, text = _lines(terminal=True, width=100)
    with FetchView(console, [_shard("c/a", 3000), _shard("c/b", 7000)]) as view:
        view.progressed("c/a", 1000, 3000)
        view.progressed("c/b", 3500, 7000)
        view.ended(FAILED)
    drawn = text.getvalue()
    assert "1 of 2 shards" in drawn
    assert "4.5/10.0 kB" in drawn
    assert "1.0/3.0 kB" in drawn
    assert "1/2 c/b: not fetched" in drawn


def test_a_name_steers_no_terminal() -> None:
    console, text = _lines(terminal=True)
    with FetchView(console, [_shard("c/\x1b[2Jx[bold]", 10)]) as view:
        view.progressed("c/\x1b[2Jx[bold]", 1, 10)
        view.ended(Outcome("c/\x1b[2Jx[bold]", None, StorageError("\x1b]0;title")))
    assert "\x1b[2J" not in text.getvalue()
    assert "\x1b]0" not in text.getvalue()
    assert "[bold]" in text.getvalue()


@pytest.mark.parametrize(
    ("sha256", "twist", "line"),
    [
        (None, None, "c/o: 1.0 kB, 1.0 kB transferred; verified by length"),
        (OBJECT_SHA256, None, "c/o: 1.0 kB, 1.0 kB transferred; verified by sha256"),
        (
            None,
            Twist(chunked=True),
            "c/o: 1.0 kB, 1.0 kB transferred; UNVERIFIED: nothing states its length or hash",
        ),
    ],
)
def test_the_line_of_a_shard_says_how_it_is_known_to_be_right(
    tmp_path: Path, sha256: str | None, twist: Twist | None, line: str
) -> None:
    (tmp_path / "corpus.yaml").write_text("sources: [{listing: none, crawl: c}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    with HttpServer({"/o": Served(OBJECT)}, twist) as server:
        project.registry.register(
            [Shard("c/o", (Member(f"{server.url}/o", sha256=sha256),), Fields())]
        )
        report = fetch_shard(project, "c/o")
    assert fetched_line(Outcome("c/o", report)) == line


def test_the_line_of_a_local_shard_tells_of_no_network(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(OBJECT)
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: o, crawl: c}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    project.registry.register([Shard("c/o", (Member(str(tmp_path / "o")),), Fields())])
    line = fetched_line(Outcome("c/o", fetch_shard(project, "c/o")))
    assert line == "c/o: 1.0 kB; verified by length"


def test_all_shards_are_summed_up_ten_times_a_second_at_most(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    console, _ = _lines(terminal=True)
    sums: list[object] = []
    real = console_fetch._sum
    with FetchView(console, [_shard("c/a", 3000)]) as view:
        monkeypatch.setattr(console_fetch, "_sum", lambda s: sums.append(s) or real(s))
        for number in range(1000):
            clock[0] = number / 1000
            view.progressed("c/a", number, 3000)
    assert len(sums) <= 10
