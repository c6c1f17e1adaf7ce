"""What assets, checks, schedules and sensors are given: the corpus of one settings file.

Settings are those of when the definitions were loaded. Nothing of them can be overridden in the
launchpad; whoever acts unasked looks first whether the file has changed since.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus_platform.config import Settings
from corpus_platform.defs.s3 import connect
from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.storage.files import file_sha256, text_sha256

__all__ = ["TASK_TAG", "Corpus", "corpus_name", "load_corpus"]

TASK_TAG = "corpus/task"  # of a run that a command's worker executes; begins with the corpus's name


@dataclass(frozen=True)
class Corpus:
    """Settings as loaded, the file they came from, and the sha256 that it had."""

    settings: Settings
    config_file: Path
    sha256: str

    @property
    def name(self) -> str:
        """Eight hex digits that tell corpora of one Dagster instance apart."""
        return corpus_name(self.settings)

    def project(self, *, waiting: Callable[[str], None] | None = None) -> Project:
        """Return the project that stages work in; `waiting` hears who holds a lease."""
        return open_project(self.settings, waiting=waiting, connect=connect)

    def outdated(self) -> str | None:
        """Say in words that the settings file is not what was loaded, None where it is."""
        if _sha256(self.config_file) == self.sha256:
            return None
        return (
            f"{self.config_file} changed since it was loaded: nothing is done by the old settings;"
            " reload the code location (Deployment > Reload)"
        )


def load_corpus(config_file: Path) -> Corpus:
    """Load a settings file; raises SettingsError."""
    sha256 = _sha256(config_file)  # before it is read: a change in between is then seen
    return Corpus(load_settings(config_file), config_file, sha256)


def corpus_name(settings: Settings) -> str:
    """Return eight hex digits for a storage folder."""
    return text_sha256(str(settings.storage_path.resolve()))[:8]


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except (OSError, StorageError):
        return "none"  # that there is no file is said by whoever reads it
