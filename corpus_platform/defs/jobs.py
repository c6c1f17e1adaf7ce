"""The jobs: what runs together in one process, and after it a look at how everything stands."""

import dagster as dg

from corpus_platform.defs.status import STATUS
from corpus_platform.planner import INGEST

__all__ = ["INGEST_JOB", "JOB_OF", "build_jobs"]

INGEST_JOB = "ingest_shard"
# The job that makes an asset.
JOB_OF = {
    **dict.fromkeys(INGEST, INGEST_JOB),
    "dedup_clusters": "build_corpus",
    "tokenizer": "build_corpus",
    "packed_bins": "pack_shard",
    "shuffled_bins": "publish_release",
}
DESCRIPTIONS = {
    INGEST_JOB: "One shard: raw, cleaned, signed.",
    "build_corpus": "Decide over all shards what is kept; then train the tokenizer, if there is none.",
    "pack_shard": "One shard's tokens.",
    "publish_release": "Shuffle all packed shards to a release.",
}


def build_jobs() -> dg.Definitions:
    """Return the jobs, each with the checks of its assets."""
    jobs = [
        dg.define_asset_job(
            name,
            selection=dg.AssetSelection.assets(*(a for a in JOB_OF if JOB_OF[a] == name), STATUS),
            executor_def=dg.in_process_executor,
            description=description,
        )
        for name, description in DESCRIPTIONS.items()
    ]
    return dg.Definitions(jobs=jobs)
