"""The assets: each finds its partition, runs one stage and hands the report to the UI.

The docstrings are what the UI shows. What a stage does stands in `corpus_platform.stages`.
"""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from corpus_platform.defs.columns import columns_metadata
from corpus_platform.defs.launchpad import NOTHING_TO_SET
from corpus_platform.defs.partitions import SHARDS
from corpus_platform.defs.reporting import materialize_shard, materialize_whole, verdict_metadata
from corpus_platform.defs.resources import Corpus
from corpus_platform.defs.status import SCOPE
from corpus_platform.stages.chain import CHAIN, open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.dedup_verdicts import verdicts_in_force
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import canonical_json, text_sha256

__all__ = ["build_assets"]

DATA_VERSION = "dagster/data_version"
# Over all shards, on all cores: dagster.yaml lets one such run start at a time.
HEAVY = "heavy"
# It is trained on what they keep, and no data depends on it: later ones do not make it due.
AFTER_CLUSTERS = {"dagster/priority": "-1"}
# Of a store that failed; what else goes wrong would do so again (`reporting`).
DOWNLOADS = dg.RetryPolicy(
    max_retries=2, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def build_assets(corpus: Corpus) -> Assets:
    """Return all assets; a changed setting changes the code version of what depends on it."""
    assets = [*_shard_assets(corpus), *_corpus_assets(corpus), *_token_assets(corpus)]
    return list(dg.map_asset_specs(lambda spec: _owned(spec, corpus), assets))


def _owned(spec: dg.AssetSpec, corpus: Corpus) -> dg.AssetSpec:
    """Return a spec with what all assets have: owners, and a tag with their scope."""
    scope = "corpus" if spec.partitions_def is None else "shard"
    return spec.replace_attributes(
        owners=list(corpus.settings.owners), tags={**spec.tags, SCOPE: scope}
    )


def _code_version(corpus: Corpus, asset: str) -> str:
    """Return the stage's version with the hash of the settings it takes."""
    stage = CHAIN[asset]
    whole = canonical_json(stage.code_settings(open_project(corpus.settings, read_only=True)))
    return f"{stage.version}-{text_sha256(whole)[:12]}"


def _shard_assets(corpus: Corpus) -> Assets:
    @dg.asset(
        partitions_def=SHARDS,
        group_name="ingest",
        kinds={"file"},
        retry_policy=DOWNLOADS,
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "raw_shards"),
    )
    def raw_shards(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """The bytes of a source shard, copied unchanged and verified by sha256."""
        return materialize_shard(context, corpus, fetch_shard)

    @dg.asset(
        partitions_def=SHARDS,
        deps=[raw_shards],
        group_name="ingest",
        kinds={"parquet"},
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "cleaned_documents"),
        metadata=columns_metadata("cleaned_documents"),
    )
    def cleaned_documents(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """The documents that passed the rules, with tombstones and quarantine beside them."""
        return materialize_shard(context, corpus, clean_documents)

    @dg.asset(
        partitions_def=SHARDS,
        deps=[cleaned_documents],
        group_name="ingest",
        kinds={"parquet"},
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "minhash_signatures"),
        metadata=columns_metadata("minhash_signatures"),
    )
    def minhash_signatures(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """Exact key, MinHash signature and band hashes of each cleaned document."""
        return materialize_shard(context, corpus, sign_documents)

    return [raw_shards, cleaned_documents, minhash_signatures]


def _corpus_assets(corpus: Corpus) -> Assets:
    @dg.asset(
        deps=["minhash_signatures"],
        group_name="corpus",
        kinds={"parquet"},
        pool=HEAVY,
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "dedup_clusters"),
        metadata=columns_metadata("dedup_clusters"),
    )
    def dedup_clusters(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """One row per cleaned document: cluster, kept or dropped, twin, similarity, split."""
        result = materialize_whole(context, corpus, cluster_documents)
        for event in _verdict_events(context.instance, verdicts_in_force(corpus.project())):
            context.log_event(event)
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
        pool=HEAVY,
        op_tags=AFTER_CLUSTERS,
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "tokenizer"),
    )
    def tokenizer(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """The byte-level BPE tokenizer: trained once on kept documents, then frozen."""
        return materialize_whole(context, corpus, train_tokenizer)

    return [dedup_clusters, dedup_verdicts, tokenizer]


def _verdict_events(
    instance: dg.DagsterInstance, verdicts: Mapping[str, Artifact]
) -> Iterator[dg.AssetMaterialization]:
    """Yield an event for each verdict that is not the one Dagster knows.

    It is what Dagster has recorded that counts: a run that was killed before told it nothing.
    """
    known = instance.event_log_storage.get_latest_tags_by_partition(
        dg.AssetKey("dedup_verdicts"), dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
    )
    for shard, verdict in verdicts.items():
        if known.get(shard, {}).get(DATA_VERSION) != verdict.content:
            yield dg.AssetMaterialization(
                "dedup_verdicts",
                partition=shard,
                metadata=verdict_metadata(verdict),
                tags={DATA_VERSION: verdict.content},
            )


def _token_assets(corpus: Corpus) -> Assets:
    @dg.asset(
        partitions_def=SHARDS,
        deps=["cleaned_documents", "dedup_verdicts", "tokenizer"],
        group_name="tokens",
        kinds={"binary", "parquet"},
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "packed_bins"),
        metadata=columns_metadata("packed_bins"),
    )
    def packed_bins(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """The tokens of a shard's kept documents, each ended by one EOS, with their index."""
        return materialize_shard(context, corpus, pack_shard)

    @dg.asset(
        deps=["packed_bins", "tokenizer"],
        group_name="tokens",
        kinds={"binary", "parquet", "json"},
        pool=HEAVY,
        config_schema=NOTHING_TO_SET,
        code_version=_code_version(corpus, "shuffled_bins"),
        metadata=columns_metadata("shuffled_bins"),
    )
    def shuffled_bins(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """A release: all documents in one seeded random order, what a training run pins."""
        return materialize_whole(context, corpus, publish_release)

    return [packed_bins, shuffled_bins]
