"""Leases: who may make an artifact, held by the kernel so that a killed process frees its own.

A lease is an exclusive lock on a small file that also says who holds it. It works between
processes of one machine on a local disk.
"""

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path

__all__ = ["held_by", "hold", "holder"]

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def hold(path: Path, *, waiting: Callable[[str], None] | None = None) -> Generator[None]:
    """Hold the lease of a file while the block runs; wait for another holder.

    `waiting` hears once who holds it; without it the log does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try(descriptor):
            if waiting is not None:
                waiting(holder(path))
            else:
                _log.warning("%s: waiting for %s", path, holder(path))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)  # frees the lock


def held_by(path: Path) -> str | None:
    """Return who holds the lease of a file now, in words; None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        # Shared: of two who ask at the same time none takes the other for a holder.
        return None if _try(descriptor, fcntl.LOCK_SH) else holder(path)
    finally:
        os.close(descriptor)


def holder(path: Path) -> str:
    """Return who signed the lease last, in words."""
    try:
        who = json.loads(path.read_bytes())
        return f"process {who['pid']} on {who['host']}, since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _try(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(who).encode(), 0)
