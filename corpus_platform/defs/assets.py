"""The assets: each finds its partition, runs one stage and hands the report to the UI.

The docstrings are what the UI shows. What a stage does stands in `corpus_platform.stages`.
"""

from collections.abc import Sequence

import dagster as dg

from corpus_platform.config import Settings
from corpus_platform.defs.columns import columns_metadata
from corpus_platform.defs.partitions import SHARDS
from corpus_platform.defs.reporting import materialize
from corpus_platform.defs.resources import Corpus
from corpus_platform.stages.chain import CHAIN, open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.dedup_verdicts import verdict_contents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.files import canonical_json, text_sha256

__all__ = ["build_assets"]

Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def build_assets(settings: Settings) -> Assets:
    """Return all assets; a changed setting changes the code version of what depends on it."""
    return [*_shard_assets(settings), *_corpus_assets(settings), *_token_assets(settings)]


def _code_version(settings: Settings, asset: str) -> str:
    """Return the stage's version with the hash of the settings it takes."""
    stage = CHAIN[asset]
    whole = canonical_json(stage.code_settings(open_project(settings, read_only=True)))
    return f"{stage.version}-{text_sha256(whole)[:12]}"


def _shard_assets(settings: Settings) -> Assets:
    @dg.asset(
        partitions_def=SHARDS,
        group_name="ingest",
        kinds={"file"},
        code_version=_code_version(settings, "raw_shards"),
    )
    def raw_shards(context: dg.AssetExecutionContext, corpus: Corpus) -> dg.MaterializeResult:
        """The bytes of a source shard, copied unchanged and verified by sha256."""
        key = context.partition_key
        return materialize(context, lambda p: fetch_shard(corpus.project(), key, progress=p))

    @dg.asset(
        partitions_def=SHARDS,
        deps=[raw_shards],
        group_name="ingest",
        kinds={"parquet"},
        code_version=_code_version(settings, "cleaned_documents"),
        metadata=columns_metadata("cleaned_documents"),
    )
    def cleaned_documents(
        context: dg.AssetExecutionContext, corpus: Corpus
    ) -> dg.MaterializeResult:
        """The documents that passed the rules, with tombstones and quarantine beside them."""
        key = context.partition_key
        return materialize(context, lambda p: clean_documents(corpus.project(), key, progress=p))

    @dg.asset(
        partitions_def=SHARDS,
        deps=[cleaned_documents],
        group_name="ingest",
        kinds={"parquet"},
        code_version=_code_version(settings, "minhash_signatures"),
        metadata=columns_metadata("minhash_signatures"),
    )
    def minhash_signatures(
        context: dg.AssetExecutionContext, corpus: Corpus
    ) -> dg.MaterializeResult:
        """Exact key, MinHash signature and band hashes of each cleaned document."""
        key = context.partition_key
        return materialize(context, lambda p: sign_documents(corpus.project(), key, progress=p))

    return [raw_shards, cleaned_documents, minhash_signatures]


def _corpus_assets(settings: Settings) -> Assets:
    @dg.asset(
        deps=["minhash_signatures"],
        group_name="corpus",
        kinds={"parquet"},
        code_version=_code_version(settings, "dedup_clusters"),
        metadata=columns_metadata("dedup_clusters"),
    )
    def dedup_clusters(context: dg.AssetExecutionContext, corpus: Corpus) -> dg.MaterializeResult:
        """One row per cleaned document: cluster, kept or dropped, twin, similarity, split."""
        project = corpus.project()
        before = verdict_contents(project)
        result = materialize(context, lambda p: cluster_documents(project, progress=p))
        for shard, content in verdict_contents(project).items():
            if before.get(shard) != content:
                context.log_event(_verdict_event(shard, content))
        return result

    dedup_verdicts = dg.AssetSpec(
        "dedup_verdicts",
        deps=[dedup_clusters],
        partitions_def=SHARDS,
        group_name="corpus",
        kinds={"parquet"},
        metadata=columns_metadata("dedup_verdicts"),
        description="Per shard (row, kept, split); reported by dedup_clusters where it changed.",
    )

    @dg.asset(
        group_name="corpus",
        kinds={"json"},
        code_version=_code_version(settings, "tokenizer"),
    )
    def tokenizer(context: dg.AssetExecutionContext, corpus: Corpus) -> dg.MaterializeResult:
        """The byte-level BPE tokenizer: trained once on kept documents, then frozen."""
        return materialize(context, lambda p: train_tokenizer(corpus.project(), progress=p))

    return [dedup_clusters, dedup_verdicts, tokenizer]


def _verdict_event(shard: str, content: str) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        "dedup_verdicts", partition=shard, tags={"dagster/data_version": content}
    )


def _token_assets(settings: Settings) -> Assets:
    @dg.asset(
        partitions_def=SHARDS,
        deps=["cleaned_documents", "dedup_verdicts", "tokenizer"],
        group_name="tokens",
        kinds={"binary"},
        code_version=_code_version(settings, "packed_bins"),
        metadata=columns_metadata("packed_bins"),
    )
    def packed_bins(context: dg.AssetExecutionContext, corpus: Corpus) -> dg.MaterializeResult:
        """The tokens of a shard's kept documents, each ended by one EOS, with their index."""
        key = context.partition_key
        return materialize(context, lambda p: pack_shard(corpus.project(), key, progress=p))

    @dg.asset(
        deps=["packed_bins", "tokenizer"],
        group_name="tokens",
        kinds={"binary"},
        code_version=_code_version(settings, "shuffled_bins"),
        metadata=columns_metadata("shuffled_bins"),
    )
    def shuffled_bins(context: dg.AssetExecutionContext, corpus: Corpus) -> dg.MaterializeResult:
        """A release: all documents in one seeded random order, what a training run pins."""
        return materialize(context, lambda p: publish_release(corpus.project(), progress=p))

    return [packed_bins, shuffled_bins]
