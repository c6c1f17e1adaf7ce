"""Pointers: small JSON files that name the generation in force among those that are there.

A pointer moves by one rename. One that cannot be read or is no JSON object counts as none, so that
the next run writes it anew.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from corpus_platform.storage.files import publish_bytes

__all__ = ["move_pointer", "points_to", "read_pointer"]


def read_pointer(path: Path) -> dict[str, str]:
    """Return what a pointer says; nothing where there is none."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def points_to(path: Path, target: Mapping[str, str]) -> bool:
    """Return whether a pointer says just this."""
    return read_pointer(path) == target


def move_pointer(path: Path, target: Mapping[str, str]) -> None:
    """Have a pointer say this; it is not written again where it does."""
    if not points_to(path, target):
        publish_bytes(path, (json.dumps(dict(target), sort_keys=True) + "\n").encode())
