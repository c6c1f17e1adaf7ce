"""The jobs: what runs together in one process."""

import dagster as dg

__all__ = ["JOB_OF", "build_jobs"]

INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")

# The job that makes an asset.
JOB_OF = {
    **dict.fromkeys(INGEST, "ingest_shard"),
    "dedup_clusters": "build_corpus",
    "tokenizer": "train_tokenizer",
    "packed_bins": "pack_shard",
    "shuffled_bins": "publish_release",
}


def build_jobs() -> dg.Definitions:
    """Return the jobs, each with the checks of its assets."""
    chosen = {
        "ingest_shard": (INGEST, "One shard: raw, cleaned, signed."),
        "build_corpus": (["dedup_clusters"], "Decide over all shards what is kept."),
        "train_tokenizer": (["tokenizer"], "Train the tokenizer, where there is none."),
        "pack_shard": (["packed_bins"], "One shard's tokens."),
        "publish_release": (["shuffled_bins"], "Shuffle all packed shards to a release."),
    }
    jobs = [
        dg.define_asset_job(
            name,
            selection=dg.AssetSelection.assets(*assets),
            executor_def=dg.in_process_executor,
            description=description,
        )
        for name, (assets, description) in chosen.items()
    ]
    return dg.Definitions(jobs=jobs)
