"""How long `corpus ui` takes to a usable page, and what Dagster adds to the work of a backfill.

    python benchmarks/web_ui.py GLOB [MEGABYTES]

Takes the files of a glob with {crawl} in it as they are or, given MEGABYTES, makes eight shards of so much
text of them. Backfills the ingest of all through the web UI's API, two runs at a time as shipped,
and prints the share of the time that was spent inside stages: of the runs' own, and of two cores.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any  # values of JSON

import dagster as dg

from corpus_platform.config import SourceSettings
from corpus_platform.formats.records import Document
from corpus_platform.formats.shard import read_shard
from corpus_platform.storage.sources import discover
from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import write_shard

INGEST = ("raw_shards", "cleaned_documents", "minhash_signatures")
SHARDS = 8
MAX_RECORD_BYTES = 1 << 25
SELECTOR = {"repositoryLocationName": "corpus_platform", "repositoryName": "__repository__"}
LOADED = "{ repositoriesOrError { __typename } }"
BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""


def main() -> None:
    """Print how long the page took, then the shares."""
    folder = Path(tempfile.mkdtemp(prefix="bench-ui-"))
    try:
        _measure(folder, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, glob: str, megabytes: int) -> None:
    corpus = Corpus(folder)
    if megabytes:
        _write_shards(folder, glob, megabytes)
        glob = "source/{crawl}/*"
    source = {"glob": glob, "exclude": ["*.wet.gz"]}
    corpus.config.write_text(json.dumps({"sources": [source]}), encoding="utf-8")
    began = time.monotonic()
    ui = corpus.start("ui", "--port", "0")
    try:
        while (said := re.search(r"web UI: (http://\S+)", ui.printed())) is None:
            time.sleep(0.05)
        url = said[1]
        _ask(url, LOADED, {})
        print(f"{time.monotonic() - began:.1f} s from the command to a page with all definitions")
        _backfill(corpus, url)
    finally:
        ui.kill()


def _write_shards(folder: Path, glob: str, megabytes: int) -> None:
    texts = list(_texts(glob))
    for number in range(SHARDS):
        records, size, i = [], 0, number * len(texts) // SHARDS
        while size < megabytes * 1_000_000:
            text = texts[i % len(texts)]
            records.append({"id": f"{number}-{i}", "text": text})
            size, i = size + len(text.encode()), i + 1
        write_shard(folder / "source" / "2026-40" / f"{number:05d}.jsonl.zst", records)


def _texts(glob: str) -> Iterator[str]:
    settings = SourceSettings.model_validate({"glob": glob, "exclude": ["*.wet.gz"]})
    for shard in discover([settings], Path.cwd()):
        paths = [Path(member.location) for member in shard.members]
        for batch in read_shard(
            paths, shard.fields, shard=shard.key, max_record_bytes=MAX_RECORD_BYTES
        ):
            yield from (record.text for record in batch if isinstance(record, Document))


def _ask(url: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["data"]


def _backfill(corpus: Corpus, url: str) -> None:
    home = str(corpus.data / ".dagster")
    with dg.DagsterInstance.from_config(home) as instance:
        shards = instance.get_dynamic_partitions("shards")
        params = {
            "selector": {
                "repositorySelector": SELECTOR,
                "partitionSetName": "ingest_shard_partition_set",
            },
            "partitionNames": list(shards),
        }
        began = time.time()
        said = _ask(url, BACKFILL, {"params": params})["launchPartitionBackfill"]
        if "backfillId" not in said:
            raise SystemExit(f"the backfill was refused: {said}")
        while True:
            records = instance.get_run_records(dg.RunsFilter(job_name="ingest_shard"))
            if len(records) == len(shards) and all(r.dagster_run.is_finished for r in records):
                break
            time.sleep(0.5)
        wall = max(r.end_time or 0.0 for r in records) - began
        failed = [r for r in records if not r.dagster_run.is_success]
        stages, steps = _seconds(instance, records)
    lives = sum((r.end_time or 0.0) - r.create_timestamp.timestamp() for r in records)
    runs = sum((r.end_time or 0.0) - (r.start_time or 0.0) for r in records)
    print(f"{len(records)} runs, {len(failed)} failed, {wall:.1f} s from the click to the end")
    print(
        f"{stages:.1f} s in stages, {steps:.1f} s in steps, {runs:.1f} s in runs, {lives:.1f} s with queue"
    )
    print(f"{(runs - stages) / len(records):.1f} s of each run outside its stages")
    print(
        f"inside stages: {stages / runs:.0%} of the runs, {stages / wall / 2:.0%} of two cores' time"
    )
    # Dagster's daemon looks for backfills every 30 seconds, however many shards there are.
    span = wall + began - min(r.create_timestamp.timestamp() for r in records)
    print(
        f"{span:.1f} s from the first run's creation on: {stages / span / 2:.0%} of two cores' time"
    )
    print(f"({os.cpu_count()} cores)")


def _seconds(instance: dg.DagsterInstance, records: Sequence[dg.RunRecord]) -> tuple[float, float]:
    """Return the seconds that stages took, by their manifests, and that all steps took."""
    stages = 0.0
    for asset in INGEST:
        found = instance.fetch_materializations(dg.AssetKey(asset), limit=1000).records
        for record in found:
            made = record.asset_materialization
            value = made.metadata["stage_seconds"].value if made is not None else None
            stages += value if isinstance(value, float) else 0.0
    steps = 0.0
    for record in records:
        stats = instance.get_run_step_stats(record.dagster_run.run_id)
        steps += sum((s.end_time or 0.0) - (s.start_time or 0.0) for s in stats)
    return stages, steps


if __name__ == "__main__":
    main()
