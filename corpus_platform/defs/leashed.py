"""A program on a leash: runs a module as if it were called alone, until its starter is gone.

    python -m corpus_platform.defs.leashed MODULE ARGUMENT...

The starter gives it a process group of its own and a pipe as standard input. The pipe closes when
the starter lets go of it or ends, be it by kill -9; then the whole group is ended.
"""

import contextlib
import os
import runpy
import signal
import sys
import threading
import time

import psutil

__all__ = ["GRACE_SECONDS", "main"]

GRACE_SECONDS = 8.0  # open pages and runs in mid-step get so long to end by themselves


def main() -> None:
    """Run the module that the first argument names."""
    module, sys.argv = sys.argv[1], sys.argv[1:]
    # A shell starts what stands before an & with interrupts ignored, and Dagster would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cut, over = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(cut, over), daemon=True)
    watch.start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        over.set()
        if cut.is_set():
            watch.join()


def _watch(cut: threading.Event, over: threading.Event) -> None:
    """Wait for the pipe to close; then interrupt the group, and kill what does not end by itself."""
    while os.read(0, 4096):
        continue
    cut.set()
    os.killpg(0, signal.SIGINT)
    until = time.monotonic() + GRACE_SECONDS
    while not over.is_set() or _others():
        if time.monotonic() > until:
            os.killpg(0, signal.SIGKILL)
        time.sleep(0.1)


def _others() -> bool:
    """Tell whether another process of this group lives; a zombie does not."""
    group, me = os.getpgrp(), os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            in_group = process.pid != me and os.getpgid(process.pid) == group
            if in_group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


if __name__ == "__main__":
    main()
