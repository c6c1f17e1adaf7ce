"""The Dagster instance of a corpus: one folder, shared by the command, the web UI and the daemon.

DAGSTER_HOME counts where it is set; else it is `.dagster` in the artifact folder, with the
`dagster.yaml` that lies beside the settings file, or the one-machine defaults.
"""

import os
from pathlib import Path

import dagster as dg

from corpus_platform.config import Settings
from corpus_platform.storage.files import publish_bytes

__all__ = ["open_instance", "packaged", "prepare_home"]


def prepare_home(settings: Settings, config_file: Path) -> Path:
    """Make the instance folder, and point this process and its children at it and the settings."""
    os.environ["CORPUS_CONFIG"] = str(config_file.absolute())
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    # `python -m` looks for modules in the working folder first: a user's queue.py is none of ours.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # A tick looks at all shards; the default of a minute is short for ten thousand on a busy machine.
    for kind in ("SENSOR", "SCHEDULE"):
        os.environ.setdefault(f"DAGSTER_{kind}_GRPC_TIMEOUT_SECONDS", "600")
    if home := os.environ.get("DAGSTER_HOME"):
        folder = Path(home).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["DAGSTER_HOME"] = str(folder)
        return folder
    folder = settings.storage_path / ".dagster"
    folder.mkdir(parents=True, exist_ok=True)
    _copy_defaults(settings.base / "dagster.yaml", folder / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(folder)
    return folder


def open_instance() -> dg.DagsterInstance:
    """Open the instance of this process."""
    return dg.DagsterInstance.get()


def packaged(name: str) -> Path:
    """Return where a file of the repository's top lies: in the installed package, or there."""
    here = Path(__file__).resolve()
    installed = here.with_name(name)
    return installed if installed.exists() else here.parents[2] / name


def _copy_defaults(beside: Path, target: Path) -> None:
    """Copy the instance settings: those beside the settings file, else the package's own."""
    source = beside if beside.exists() else packaged(beside.name)
    wanted = source.read_bytes()
    if not target.exists() or target.read_bytes() != wanted:
        publish_bytes(target, wanted)
