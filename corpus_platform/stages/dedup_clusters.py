"""dedup_clusters: decides over all shards which documents are kept, and why each other one is not.

One row per cleaned document, edges and other compared pairs beside it, and per shard a verdict file
of its own that is published only when (row, kept, split) of the shard changed. How pairs are found
and judged stands in `deciding`, how the tables are measured again in `clusters_audit`.
"""

import contextlib
import shutil
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.document import CLUSTERS
from corpus_platform.errors import StorageError
from corpus_platform.stages.cluster_report import write_report
from corpus_platform.stages.cluster_tables import cluster_tables, write_leaks, write_pairs
from corpus_platform.stages.clusters_audit import measure_clusters
from corpus_platform.stages.clusters_files import (
    CLUSTER_FILE,
    COMPARED_FILE,
    EDGE_FILE,
    LEAK_FILE,
    REPORT_FILE,
)
from corpus_platform.stages.deciding import Last, decide_documents
from corpus_platform.stages.dedup_verdicts import (
    find_verdict,
    latest_path,
    publish_verdict,
)
from corpus_platform.stages.document_traits import read_traits
from corpus_platform.stages.numbering import number_documents
from corpus_platform.stages.project import Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import TableWriter
from corpus_platform.stages.uncleared import Included, included_shards, left_out_inputs
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.pointer import move_pointer, points_to

__all__ = ["STAGE", "cluster_documents"]

ASSET, SIGNED = "dedup_clusters", "minhash_signatures"


def cluster_documents(project: Project, *, progress: Progress = quiet) -> Report:
    """Cluster all cleared shards and publish the verdicts; do nothing when that is done.

    Raises Uncleared (gate `uncleared`) when more shards are left out than the settings allow.
    """
    with project.making(ASSET, None) as making:
        included = included_shards(project)
        report = making.current()
        if report is None or not _complete_verdicts(project, report.artifact):
            with making.draft() as draft, _scratch(project) as scratch:
                products, ledger, effort = _decide(project, included, draft, scratch, progress)
                measured = {"excluded": included.reasons, "effort": effort}
                report = making.publish(draft, products, ledger=ledger, measured=measured)
        move_pointer(latest_path(project), _pointer(report.artifact))
    return report


@contextlib.contextmanager
def _scratch(project: Project) -> Generator[Path]:
    """Give an empty folder for what is not kept; the lease says that nobody else has it.

    Raises StorageError where files cannot be written or are gone.
    """
    scratch = project.store.root / "scratch" / ASSET
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
    scratch.mkdir(parents=True)
    try:
        yield scratch
    except OSError as error:  # numpy names no file where a disk is full
        raise StorageError(
            f"{ASSET}: {error}; it writes below {scratch}: make room there, let nothing else clear"
            " it, and run again"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _decide(
    project: Project, included: Included, draft: Path, scratch: Path, progress: Progress
) -> tuple[list[Product], Json, Json]:
    """Write all files; return them, the ledger, and what was read for it."""
    numbering = number_documents(project, included.shards)
    outcome = decide_documents(project, numbering, _last(project), scratch, progress=progress)
    verdicts = {}
    with TableWriter(draft / CLUSTER_FILE, CLUSTERS) as writer:
        for shard, table in cluster_tables(outcome):
            writer.write(table)
            verdicts[shard] = publish_verdict(project, shard, table)
        rows = writer.close()
    products = [
        Product(CLUSTER_FILE, rows=rows),
        Product(
            EDGE_FILE, rows=write_pairs(draft / EDGE_FILE, numbering, outcome.edges, edges=True)
        ),
        Product(
            COMPARED_FILE,
            rows=write_pairs(draft / COMPARED_FILE, numbering, outcome.compared, edges=False),
        ),
        Product(LEAK_FILE, rows=write_leaks(draft / LEAK_FILE, outcome)),
        Product(REPORT_FILE),
    ]
    write_report(draft / REPORT_FILE, project, outcome, read_traits(project, included.shards))
    ledger = {
        **outcome.counts,
        "shards": len(included.shards) + len(included.excluded),
        "excluded": included.excluded,
        "verdicts": verdicts,
    }
    return products, ledger, dict(outcome.effort)


def _last(project: Project) -> Last | None:
    """Return the clusters made last, whole and of this version, and what they were made of."""
    artifact = project.last_generation(ASSET, None)
    if artifact is None or project.store.damage(artifact):
        return None
    manifest = artifact.manifest
    if manifest.version != STAGE.version:
        return None
    begin = f"{SIGNED}["
    inputs = manifest.inputs.items()
    signers = {n.removeprefix(begin)[:-1]: c for n, c in inputs if n.startswith(begin)}
    return Last(artifact, signers, manifest.settings["dedup"]["verify"] == "exact")


def _complete_verdicts(project: Project, artifact: Artifact) -> bool:
    """Cut the verdicts that are missing from the stored table; return whether all are there then."""
    verdicts = artifact.manifest.ledger["verdicts"]
    missing = [s for s, key in verdicts.items() if find_verdict(project, s, key) is None]
    return all(
        publish_verdict(project, shard, _stored_rows(artifact, shard)) == verdicts[shard]
        for shard in missing
    )


def _stored_rows(artifact: Artifact, shard: str) -> pa.Table:
    return pq.read_table(artifact.path(CLUSTER_FILE), filters=[("shard", "==", shard)])


def _missing_verdict(project: Project, artifact: Artifact) -> str | None:
    """Return a shard whose verdict is not there or not whole, None where all are."""
    verdicts = artifact.manifest.ledger["verdicts"].items()
    return next((s for s, key in verdicts if find_verdict(project, s, key) is None), None)


def _pointer(artifact: Artifact) -> dict[str, str]:
    return {"key": artifact.entry.key}


def _unsettled(project: Project, artifact: Artifact) -> str | None:
    if not points_to(latest_path(project), _pointer(artifact)):
        return "other clusters were the last to count; its verdicts are to be put in force"
    shard = _missing_verdict(project, artifact)
    return None if shard is None else f"the verdict of {shard} is missing or damaged"


# Banding and permutations are of the signatures alone: they come with their content.
DECIDING = {
    *("exact", "shingle", "width", "scheme"),
    *("threshold", "verify", "bucket_cap", "keep", "priority", "prefer"),
}


def _settings(project: Project, _: str | None) -> Json:
    dedup, split = project.settings.dedup, project.settings.split
    return {
        "dedup": dedup.model_dump(mode="json", include=DECIDING),
        "split": split.model_dump(),
    }


def _inputs(project: Project, _: str | None) -> dict[str, str]:
    included = included_shards(project)
    signed = {f"{SIGNED}[{shard}]": project.content(SIGNED, shard) for shard in included.shards}
    return {**signed, **left_out_inputs(included.excluded)}


STAGE = Stage(
    asset=ASSET,
    version=2,
    per_shard=False,
    settings=_settings,
    inputs=_inputs,
    audit=measure_clusters,
    unsettled=_unsettled,
)
