"""The pages agree with the program: nothing is missing in them, and nothing in them is made up."""

import dataclasses
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from corpus_platform import config, rule_settings
from corpus_platform.cli import main
from corpus_platform.stages.tally import CrawlTally
from corpus_platform.storage.manifest import Manifest
from corpus_platform.storage.registry import Shard

TOP = Path(__file__).resolve().parents[1]
DOCS = TOP / "docs"
PAGES = [TOP / "README.md", *sorted(DOCS.rglob("*.md"))]
BUILD = runpy.run_path(str(DOCS / "build.py"))


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_made_parts_are_what_the_code_makes_them() -> None:
    stale = [p.name for p, text in BUILD["pages"]().items() if p.read_text("utf-8") != text]
    assert stale == [], "run: make docs"


def test_every_command_gate_table_setting_and_schema_has_its_part_in_a_page() -> None:
    made = [name for name, _ in BUILD["_parts"]()]
    shown = [name for p in PAGES for _, name, _ in BUILD["PART"].findall(p.read_text("utf-8"))]
    assert sorted(shown) == sorted(made)


COMMANDS = dict(BUILD["_commands"]())  # those of a group by both names


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert command.help
    assert [o.name for o in options if not o.help] == []
    assert f"## corpus {name}\n" in _text("reference/commands.md")


def test_the_help_of_a_command_names_its_arguments() -> None:
    for command in COMMANDS.values():
        for argument in (p for p in command.params if isinstance(p, click.Argument)):
            assert str(argument.name).upper() in (command.help or "")


def test_the_first_line_of_a_commands_help_is_not_cut_in_the_list() -> None:
    width = 80 - 2 - 6 - max(map(len, main.commands))  # as click cuts on a terminal of 80
    assert [n for n, c in main.commands.items() if "..." in c.get_short_help_str(width)] == []


def _undescribed(section: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if (inner := BUILD["_section"](field.annotation)) is not None:
            yield from _undescribed(inner, f"{above}{name}.")
        elif not field.description and name != "base":
            yield f"{above}{name}"


def test_every_setting_says_what_it_is() -> None:
    assert list(_undescribed(config.Settings, "")) == []
    assert [
        n for rule in rule_settings.RULES.values() for n in _undescribed(rule, f"{rule}.")
    ] == []


def test_every_refusal_that_a_stage_raises_is_explained() -> None:
    sources = (TOP / "corpus_platform").rglob("*.py")
    raised = {g for p in sources for g in re.findall(r'gate="(\w+)"', p.read_text("utf-8"))}
    page = _text("reference/gates.md")
    assert {"readable", "current", "intact"} <= raised
    assert [
        g for g in sorted({*raised, "source_unchanged", "lock"}) if f"| `{g}` |" not in page
    ] == []


def test_every_reason_of_the_quarantine_is_explained() -> None:
    source = (TOP / "corpus_platform" / "formats" / "records.py").read_text("utf-8")
    reasons = re.findall(r'^    "(\w+)",$', source.split("Reason = Literal[")[1], re.MULTILINE)
    page = _text("reference/artifacts.md")
    assert "text_blank" in reasons
    assert [r for r in reasons if f"| `{r}` |" not in page] == []


def _required() -> list[tuple[str, ...]]:
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {None: project["dependencies"], **project["optional-dependencies"]}
    return [
        ((extra, name) if extra else (name,))
        for extra, lines in groups.items()
        for line in lines
        for name in [re.split(r"[<>=!~\[; ]", line)[0]]
    ]


def test_every_dependency_has_its_reason_and_no_other_is_named() -> None:
    rows = re.findall(r"^\| `([\w.-]+)` \|(?: `([\w-]+)` \|)? \S", _text("dependencies.md"), re.M)
    assert sorted(tuple(filter(None, row)) for row in rows) == sorted(_required())


def test_the_json_page_names_every_key() -> None:
    keys = [f.name for kind in (CrawlTally, Manifest, Shard) for f in dataclasses.fields(kind)]
    cli = (TOP / "corpus_platform" / "cli.py").read_text("utf-8")
    keys += re.findall(r'^            "(\w+)":', cli, re.MULTILINE)
    page = _text("reference/json.md")
    assert "peak_rss_bytes" in keys
    assert [k for k in keys if k != "key" and f'"{k}"' not in page and f"`{k}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.is_file(), target
        assert not anchor or anchor in _anchors(linked), target


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_targets_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"(?:`|bin/|^)corpus ([a-z]+)", text, re.M)) <= set(main.commands)
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= set(targets)


def test_the_readme_opens_with_what_it_is_and_the_commands() -> None:
    text = (TOP / "README.md").read_text("utf-8")
    places = [
        text.index(w) for w in ("small teams", "raw_shards ─►", "make run", "make test", "make ui")
    ]
    assert places == sorted(places)
