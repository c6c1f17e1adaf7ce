"""The files at the top of the repository agree with the code and hold nothing of one machine."""

import re
import zipfile
from pathlib import Path

import pytest
import yaml

from corpus_platform.config import Settings, SourceSettings
from corpus_platform.settings_file import load_settings

TOP = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")


def _pins(lock: str) -> set[tuple[str, str]]:
    text = (TOP / lock).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([\w.]+)", text, re.MULTILINE))


def test_corpus_yaml_shows_the_defaults() -> None:
    shown = load_settings(TOP / "corpus.yaml").model_dump()
    sources = (SourceSettings.model_validate({"glob": "sample/crawl={crawl}/*"}),)
    assert shown == Settings(sources=sources).model_dump()


def test_corpus_yaml_names_every_key() -> None:
    written = yaml.safe_load((TOP / "corpus.yaml").read_text(encoding="utf-8"))
    assert set(written) == set(Settings.model_fields) - {"base"}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_versions_and_hashes_and_names_no_place(lock: str) -> None:
    text = (TOP / lock).read_text(encoding="utf-8")
    line = r"[\w.-]+(\[\w+\])?==[\w.]+( ; [\w.'<>=! ()]+)?|    --hash=sha256:[0-9a-f]{64}"
    assert [t for t in text.splitlines() if not re.fullmatch(line, t.removesuffix(" \\"))] == []


def test_tests_run_on_the_versions_that_are_shipped() -> None:
    assert _pins(LOCKS[0]) - _pins(LOCKS[1]) == set()


def test_the_wheel_brings_the_command_and_the_instance_settings(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(TOP))
    (path,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        yaml_in_it = wheel.read("corpus_platform/defs/dagster.yaml")
        entry_points = wheel.read(next(n for n in names if n.endswith("entry_points.txt")))
    assert yaml_in_it == (TOP / "dagster.yaml").read_bytes()
    assert b"corpus = corpus_platform.__main__:main" in entry_points
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"corpus_platform"}


def test_make_help_names_every_target() -> None:
    text = (TOP / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)[0].split()
    shown = re.findall(r"^\t@echo 'make ([a-z-]+)  ", text, re.MULTILINE)
    assert sorted([*shown, "help"]) == sorted(phony)
