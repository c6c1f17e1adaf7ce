"""A corpus of many shards, all of whose artifacts are there: one shard really made, the others in its image.

Planning looks at generations, stamps and numbers, not into files; so each further shard has the
files and numbers of the first under its own keys. Nothing here is text that anybody should train on.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dedup_verdicts import latest_path
from corpus_platform.stages.project import Project
from corpus_platform.storage.artifacts import Artifact, file_stamps
from corpus_platform.storage.manifest import Manifest, generation_key
from corpus_platform.storage.pointer import move_pointer
from corpus_platform_tests.small import documents, register, run_chain, write_shard

__all__ = ["write_many_shards"]

SETTINGS = """\
storage: data
sources: [{glob: "source/{crawl}/*"}]
tokenizer: {vocab_size: 300, sample_bytes: 20000}
run: {workers: 1}
"""
CRAWL = "2026-40"


def write_many_shards(folder: Path, count: int) -> Path:
    """Write sources, artifacts and a release of `count` shards; return the path of corpus.yaml."""
    folder.mkdir(parents=True)
    config = folder / "corpus.yaml"
    config.write_text(SETTINGS, encoding="utf-8")
    write_shard(folder / "source" / CRAWL / "00000.jsonl", documents()[:20])
    project = open_project(load_settings(config))
    run_chain(project)
    model, *others = _add_shards(project, folder / "source" / CRAWL, count)
    for asset in ("raw_shards", "cleaned_documents", "minhash_signatures"):
        image = _artifact(project, asset, model)
        for shard in others:
            _copy(project, image, shard)
    _cluster(project, model, others)
    image = _artifact(project, "packed_bins", model)
    for shard in others:
        _copy(project, image, shard)
    _release(project, [model, *others])
    return config


def _add_shards(project: Project, folder: Path, count: int) -> list[str]:
    first = folder / "00000.jsonl"
    for number in range(1, count):
        shutil.copy(first, folder / f"{number:05d}.jsonl")
    return register(project)


def _artifact(project: Project, asset: str, shard: str | None) -> Artifact:
    found = project.artifact(asset, shard)
    assert found is not None, (asset, shard)
    return found


def _copy(project: Project, image: Artifact, shard: str) -> None:
    """Publish the files of an artifact as those of another shard."""
    asset = image.manifest.asset
    wanted = project.expected(asset, shard)
    ledger = dict(image.manifest.ledger)
    if asset == "raw_shards":
        member = Path(project.shard(shard).members[0].location)
        ledger["members"] = [{**ledger["members"][0], "name": member.name}]
    names = [member["name"] for member in ledger.get("members", [])]
    outputs = image.manifest.outputs
    if names:
        outputs = (replace(outputs[0], name=names[0]),)
    manifest = replace(
        image.manifest,
        partition=shard,
        settings=wanted.settings,
        inputs=wanted.inputs,
        ledger=ledger,
        outputs=outputs,
    )
    _publish(project, image, manifest)


def _publish(project: Project, image: Artifact, manifest: Manifest) -> Artifact:
    with project.store.draft(manifest.asset, manifest.partition) as draft:
        for old, new in zip(image.manifest.outputs, manifest.outputs, strict=True):
            shutil.copy2(image.path(old.name), draft / new.name)
        seen = file_stamps(draft, [output.name for output in manifest.outputs])
        return project.store.publish(draft, manifest, seen=seen)


def _cluster(project: Project, model: str, others: list[str]) -> None:
    """Publish a verdict for each shard, and clusters over all of them that name these."""
    old = _artifact(project, "dedup_verdicts", model)
    image = project.last_generation("dedup_clusters", None)
    assert image is not None
    verdicts = {model: old.manifest.key}
    for shard in others:
        inputs = {"cleaned_documents": project.content("cleaned_documents", shard)}
        one = replace(old.manifest, partition=shard, inputs=inputs)
        _publish(project, old, one)
        verdicts[shard] = generation_key(
            "dedup_verdicts", shard, one.version, one.settings, one.inputs
        )
    wanted = project.expected("dedup_clusters", None)
    ledger = {**image.manifest.ledger, "verdicts": verdicts}
    manifest = replace(
        image.manifest, settings=wanted.settings, inputs=wanted.inputs, ledger=ledger
    )
    made = _publish(project, image, manifest)
    move_pointer(latest_path(project), {"key": made.manifest.key})


def _release(project: Project, shards: list[str]) -> None:
    image = project.last_generation("shuffled_bins", None)
    assert image is not None
    wanted = project.expected("shuffled_bins", None)
    ledger = {**image.manifest.ledger, "shards": shards}
    manifest = replace(
        image.manifest, settings=wanted.settings, inputs=wanted.inputs, ledger=ledger
    )
    made = _publish(project, image, manifest)
    current = project.store.folder("shuffled_bins", None) / "current.json"
    move_pointer(current, {"id": made.folder.name, "content": made.content})
