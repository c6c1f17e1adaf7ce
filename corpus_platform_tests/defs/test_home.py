"""One instance serves one corpus."""

from pathlib import Path

import pytest

from corpus_platform.config import Settings
from corpus_platform.defs.home import prepare_home
from corpus_platform.errors import SettingsError


def _settings(base: Path) -> Settings:
    source = {"glob": "in/*", "crawl": "c"}
    return Settings.model_validate({"sources": [source], "base": base})


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORPUS_CONFIG", "DAGSTER_HOME", "DAGSTER_DISABLE_TELEMETRY", "PYTHONSAFEPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_without_dagster_home_each_corpus_has_an_instance_in_its_storage(tmp_path: Path) -> None:
    home = prepare_home(_settings(tmp_path), tmp_path / "corpus.yaml")
    assert home == tmp_path / "data" / ".dagster"
    assert (home / "dagster.yaml").exists()


def test_a_dagster_home_serves_the_corpus_that_took_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    first = _settings(tmp_path / "a")
    assert prepare_home(first, tmp_path / "a/corpus.yaml") == home
    assert prepare_home(first, tmp_path / "a/corpus.yaml") == home
    with pytest.raises(SettingsError, match="serves the corpus in"):
        prepare_home(_settings(tmp_path / "b"), tmp_path / "b/corpus.yaml")
