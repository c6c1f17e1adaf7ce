"""What assets and checks are given: the corpus they work on, as the settings file says."""

from pathlib import Path

import dagster as dg

from corpus_platform.config import Settings
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project

__all__ = ["Corpus"]


class Corpus(dg.ConfigurableResource):
    """The corpus of one settings file. The file is read anew by every run."""

    config_file: str

    def settings(self) -> Settings:
        """Return the settings as they are now."""
        return load_settings(Path(self.config_file))

    def project(self) -> Project:
        """Return the project that stages work in."""
        return open_project(self.settings())
