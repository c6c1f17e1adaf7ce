"""Reads `corpus.yaml` into the settings, and explains each mistake with file, key and value."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pydantic
import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from corpus_platform.config import Fields, Settings, SourceSettings, Waiver
from corpus_platform.errors import SettingsError

__all__ = ["load_settings"]


def load_settings(path: Path) -> Settings:
    """Read and check a settings file.

    Raises SettingsError naming the file, the key and the value.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a SafeLoader
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such settings file; name one with --config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # e.g. the date 2027-02-30
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path}: a mapping of keys is wanted, found {type(raw).__name__}")
    if "base" in raw:
        raise SettingsError(f"{path}: base: unknown key (got {_short(raw['base'])})")
    try:
        return Settings.model_validate({**raw, "base": path.parent.absolute()})
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(_explain(path, raw, error.errors()))) from error


class _Loader(yaml.SafeLoader):
    """Reads YAML, and refuses a key that is written twice: the first would be lost in silence."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is written twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _explain(path: Path, raw: object, errors: Iterable[ErrorDetails]) -> list[str]:
    """Return a line for each key; what a value might have been instead stands in one line."""
    lines: dict[str, tuple[list[str], str]] = {}
    for error in errors:
        key, value = ".".join(_key(error, raw)) or "(the file)", f" (got {_short(error['input'])})"
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = f"unknown key{_hint(str(error['loc'][-1]))}"
        of_several = error["type"] == "value_error" and not error["loc"]
        if of_several:  # sections that do not go together: the message begins with the key
            key, _, message = message.partition(": ")
        told = error["type"] == "missing" or "(got " in message or of_several
        lines.setdefault(key, ([], "" if told else value))[0].append(message)
    return [f"{path}: {key}: {'; or '.join(said)}{got}" for key, (said, got) in lines.items()]


def _key(error: ErrorDetails, raw: object) -> Iterator[str]:
    """Yield the parts of a key as far as the file has them: pydantic adds names of types."""
    for part in error["loc"]:
        inside = dict(enumerate(raw)) if isinstance(raw, list) else raw
        if isinstance(inside, Mapping) and part in inside:
            yield str(part)
            raw = inside[part]
        elif error["type"] == "missing":
            yield str(part)


def _hint(key: str) -> str:
    close = difflib.get_close_matches(key, _known_keys(), n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _known_keys() -> list[str]:
    sections = [f.annotation for f in Settings.model_fields.values()]
    names = list(Settings.model_fields)
    for section in [*sections, SourceSettings, Fields, Waiver]:
        if isinstance(section, type) and issubclass(section, BaseModel):
            names += section.model_fields
    return names
