"""The tokenizer in force, told; and trained anew on the corpus as it is now, when somebody asks for it.

A new one is trained beside the one in force, and counts from the moment when all of it is there. The
old one stays, with all that was made by it: releases have their own copy.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from corpus_platform.errors import Busy
from corpus_platform.gates import Finding
from corpus_platform.stages.dedup_verdicts import latest_clusters
from corpus_platform.stages.project import Progress, Project, quiet
from corpus_platform.stages.tokenizer import (
    REPORT_FILE,
    TOKENIZER_FILE,
    count_training,
    frozen_folder,
    of_training,
    train_tokenizer,
    training_in_force,
)
from corpus_platform.storage import lease
from corpus_platform.storage.artifacts import Artifact

__all__ = ["InForce", "Language", "current_packs", "in_force", "retrain", "trained_on_this"]

ASSET, PACKS = "tokenizer", "packed_bins"


@dataclass(frozen=True)
class Language:
    """How far the documents of a language went when the tokenizer was examined."""

    documents: int
    chars_per_token: float
    bytes_per_token: float


@dataclass(frozen=True)
class InForce:
    """The tokenizer in force: where it is, what it was trained on, what its examination found."""

    artifact: Artifact
    training: int  # 0: the first one of its settings
    languages: Mapping[str, Language]
    trained_on: str  # content of the clusters
    is_of_now: bool  # the clusters are still those
    copy: str  # where the kept copy is
    findings: tuple[Finding, ...]  # of gates that fail or warn


def in_force(project: Project) -> InForce:
    """Return what is known of the tokenizer in force; raise Uncleared when there is none."""
    artifact = project.present(ASSET, None)
    report = json.loads(artifact.path(REPORT_FILE).read_bytes())
    findings = project.findings_of(ASSET, None, artifact)
    return InForce(
        artifact,
        training_in_force(project),
        {name: Language(**found) for name, found in report["fertility"].items()},
        artifact.manifest.measured["trained_on"],
        trained_on_this(project, artifact),
        str(frozen_folder(project, artifact.entry.key)),
        tuple(f for f in findings if not f.passed),
    )


def trained_on_this(project: Project, artifact: Artifact) -> bool:
    """Tell whether a tokenizer was trained on the clusters that count now."""
    return artifact.manifest.measured["trained_on"] == latest_clusters(project).content


def current_packs(project: Project) -> int:
    """Return how many shards are packed by the tokenizer in force."""
    with project.unchanging():
        return sum(project.artifact(PACKS, shard) is not None for shard in project.shards())


def retrain(project: Project, *, progress: Progress = quiet) -> Artifact | None:
    """Train a tokenizer on the corpus as it is now, and put it in force; return it.

    Returns None, and leaves the one in force as it is, where the same comes out. Raises Busy while
    a command runs, Uncleared when the corpus may not be read now.
    """
    who = lease.held_by(project.store.root / "leases" / "run.lease")
    if who is not None:
        raise Busy(f"the corpus is being worked on: {who}; nothing was trained, try again later")
    project.require("dedup_clusters", None)
    before = project.present(ASSET, None)
    number = training_in_force(project) + 1
    # One that is there was trained on another corpus, by a command that was killed or refused then.
    while _is_trained(project, number):
        number += 1
    made = train_tokenizer(_with_training(project, number), progress=progress)
    project.clear(ASSET, None, made.artifact)
    if made.artifact.hashes()[TOKENIZER_FILE] == before.hashes()[TOKENIZER_FILE]:
        return None
    count_training(project, number)
    return made.artifact


def _is_trained(project: Project, number: int) -> bool:
    key = _with_training(project, number).expected(ASSET, None).key
    there = project.store.find(ASSET, None, key) is not None
    return there or frozen_folder(project, key).exists()


def _with_training(project: Project, number: int) -> Project:
    """Return the same project, in which a certain training of the tokenizer is wanted."""
    return Project(project.settings, {**project.chain, ASSET: of_training(number)})
