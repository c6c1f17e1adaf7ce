"""Where a stage's progress goes: to the command that drives this process, and to the run log.

A driving command names a file descriptor in CORPUS_PROGRESS_FD and reads one JSON line per step;
the run log gets a line every 30 seconds.
"""

import json
import os
import time

import dagster as dg

from corpus_platform.stages.project import Progress

__all__ = ["LOG_SECONDS", "PROGRESS_FD", "progress_of"]

PROGRESS_FD = "CORPUS_PROGRESS_FD"
LINE_SECONDS, LOG_SECONDS = 0.2, 30.0


def progress_of(context: dg.AssetExecutionContext) -> Progress:
    """Return the progress callback of an asset's step."""
    descriptor = os.environ.get(PROGRESS_FD)
    asset = context.asset_key.to_user_string()
    lined, logged = 0.0, time.monotonic()

    def progress(done: int, total: int | None) -> None:
        nonlocal lined, logged
        now = time.monotonic()
        if descriptor is not None and (now - lined > LINE_SECONDS or done == total):
            lined = now
            line = {"event": "progress", "asset": asset, "done": done, "total": total}
            os.write(int(descriptor), json.dumps(line).encode() + b"\n")
        if now - logged > LOG_SECONDS:
            logged = now
            context.log.info(f"{asset}: {done:,} of {total:,}" if total else f"{asset}: {done:,}")

    return progress
