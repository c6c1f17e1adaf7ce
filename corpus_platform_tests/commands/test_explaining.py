"""Tests of `corpus explain` as a command: lines, JSON and exit codes; nothing but indexes is written."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform_tests.small import SHARDS


def _explain(config: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["explain", "--config", str(config), *arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def test_a_document_is_told_of_and_only_indexes_are_written(finished: Path) -> None:
    data = finished.parent / "data"
    before = {p: p.stat().st_mtime_ns for p in data.rglob("*") if p.is_file()}
    result = _explain(finished, "short")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"{SHARDS[2]}:40  id short"
    assert lines[2] == "  cleaned   dropped by too_short: 10, limit 200"
    after = {p: p.stat().st_mtime_ns for p in data.rglob("*") if p.is_file()}
    new = after.keys() - before.keys()
    assert {p.relative_to(data).parts[:2] for p in new} == {("catalog", "explain")}
    assert {p: after[p] for p in before} == before


def test_the_json_of_a_token_has_its_document(finished: Path) -> None:
    result = _explain(finished, "val-00000.bin:0", "--json", "--release", "current")
    assert result.exit_code == 0, result.output
    whole = json.loads(result.stdout)
    (story,) = whole["documents"]
    assert whole["at"]["inside"] == 0
    assert story["released"]["places"][0]["start"] == 0
    assert story["packed"]["split"] == "validation"


def test_what_is_not_there_ends_with_1_and_a_wrong_release_with_2(finished: Path) -> None:
    result = _explain(finished, f"{SHARDS[2]}:41")
    assert (result.exit_code, result.stdout) == (1, f"{SHARDS[2]} has 41 records: rows 0 to 40\n")
    result = _explain(finished, "nothing", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["documents"] == []
    assert _explain(finished, "short", "--release", "previous").exit_code == 2
    for odd in ("a\udcff/b", f"{SHARDS[0]}:{'9' * 5000}", ":5", "", "\x1b[2J"):
        assert _explain(finished, odd).exit_code == 1
        result = _explain(finished, odd, "--json")
        assert (result.exit_code, "\x1b" in result.output) == (1, False)
