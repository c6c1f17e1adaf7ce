"""Pins: which releases a person wants to keep, by names such as that of a training run.

They stand in one small file beside the releases. Only a collection looks at them; one that cannot
be read stops it.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.stages.pinned_release import find_release
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_names import name_release
from corpus_platform.storage import lease
from corpus_platform.storage.files import publish_bytes, read_if_there

__all__ = ["pin_release", "pins_lease", "pins_path", "read_pins", "unpin_release"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Waiting = Callable[[str], None]


def pins_path(project: Project) -> Path:
    """Return the small file that holds the pins."""
    return project.store.folder("shuffled_bins", None) / "pins.json"


def pins_lease(project: Project) -> Path:
    """Return the lease of whoever changes pins, or goes by them to remove releases."""
    return project.store.root / "leases" / "pins.lease"


def read_pins(project: Project) -> dict[str, str]:
    """Return the ids of pinned releases by the names of the pins.

    Raises StorageError where the file is there and cannot be read: a release could be taken for one
    that nobody wants.
    """
    path = pins_path(project)
    data = read_if_there(path)
    if data is None:
        return {}
    try:
        whole = json.loads(data)
        pins = {str(name): str(release) for name, release in whole["pins"].items()}
        if whole["format"] != 1:
            raise ValueError(f"format {whole['format']!r} is unknown, 1 is read")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{path}: no file of pins: {error!r}; restore it, or delete it and pin again what is to"
            " stay"
        ) from error
    return pins


def pin_release(
    project: Project, release: str, name: str | None = None, *, waiting: Waiting | None = None
) -> tuple[str, str]:
    """Pin a release, given as `find_release` takes it; return name and id. Twice is once.

    Raises UsageError where another release has that name.
    """
    if name is not None and _NAME.fullmatch(name) is None:
        raise UsageError(
            f"--name {name!r}: up to 100 letters, digits, dots, dashes and underscores"
        )
    with _changing(project, waiting) as pins:
        found = find_release(project, release).id
        name = name or found
        if pins.get(name, found) != found:
            raise UsageError(
                f"pin {name!r} is on release {pins[name]}; take it away first: corpus pin"
                f" {pins[name]} --name {name} --remove"
            )
        _write(project, {**pins, name: found})
    return name, found


def unpin_release(
    project: Project, release: str, name: str | None = None, *, waiting: Waiting | None = None
) -> list[tuple[str, str]]:
    """Take the pins of a release away, or the one of a name; return them.

    The release may be gone: it goes by the pins. Raises UsageError where there is none.
    """
    with _changing(project, waiting) as pins:
        gone = {
            pin: found
            for pin, found in pins.items()
            if _is_meant(project, release, found) and name in (None, pin)
        }
        if not gone or len(set(gone.values())) > 1:
            there = ", ".join(f"{found} ({pin})" for pin, found in sorted(pins.items())) or "none"
            what = "no pin" if not gone else "more than one release"
            raise UsageError(f"{what} of release {release!r}: pinned are {there}")
        _write(project, {pin: found for pin, found in pins.items() if pin not in gone})
    return sorted(gone.items())


def _is_meant(project: Project, release: str, pinned: str) -> bool:
    if release in ("current", "previous"):
        return pinned == name_release(project, release).id
    return release != "" and pinned.startswith(release)


@contextmanager
def _changing(project: Project, waiting: Waiting | None) -> Generator[Mapping[str, str]]:
    with lease.hold(pins_lease(project), waiting=waiting):
        yield read_pins(project)


def _write(project: Project, pins: Mapping[str, str]) -> None:
    whole = {"format": 1, "pins": dict(pins)}
    publish_bytes(pins_path(project), (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
