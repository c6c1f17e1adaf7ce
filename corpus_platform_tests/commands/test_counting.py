"""Tests of `corpus tokens`: what it prints, and of which shards."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform_tests.small import SHARDS


def _corpus(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, ["tokens", *(str(a) for a in arguments)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def test_the_tokens_of_one_shard_are_counted_as_json(finished: Path) -> None:
    result = _corpus(SHARDS[2], "--json", "--config", finished)
    assert result.exit_code == 0, result.output
    whole = json.loads(result.output)
    assert {count["shard"] for count in whole["counts"]} == {SHARDS[2]}
    assert sum(c["documents"] for c in whole["counts"] if c["state"] != "cleaned") == 17


def test_a_table_and_words_are_printed(finished: Path) -> None:
    result = _corpus(SHARDS[2], "--by-shard", "--config", finished)
    assert result.exit_code == 0, result.output
    assert SHARDS[2] in result.output
    assert "tokens of texts alone" in result.output


def test_a_shard_that_is_none_ends_with_2(finished: Path) -> None:
    result = _corpus("2026-40/none", "--config", finished)
    assert result.exit_code == 2
    assert "is not registered" in result.output


def test_a_tokenizer_that_cannot_be_read_is_called_by_its_own_name(finished: Path) -> None:
    mine = finished.parent / "mine.json"
    mine.write_text("{}", encoding="utf-8")
    result = _corpus("--tokenizer", mine, "--config", finished)
    assert result.exit_code == 2
    assert result.output.startswith(f"error: {mine}: cannot be read")
