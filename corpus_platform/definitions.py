"""The one Definitions object of the corpus platform.

CORPUS_CONFIG names the settings file; without it `corpus.yaml` of the working folder counts.
"""

import os
from pathlib import Path

import dagster as dg

from corpus_platform.defs.location import build_definitions

__all__ = ["defs"]


@dg.definitions
def defs() -> dg.Definitions:
    """Load the definitions of the settings file that the environment names."""
    return build_definitions(Path(os.environ.get("CORPUS_CONFIG", "corpus.yaml")).absolute())
