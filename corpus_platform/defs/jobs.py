"""The jobs: what runs together in one process."""

import dagster as dg

from corpus_platform.defs.partitions import SHARDS

__all__ = ["JOB_OF", "build_jobs"]

PARTITIONED = ("ingest_shard", "pack_shard", "audit_shard")
INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")

# The job that makes an asset.
JOB_OF = {
    **dict.fromkeys(INGEST, "ingest_shard"),
    "dedup_clusters": "build_corpus",
    "tokenizer": "train_tokenizer",
    "packed_bins": "pack_shard",
    "shuffled_bins": "publish_release",
}


MAKING = {
    "ingest_shard": "One shard: raw, cleaned, signed.",
    "build_corpus": "Decide over all shards what is kept.",
    "train_tokenizer": "Train the tokenizer, where there is none.",
    "pack_shard": "One shard's tokens.",
    "publish_release": "Shuffle all packed shards to a release.",
}
JUDGING = {
    "audit_shard": "Measure a shard's files again, and judge them by the limits of today.",
    "audit_corpus": "Measure clusters, tokenizer and release again, and judge them.",
}


def build_jobs() -> dg.Definitions:
    """Return the jobs: those that make assets, with their checks, and those that only check."""
    selection = dg.AssetSelection
    making = {job: selection.assets(*_made_by(job)) for job in MAKING}
    judged = {"audit_shard": [], "audit_corpus": []}
    for asset, job in JOB_OF.items():
        judged["audit_shard" if job in PARTITIONED else "audit_corpus"].append(asset)
    judging = {job: selection.checks_for_assets(*assets) for job, assets in judged.items()}
    descriptions = MAKING | JUDGING
    jobs = [
        dg.define_asset_job(
            name,
            selection=chosen,
            partitions_def=SHARDS if name in PARTITIONED else None,
            executor_def=dg.in_process_executor,
            description=descriptions[name],
        )
        for name, chosen in (making | judging).items()
    ]
    return dg.Definitions(jobs=jobs)


def _made_by(job: str) -> list[str]:
    return [asset for asset, its_job in JOB_OF.items() if its_job == job]
