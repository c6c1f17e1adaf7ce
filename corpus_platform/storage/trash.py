"""Removal of a folder that others may be looking for: it goes at once, and then its files.

A folder gets a hidden name by one rename, so that nobody finds half of it; what a killed process
left under such a name is removed by whoever comes next. Files that are mapped stay readable until
they are let go.
"""

import os
import shutil
import uuid
from pathlib import Path

from corpus_platform.storage.files import flush_folder
from corpus_platform.storage.manifest import MANIFEST_NAME

__all__ = ["PREFIX", "discard", "empty"]

PREFIX = ".trash-"


def discard(folder: Path) -> None:
    """Remove a folder with all that is in it."""
    trash = folder.with_name(f"{PREFIX}{uuid.uuid4().hex}")
    os.rename(folder, trash)
    flush_folder(trash.parent)
    empty(trash)


def empty(trash: Path) -> None:
    """Remove a folder that has its hidden name already: the manifest first, then the files."""
    (trash / MANIFEST_NAME).unlink(missing_ok=True)
    flush_folder(trash)
    shutil.rmtree(trash)
