"""The Dagster instances of tests, whose runs print nothing.

In memory is the same Dagster over the same SQL, at a third of the time: for what one process asks of
an instance that it made itself. Files are for what another process, or one that comes later, reads.
"""

from pathlib import Path

import dagster as dg

__all__ = ["QUIET", "in_folder", "in_memory"]

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
SILENT = {"telemetry": {"enabled": False}}


def in_memory() -> dg.DagsterInstance:
    """Return an empty instance that is gone when it is closed."""
    return dg.DagsterInstance.ephemeral(settings=SILENT)


def in_folder(folder: Path) -> dg.DagsterInstance:
    """Open the instance of a folder: SQLite files, as Dagster makes them by default."""
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder), overrides=SILENT)
