"""Faults for the processes of a command under test, as CORPUS_FAULT says in JSON.

Python imports this module at its start where the folder is on PYTHONPATH; the product knows
nothing of it. Calls that change what lies below `root` are steps, written to the file `log` in one
order over all processes, and numbered from 1.

    {"root": ..., "log": ..., "kill_at": 7}                  the process dies just before step 7
    {"root": ..., "log": ..., "kill_at": 7, "tree": true}    so does every process of the command
    {"function": "package.module:name", "raise": "words"}    the function raises
    {"function": "package.module:name", "stall": 60}         the function takes so many seconds more

A write that is killed is torn: half of its bytes are there.
"""

import contextlib
import fcntl
import functools
import importlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any  # arguments of functions that are wrapped, whatever they are

TOP = "CORPUS_FAULT_TOP"  # process id of the command itself
FAULT = json.loads(os.environ.get("CORPUS_FAULT", "{}"))
STEPS = ("fsync", "rename", "replace", "unlink", "mkdir", "write")
_write = os.write


def _number(what: str) -> int:
    """Write a step to the log; return its number."""
    log = os.open(FAULT["log"], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)
        before = os.pread(log, 1 << 24, 0).count(b"\n")
        _write(log, f"{os.getpid()} {what}\n".encode())
        return before + 1
    finally:
        os.close(log)


def _below_root(path: Any, dir_fd: int | None) -> str | None:
    """Return a path as it is called below the root, None for one that is no product's."""
    if isinstance(path, int):
        path = os.readlink(f"/proc/self/fd/{path}")
    elif dir_fd is not None:
        path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)
    path = os.path.relpath(os.path.abspath(os.fspath(path)), FAULT["root"])
    foreign = path.startswith(("../", ".dagster/")) and "dagster.yaml" not in path
    return None if foreign else path


def _die() -> None:
    if FAULT.get("tree"):
        import psutil

        top = psutil.Process(int(os.environ[TOP]))
        for process in [top, *top.children(recursive=True)]:
            if process.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def _matters(name: str, where: str) -> bool:
    """Tell whether a call changes anything that a later run could stumble over."""
    if name == "mkdir":
        return ".draft-" in where
    return name != "unlink" or os.path.lexists(os.path.join(FAULT["root"], where))


def _counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        where = _below_root(path, kwargs.get("dir_fd"))
        if (
            where is not None
            and _matters(name, where)
            and _number(f"{name} {where}") == FAULT.get("kill_at")
        ):
            if name == "write":
                original(path, args[0][: len(args[0]) // 2])
            _die()
        return original(path, *args, **kwargs)

    return call


def _replace_function() -> None:
    module_name, _, name = FAULT["function"].partition(":")
    module = importlib.import_module(module_name)
    original = getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if "raise" in FAULT:
            raise RuntimeError(FAULT["raise"])
        time.sleep(FAULT["stall"])
        return original(*args, **kwargs)

    setattr(module, name, call)


if "root" in FAULT:
    os.environ.setdefault(TOP, str(os.getpid()))
    for _name in STEPS:
        setattr(os, _name, _counted(_name, getattr(os, _name)))
if "function" in FAULT:
    _replace_function()
