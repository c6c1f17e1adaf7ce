"""Writes the parts of the pages in this folder that the code knows: commands, settings, gates, schemas.

A page holds such a part between `<!-- made: NAME -->` and `<!-- end -->`; all else is written by
hand. `make docs` rewrites them, and a test fails while a page differs from what this makes.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args  # Any: values of a JSON schema

import click
import pyarrow as pa
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from corpus_platform import cli, config, document, rule_settings
from corpus_platform.gates import GATES, Gate

__all__ = ["pages"]

HERE = Path(__file__).resolve().parent
PART = re.compile(r"(<!-- made: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
GROUPS = {
    "language/<language>/documents": 1000.0,
    "language/<language>/kept": 0.0,
    "source/<source>/documents": 1000.0,
    "source/<source>/outlast": 0.0,
    "surviving_language/<language>/documents": 1000.0,
    "surviving_language/<language>/outlast": 0.0,
}


def pages() -> dict[Path, str]:
    """Return every page that has a made part, as it should be."""
    made = dict(_parts())
    found = {}
    for path in sorted(HERE.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if PART.search(text):
            found[path] = PART.sub(lambda m: f"{m[1]}{made[m[2]]}\n{m[3]}", text)
    return found


def _parts() -> Iterator[tuple[str, str]]:
    for name, command in _commands():
        yield f"command {name}", _command(name, command)
    yield "settings", "\n\n".join(_settings())
    yield "rules", _rules()
    for asset, gates in GATES.items():
        if gates:
            head = ("gate", "what must hold", "reads", "limit")
            yield f"gates {asset}", _table(head, [_gate(g) for g in gates])
    for name in document.__all__:
        if isinstance(schema := getattr(document, name), pa.Schema):
            yield f"schema {name}", _schema(schema)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands, those of a group under both names; a group too where it does something."""
    for name, command in cli.main.commands.items():
        if isinstance(command, click.Group) and command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())
        else:
            yield name, command


def _command(name: str, command: click.Command) -> str:
    # With the parent: a command keeps the help option that it was first asked for with.
    above = click.Context(cli.main, info_name="corpus", **cli.main.context_settings)
    context = click.Context(command, parent=above, info_name=name, resilient_parsing=True)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [p for p in command.params if isinstance(p, click.Option)]
    rows = [_option(option, context) for option in options]
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
    return f"```\n{usage}\n```\n\n{text}\n\n{_table(('option', 'default', 'what'), rows)}"


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    default = "" if option.is_flag or not option.show_default else f"{shown}"
    name = "/".join(option.opts)
    value = "" if option.is_flag else " " + option.make_metavar(context).split(" ")[0]
    return f"`{name}{value}`", default, option.help or ""


def _settings() -> Iterator[str]:
    fields = config.Settings.model_fields
    sections = {n: s for n, f in fields.items() if (s := _section(f.annotation)) is not None}
    own = [n for n in fields if n not in sections and n != "base"]
    yield "## The file itself\n\n" + _keys(config.Settings, own)
    for name, section in sections.items():
        about = inspect.cleandoc(section.__doc__ or "")
        yield f"## `{name}`\n\n{about}\n\n{_keys(section, list(section.model_fields))}"


def _section(annotation: object) -> type[BaseModel] | None:
    """Return the section that a key holds, alone, in a list or where there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((s for a in get_args(annotation) if (s := _section(a)) is not None), None)


def _keys(section: type[BaseModel], names: list[str]) -> str:
    return _table(("key", "default", "values", "what"), list(_key_rows(section, names, "")))


def _key_rows(section: type[BaseModel], names: list[str], above: str) -> Iterator[tuple[str, ...]]:
    schema = section.model_json_schema()["properties"]
    for name in names:
        field = section.model_fields[name]
        inner = _section(field.annotation)
        if inner is not None:
            yield from _key_rows(inner, list(inner.model_fields), f"{above}{name}.")
        else:
            what = field.description or ""
            yield f"`{above}{name}`", _default(field), _values(schema[name]), what


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{json.dumps(value)}`"


def _values(field: Mapping[str, Any]) -> str:
    """Say in words what a key may hold."""
    if "anyOf" in field:
        return " or ".join(w for f in field["anyOf"] if (w := _values(f)) != "null")
    if "enum" in field or "const" in field:
        return ", ".join(field.get("enum", [field.get("const")]))
    low, above = field.get("minimum"), field.get("exclusiveMinimum")
    high, below = field.get("maximum"), field.get("exclusiveMaximum")
    words = {"string": "text", "boolean": "true, false", "array": "a list", "object": "a mapping"}
    bounds = [
        f"{word} {int(bound) if bound == int(bound) else bound:,}"
        for word, bound in (("from", low), ("above", above), ("to", high), ("below", below))
        if bound is not None
    ]
    return " ".join(bounds) or field.get("format") or words.get(field["type"], field["type"])


def _rules() -> str:
    """Return a row per value of a rule: its default, and what preset `source_document` makes it."""
    rows = []
    for rule, kind in rule_settings.RULES.items():
        changed = rule_settings.PRESETS["source_document"][rule]
        for name, field in kind.model_json_schema()["properties"].items():
            default = field["default"]
            written = _short(changed[name]) if name in changed else "the same"
            rows.append((f"`{rule}.{name}`", _short(default), written, field["description"]))
    return _table(("key", "`web`", "`source_document`", "what"), rows)


def _short(value: object) -> str:
    return " ".join(value) if isinstance(value, list | tuple) else f"`{json.dumps(value)}`"


class _NotingNumbers(dict[str, float]):
    """Numbers that note which of them a gate reads; each one it asks for is there."""

    def __init__(self) -> None:
        super().__init__(GROUPS)
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> float:
        self.read[name] = None
        return self.get(name, 1000.0)


class _NotingLimits:
    """Limits that note which of them a gate reads, with their defaults."""

    def __init__(self, name: str, values: Any, read: dict[str, float]) -> None:
        self._name, self._values, self._read = name, values, read

    def __getattr__(self, name: str) -> Any:
        return self._noted(name, getattr(self._values, name))

    def __getitem__(self, name: str) -> Any:
        return self._noted(name, self._values[name])

    def _noted(self, name: str, value: Any) -> Any:
        whole = f"{self._name}.{name}"
        if isinstance(value, dict):
            return _NotingLimits(whole, value, self._read)
        self._read[whole] = value
        return value


def _gate(gate: Gate) -> tuple[str, ...]:
    numbers, limits = _NotingNumbers(), dict[str, float]()
    noting = _NotingLimits("checks", config.ChecksSettings(), limits)
    finding = gate.look(numbers, cast("config.ChecksSettings", noting))
    few = limits.pop("checks.min_records", None)
    limit = ", ".join(f"`{name}` = {value}" for name, value in limits.items())
    if not limit and finding.limit is not None:
        limit = f"{finding.limit:g}"
    warns = f"warns below {few} records" if few else ""
    return (
        f"`{gate.name}`",
        gate.description,
        ", ".join(f"`{name}`" for name in numbers.read),
        "; ".join(filter(None, (limit, warns))),
    )


def _schema(schema: pa.Schema) -> str:
    rows = [(f"`{f.name}`", str(f.type), "yes" if f.nullable else "no") for f in schema]
    return _table(("column", "type", "may be null"), rows)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
