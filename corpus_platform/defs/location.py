"""All definitions of one settings file: assets, their checks, jobs, and what they are given."""

import warnings
from pathlib import Path

import dagster as dg

from corpus_platform.defs.assets import build_assets
from corpus_platform.defs.checks import build_checks
from corpus_platform.defs.jobs import build_jobs
from corpus_platform.defs.resources import load_corpus

__all__ = ["build_definitions"]

# Partitioned checks are a preview of Dagster 1.13; its one warning per check drowns all others.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)


def build_definitions(config_file: Path) -> dg.Definitions:
    """Return all definitions for one settings file."""
    corpus = load_corpus(config_file)
    assets = dg.Definitions(
        assets=build_assets(corpus),
        asset_checks=build_checks(corpus),
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(assets, build_jobs())
