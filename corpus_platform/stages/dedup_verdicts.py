"""dedup_verdicts: per shard the decisions of the last clusters run: (row, kept, split).

A verdict is published only when it changed, so a growing corpus makes no old pack due. Which
verdict counts is what the last complete clusters run says.
"""

import json
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from corpus_platform.document import VERDICTS
from corpus_platform.errors import Uncleared
from corpus_platform.stages.project import Project, Stage
from corpus_platform.stages.tables import write_table
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import file_sha256, text_sha256
from corpus_platform.storage.manifest import Json, Manifest, Output, generation_key, read_manifest
from corpus_platform.storage.pointer import read_pointer

__all__ = [
    "STAGE",
    "VERDICT_FILE",
    "find_verdict",
    "latest_clusters",
    "latest_path",
    "publish_verdict",
    "verdict_contents",
    "verdict_table",
    "verdicts_in_force",
]

ASSET, CLUSTERS = "dedup_verdicts", "dedup_clusters"
VERDICT_FILE = "verdict.parquet"
VERSION = 1


def verdict_table(shard_rows: pa.Table) -> pa.Table:
    """Return the verdict of one shard from its rows of the cluster table."""
    return shard_rows.select(VERDICTS.names).cast(VERDICTS)


def publish_verdict(project: Project, shard: str, shard_rows: pa.Table) -> str:
    """Publish the verdict of a shard's rows unless it is there; return its generation key."""
    table = verdict_table(shard_rows)
    inputs = {"cleaned_documents": project.content("cleaned_documents", shard)}
    settings = {"verdict": _digest(table)}
    key = generation_key(ASSET, shard, VERSION, settings, inputs)
    with project.store.lease(ASSET, shard):
        if find_verdict(project, shard, key) is None:
            with project.store.draft(ASSET, shard) as draft:
                rows = write_table(draft / VERDICT_FILE, table)
                path = draft / VERDICT_FILE
                output = Output(VERDICT_FILE, path.stat().st_size, file_sha256(path), rows=rows)
                manifest = Manifest(
                    ASSET, shard, VERSION, settings, inputs, (output,), {"documents": rows}, {}
                )
                project.store.publish(draft, manifest)
    return key


def find_verdict(project: Project, shard: str, key: str) -> Artifact | None:
    """Return a shard's verdict of a generation, None when it is not there or not whole."""
    found = project.store.find(ASSET, shard, key)
    return None if found is None or project.store.damage(found) else found


def _digest(table: pa.Table) -> str:
    """Return the hash of a verdict's values; Parquet bytes may differ between library versions."""
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return text_sha256(json.dumps(columns, sort_keys=True))


def latest_path(project: Project) -> Path:
    """Return the small file that names the last complete clusters run."""
    return project.store.folder(CLUSTERS, None) / "latest.json"


def latest_clusters(project: Project) -> Artifact:
    """Return the clusters artifact whose verdicts count; raise Uncleared when there is none."""
    return project.once("latest_clusters", lambda: _latest_clusters(project))


def _latest_clusters(project: Project) -> Artifact:
    key = read_pointer(latest_path(project)).get("key")
    artifact = project.store.find(CLUSTERS, None, key) if isinstance(key, str) else None
    if artifact is None:
        raise Uncleared(CLUSTERS, None, gate="current", reason="never made; `corpus run` makes it")
    return artifact


def verdicts_in_force(project: Project) -> dict[str, Artifact]:
    """Return each shard's verdict of the last clusters run; empty before the first."""
    try:
        verdicts = latest_clusters(project).manifest.ledger["verdicts"]
    except Uncleared:
        return {}
    found = {shard: project.store.find(ASSET, shard, key) for shard, key in verdicts.items()}
    return {shard: artifact for shard, artifact in found.items() if artifact is not None}


def verdict_contents(project: Project) -> dict[str, str]:
    """Return the content hash of each of them."""
    return {shard: found.content for shard, found in verdicts_in_force(project).items()}


@lru_cache(maxsize=2)
def _manifest(path: Path, mtime_ns: int) -> Manifest:
    del mtime_ns  # part of the cache's key
    return read_manifest(path)


def _recorded(project: Project, shard: str | None) -> str:
    """Return the generation of the verdict that counts for a shard.

    Raises Uncleared when the clusters are stale for it: other settings, or other signatures.
    """
    artifact = latest_clusters(project)
    path = artifact.manifest_path
    manifest = _manifest(path, path.stat().st_mtime_ns)
    stage = project.chain[CLUSTERS]
    signatures = f"minhash_signatures[{shard}]"
    if shard in manifest.ledger["excluded"]:
        why = manifest.measured.get("excluded", {}).get(shard, "it was not cleared")
        reason = f"the clusters leave {shard} out: {why}"
    elif manifest.version != stage.version or manifest.settings != stage.settings(project, None):
        reason = "the clusters are stale: settings changed; materialize them first"
    elif manifest.inputs.get(signatures) != project.content("minhash_signatures", shard):
        reason = f"the clusters are stale: {signatures} is new or changed; materialize them first"
    else:
        project.clear(CLUSTERS, None, artifact)
        return _there(project, shard, manifest.ledger["verdicts"][shard])
    raise Uncleared(CLUSTERS, None, gate="current", reason=reason)


def _there(project: Project, shard: str | None, key: str) -> str:
    if project.store.find(ASSET, shard, key) is None:
        raise Uncleared(
            ASSET,
            shard,
            gate="current",
            reason="its verdict is missing; materialize dedup_clusters",
        )
    return key


def _nothing(project: Project, shard: str | None) -> Json:
    del project, shard  # the clusters chose its generation
    return {}


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    del project, shard, folder, ledger  # the clusters' audit compares every verdict with the table
    return {}


STAGE = Stage(
    asset=ASSET,
    version=VERSION,
    per_shard=True,
    settings=_nothing,
    inputs=_nothing,
    audit=_audit,
    recorded=_recorded,
)
