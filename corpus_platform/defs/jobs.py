"""The jobs: what runs together in one process, and after it a look at how everything stands."""

import dagster as dg

from corpus_platform.defs.status import STATUS

__all__ = ["JOB_OF", "build_jobs"]

INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")

# The job that makes an asset.
JOB_OF = {
    **dict.fromkeys(INGEST, "ingest_shard"),
    "dedup_clusters": "build_corpus",
    "tokenizer": "build_corpus",
    "packed_bins": "pack_shard",
    "shuffled_bins": "publish_release",
}
DESCRIPTIONS = {
    "ingest_shard": "One shard: raw, cleaned, signed.",
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
