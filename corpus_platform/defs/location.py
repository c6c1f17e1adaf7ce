"""All definitions of one settings file: assets, their checks, jobs, and what they are given."""

import warnings
from pathlib import Path

import dagster as dg

from corpus_platform.defs.alerts import build_alerts
from corpus_platform.defs.assets import build_assets
from corpus_platform.defs.carrying_on import build_sensor
from corpus_platform.defs.checks import build_checks
from corpus_platform.defs.housekeeping import build_housekeeping
from corpus_platform.defs.jobs import build_jobs
from corpus_platform.defs.launchpad import NO_VALUES
from corpus_platform.defs.nightly import build_schedule
from corpus_platform.defs.resources import load_corpus
from corpus_platform.defs.status import build_status

__all__ = ["build_definitions"]

# Partitioned checks are a preview of Dagster 1.13; its one warning per check drowns all others.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)


def build_definitions(config_file: Path) -> dg.Definitions:
    """Return all definitions for one settings file."""
    corpus = load_corpus(config_file)
    assets = dg.Definitions(
        assets=[*build_assets(corpus), build_status(corpus)],
        asset_checks=build_checks(corpus),
        resources={"io_manager": NO_VALUES},
        executor=dg.in_process_executor,
    )
    jobs = build_jobs()
    nightly = dg.Definitions(
        schedules=[build_schedule(corpus)],
        sensors=[build_sensor(corpus, jobs), *build_alerts(corpus)],
    )
    return dg.Definitions.merge(assets, jobs, nightly, build_housekeeping(corpus))
