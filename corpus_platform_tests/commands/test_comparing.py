"""Tests of `corpus diff` as a command: what it prints, and that nothing is written."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from corpus_platform.cli import main


def _diff(config: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["diff", "--config", str(config), *arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def test_a_release_and_itself_have_all_documents_in_common(finished: Path) -> None:
    before = sorted(finished.parent.rglob("*"))
    result = _diff(finished, "current", "current")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].split() == ["all", "241", "(210,637)"]
    whole = json.loads(_diff(finished, "current", "current", "--json").stdout)
    assert (whole["total"]["kept_documents"], whole["removed"]) == (241, [])
    assert sorted(finished.parent.rglob("*")) == before


def test_a_release_that_is_not_there_ends_with_2(finished: Path) -> None:
    result = _diff(finished, "previous", "current")
    assert result.exit_code == 2
    assert "there is no release before" in result.stderr
