"""Tests of what the UI is told of an artifact and of a refusal, on a real instance.

One run of the whole chain over the small corpus; every expectation is an argument from what the
corpus is, from the files on disk, or from arithmetic over other numbers of the same event.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from corpus_platform.defs.jobs import JOB_OF
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform_tests.instances import QUIET, in_memory
from corpus_platform_tests.small import SHARDS, register, write_small_corpus

pytestmark = pytest.mark.xdist_group("reporting")  # the corpus is made once
ASSETS = (
    "raw_shards",
    "cleaned_documents",
    "minhash_signatures",
    "dedup_clusters",
    "dedup_verdicts",
    "tokenizer",
    "packed_bins",
    "shuffled_bins",
)
TABLES = set(ASSETS) - {"raw_shards", "tokenizer"}
WHOLE = {"dedup_clusters", "tokenizer", "shuffled_bins"}
# What a person watches of each asset, in plots.
WATCHED = {
    "raw_shards": {"bytes_in", "bytes_out", "mb_per_second", "stage_seconds", "files"},
    "cleaned_documents": {
        "bytes_in",
        "bytes_out",
        "decompressed_bytes",
        "mb_per_second",
        "documents_per_second",
        "lines",
        "documents",
        "kept",
        "kept_share",
        "quarantined",
        "quarantined_share",
        "drop_rate/too_short",
        "drop_rate/dup_lines",
        "drop_rate/char_repeat",
        "drop_rate/low_alnum",
        "drop_rate/low_lang_confidence",
    },
    "minhash_signatures": {"bytes_in", "mb_per_second", "documents", "documents_per_second"},
    "dedup_clusters": {
        "bytes_in",
        "documents",
        "kept",
        "kept_share",
        "copies",
        "copy_share",
        "exact_copy_share",
        "near_copy_share",
        "validation_share",
        "largest_cluster",
        "least_similarity",
        "documents_per_second",
        "uncleared",
        "candidates",
        "capped_buckets",
        "text_bytes_before",
        "text_bytes_after",
        "text_bytes_kept_share",
        "copy_share/2026-40",
        "copy_share/2026-44",
    },
    "dedup_verdicts": {"documents", "kept", "kept_share", "train", "validation"},
    "tokenizer": {"vocab_size", "bytes_out", "stage_seconds", "chars_per_token/en"},
    "packed_bins": {
        "documents",
        "tokens",
        "train_tokens",
        "validation_tokens",
        "tokens_per_document",
        "tokens_per_second",
        "sequences",
        "utilisation",
        "bytes_in",
        "bytes_out",
    },
    "shuffled_bins": {
        "shards",
        "documents",
        "tokens",
        "train_tokens",
        "validation_tokens",
        "validation_token_share",
        "tokens_per_document",
        "tokens_per_second",
        "mb_per_second",
        "sequences",
        "utilisation",
    },
}
Metadata = Mapping[str, dg.MetadataValue]


@dataclass(frozen=True)
class Ran:
    """A corpus that was run through Dagster, what those runs said, and the instance that knows it."""

    config: Path
    instance: dg.DagsterInstance
    first: dict[tuple[str, str | None], dg.ExecuteInProcessResult]

    def execute(self, job: str, shard: str | None = None) -> dg.ExecuteInProcessResult:
        return (
            build_definitions(self.config)
            .resolve_job_def(job)
            .execute_in_process(
                instance=self.instance,
                partition_key=shard,
                run_config=QUIET,
                raise_on_error=False,
            )
        )

    def events(self, asset: str) -> dict[str | None, Metadata]:
        """Return the metadata of the latest materialization by partition."""
        found: dict[str | None, Metadata] = {}
        for record in self.instance.fetch_materializations(dg.AssetKey(asset), limit=100).records:
            event = record.asset_materialization
            assert event is not None
            found.setdefault(event.partition, event.metadata)
        return found

    def numbers(self, asset: str, shard: str | None = None) -> dict[str, float]:
        """Return what plots of one event."""
        metadata = self.events(asset)[shard].items()
        kinds = (dg.IntMetadataValue, dg.FloatMetadataValue)
        return {n: v.value for n, v in metadata if isinstance(v, kinds) and v.value is not None}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """The small corpus after all jobs; what a test breaks it mends."""
    folder = tmp_path_factory.mktemp("reported")
    config = write_small_corpus(folder)
    with in_memory() as instance:
        instance.add_dynamic_partitions(SHARDS_NAME, list(SHARDS))
        register(open_project(load_settings(config)))
        made = Ran(config, instance, {})
        for job in dict.fromkeys(JOB_OF.values()):
            per_shard = job in ("ingest_shard", "pack_shard")
            for shard in SHARDS if per_shard else (None,):
                made.first[job, shard] = result = made.execute(job, shard)
                assert result.success
        yield made


@pytest.mark.parametrize("asset", ASSETS)
def test_each_asset_shows_the_numbers_that_a_person_watches(asset: str, ran: Ran) -> None:
    events = ran.events(asset)
    assert set(events) == ({None} if asset in WHOLE else set(SHARDS))
    for shard in events:
        assert WATCHED[asset] - set(ran.numbers(asset, shard)) == set()


@pytest.mark.parametrize("asset", ASSETS)
def test_each_asset_links_to_the_folder_and_the_manifest_of_its_files(asset: str, ran: Ran) -> None:
    for shard, metadata in ran.events(asset).items():
        folder, manifest = metadata["path"].value, metadata["manifest"].value
        said = json.loads(Path(str(manifest)).read_bytes())
        assert (said["asset"], said["partition"]) == (asset, shard)
        assert Path(str(manifest)).parent == Path(str(folder))


@pytest.mark.parametrize("asset", ASSETS)
def test_a_table_carries_the_lineage_of_its_columns_in_each_event(asset: str, ran: Ran) -> None:
    for metadata in ran.events(asset).values():
        assert ("dagster/column_lineage" in metadata) == (asset in TABLES)


def test_numbers_agree_with_each_other_and_with_the_files(ran: Ran) -> None:
    clusters, release = ran.numbers("dedup_clusters"), ran.numbers("shuffled_bins")
    cleaned = [ran.numbers("cleaned_documents", s) for s in SHARDS]
    verdicts = [ran.numbers("dedup_verdicts", s) for s in SHARDS]
    packed = [ran.numbers("packed_bins", s) for s in SHARDS]
    assert clusters["documents"] == sum(c["kept"] for c in cleaned)
    assert clusters["kept"] == sum(v["kept"] for v in verdicts) == release["documents"]
    assert clusters["copies"] == clusters["documents"] - clusters["kept"]
    assert clusters["validation"] == sum(v["validation"] for v in verdicts)
    assert release["tokens"] == sum(p["tokens"] for p in packed)
    for shard, found in zip(SHARDS, verdicts, strict=True):
        folder = str(ran.events("dedup_verdicts")[shard]["path"].value)
        kept = pq.read_table(Path(folder, "verdict.parquet"))["kept"].to_pylist()
        assert (found["documents"], found["kept"]) == (len(kept), kept.count(True))


def test_the_bytes_that_went_in_are_those_of_the_files_of_what_was_read(ran: Ran) -> None:
    source = ran.config.parent / "source"
    for shard in SHARDS:
        size = (source / f"crawl={shard}").stat().st_size
        assert ran.numbers("raw_shards", shard)["bytes_in"] == size
        assert ran.numbers("cleaned_documents", shard)["bytes_in"] == size
    signed = [ran.numbers("minhash_signatures", s)["bytes_out"] for s in SHARDS]
    assert ran.numbers("dedup_clusters")["bytes_in"] == sum(signed)


def test_windows_of_the_release_are_as_long_as_the_settings_say(ran: Ran) -> None:
    release = ran.numbers("shuffled_bins")
    windows = -(-release["train_tokens"] // 2048)  # the default of pack.sequence_length
    assert release["sequences"] == windows
    assert release["utilisation"] == pytest.approx(release["train_tokens"] / (windows * 2048))


def test_the_clusters_show_their_report_as_markdown(ran: Ran) -> None:
    shown = {n: v for n, v in ran.events("dedup_clusters")[None].items() if n.startswith("report/")}
    assert all(isinstance(v, dg.MarkdownMetadataValue) for v in shown.values())
    # Of the second crawl's 37 documents 10 are old ones as they were, 10 with one more sentence.
    assert "| 2026-44 | 37 | 10 | 10 | 17 (45.9%) | 100.0% |" in str(
        shown["report/copies_per_crawl"].value
    )
    assert str(shown["report/pairs"].value).startswith("**en**")


def test_speeds_are_work_by_the_seconds_of_the_stage(ran: Ran) -> None:
    packed = ran.numbers("packed_bins", SHARDS[0])
    assert packed["tokens_per_second"] * packed["stage_seconds"] == pytest.approx(packed["tokens"])
    cleaned = ran.numbers("cleaned_documents", SHARDS[0])
    megabytes = cleaned["mb_per_second"] * cleaned["stage_seconds"]
    assert megabytes == pytest.approx(cleaned["decompressed_bytes"] / 1e6)


def test_what_is_current_is_reported_again_with_the_same_numbers(ran: Ran) -> None:
    before = ran.events("packed_bins")[SHARDS[0]]
    assert ran.execute("pack_shard", SHARDS[0]).success
    assert ran.events("packed_bins")[SHARDS[0]] == before


def test_a_check_links_to_the_files_that_it_judged(ran: Ran) -> None:
    for asset, shard in (("cleaned_documents", SHARDS[1]), ("shuffled_bins", None)):
        found = [
            e
            for e in ran.first[JOB_OF[asset], shard].get_asset_check_evaluations()
            if e.asset_key == dg.AssetKey(asset)
        ]
        paths = {str(e.metadata["path"].value) for e in found}
        assert paths == {str(ran.events(asset)[shard]["path"].value)}


def test_a_refusal_links_to_the_files_that_it_refused(ran: Ran) -> None:
    folder = Path(str(ran.events("cleaned_documents")[SHARDS[0]]["path"].value))
    data = (folder / "documents.parquet").read_bytes()
    (folder / "documents.parquet").write_bytes(data[:-1])
    try:
        result = ran.execute("pack_shard", SHARDS[0])
    finally:
        (folder / "documents.parquet").write_bytes(data)
    assert not result.success
    (failure,) = [
        e.step_failure_data.user_failure_data
        for e in result.get_step_failure_events()
        if e.step_key == "packed_bins"
    ]
    assert failure is not None
    assert failure.metadata["gate"].value == "intact"
    assert failure.metadata["asset"].value == "cleaned_documents"
    assert failure.metadata["path"].value == str(folder)
    assert failure.metadata["manifest"].value == str(folder / "manifest.json")
