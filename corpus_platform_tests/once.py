"""Folders that tests only read or copy: made once in a run, also where pytest-xdist has many processes."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["made_once"]


def made_once(base: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of that name, which the first process that asks makes; others wait for it.

    `base` is the base folder of pytest's temporary ones. What a process left that died while it made
    the folder is made anew.
    """
    shared = base
    if base.name.startswith("popen-"):  # a process of pytest-xdist: its siblings share the folder
        shared = base.parent
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
