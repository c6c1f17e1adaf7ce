"""Files that are damaged or gone: noticed, and made again to the same bytes or blocked."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import SHARDS

SHARD = SHARDS[0]
SOURCE = "source/crawl=2026-40/part-00000.jsonl.zst"
# One output of every asset.
OUTPUTS = {
    "raw_shards": f"raw_shards/{SHARD}/*/part-00000.jsonl.zst",
    "cleaned_documents": f"cleaned_documents/{SHARD}/*/documents.parquet",
    "minhash_signatures": f"minhash_signatures/{SHARD}/*/signatures.parquet",
    "dedup_clusters": "dedup_clusters/*/clusters.parquet",
    "dedup_verdicts": f"dedup_verdicts/{SHARD}/*/verdict.parquet",
    "tokenizer": "tokenizer/*/tokenizer.json",
    "packed_bins": f"packed_bins/{SHARD}/*/train.bin",
    "shuffled_bins": "releases/*/train-00000.bin",
}
POINTERS = ("dedup_clusters/latest.json", "releases/current.json")


def flip(path: Path, *, keep_time: bool = False) -> None:
    """Change one byte in the middle of a file, and its time unless that is to be kept."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    late = 0 if keep_time else 1_000_000_000
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + late))


def sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_repairs(corpus: Corpus, before: dict[str, str]) -> None:
    """Run, and hold everything against what was there before."""
    ended, result = corpus.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert corpus.products() == before
    assert corpus.unwitnessed() == []
    assert corpus.leftovers() == []
    assert corpus.plan() == []


def verify(corpus: Corpus) -> dict[tuple[str, str], str]:
    """Return what `corpus verify` finds by asset and partition, and see that its code fits it."""
    ended = corpus.do("verify")
    found = re.findall(r"^(\w+)(?:\[(.+?)\])?: (.*)$", ended.printed, re.MULTILINE)
    faults = {(asset, shard): reason for asset, shard, reason in found if asset in OUTPUTS}
    assert ended.code == (1 if faults else 0), ended.printed
    return faults


# Source files


def test_a_flipped_byte_in_an_ingested_source_blocks_its_shard_and_the_release_stays(
    made: Corpus,
) -> None:
    before, source = made.products(), made.folder / SOURCE
    recorded = sha256(source)
    flip(source)

    ended, result = made.run()
    assert ended.code == 1, ended.printed
    blocked = {(b["asset"], b["partition"]): b for b in result["blocked"]}
    entry = blocked["raw_shards", SHARD]
    assert entry["gate"] == "source_unchanged"
    assert recorded in entry["reason"]
    assert sha256(source) in entry["reason"]
    assert f"corpus lock --accept {SHARD}" in entry["reason"]
    assert blocked["dedup_clusters", None]["gate"] == "uncleared"  # one of three is too much
    assert made.products() == before


@pytest.mark.slow
def test_other_bytes_of_a_source_are_a_new_generation_when_they_are_accepted(made: Corpus) -> None:
    before = made.products()
    with (made.folder / SOURCE).open("ab") as file:
        file.write(bytes.fromhex("502a4d180400000000000000"))  # an empty skippable frame
    ended, _ = made.run()
    assert ended.code == 1, ended.printed
    accepted = made.do("lock", "--accept", SHARD)
    assert accepted.code == 0, accepted.printed
    ended, result = made.run()
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    assert len(made.generations("raw_shards", SHARD)) == 2
    changed = {name for name, value in before.items() if made.products()[name] != value}
    assert changed <= set(POINTERS)  # old generations stay as they are


@pytest.mark.slow
def test_other_shards_go_on_when_one_is_blocked_and_the_release_stays(made: Corpus) -> None:
    current = (made.data / "releases/current.json").read_bytes()
    flip(made.folder / SOURCE)
    new = made.folder / "source/crawl=2026-44/part-00001.jsonl.gz"
    shutil.copy(made.folder / "source/crawl=2026-40/part-00001.jsonl.gz", new)
    made.set(checks={"max_uncleared_share": 0.3})

    ended, result = made.run()
    assert ended.code == 1, ended.printed
    assert {(b["asset"], b["gate"]) for b in result["blocked"]} == {
        ("raw_shards", "source_unchanged"),
        ("shuffled_bins", "whole"),
    }
    assert len(made.generations("cleaned_documents", "2026-44/part-00001.jsonl.gz")) == 1
    assert len(made.generations("releases")) == 2
    assert (made.data / "releases/current.json").read_bytes() == current
    assert result["release"]["id"] in current.decode()


def test_a_flip_in_a_source_that_keeps_its_time_is_found_by_verify_and_blocks_from_then_on(
    made: Corpus,
) -> None:
    source = made.folder / SOURCE
    recorded = sha256(source)
    flip(source, keep_time=True)
    faults = verify(made)
    assert list(faults) == [("raw_shards", SHARD)]
    assert recorded in faults["raw_shards", SHARD]
    assert sha256(source) in faults["raw_shards", SHARD]
    ended, result = made.run()
    assert ended.code == 1
    assert ("raw_shards", SHARD) in {(b["asset"], b["partition"]) for b in result["blocked"]}


@pytest.mark.parametrize("gone", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_stored_copy_that_no_source_can_repair_blocks_its_shard(
    made: Corpus, *, gone: bool
) -> None:
    before = made.products()
    flip(made.output(OUTPUTS["raw_shards"]))
    if gone:
        (made.folder / SOURCE).unlink()
    else:
        flip(made.folder / SOURCE)
    ended, result = made.run()
    assert ended.code == 1, ended.printed
    gates = {(b["asset"], b["partition"]): b["gate"] for b in result["blocked"]}
    assert gates["raw_shards", SHARD] == ("source_present" if gone else "source_unchanged")
    damaged = {n for n, v in made.products().items() if before[n] != v}
    assert damaged == {str(made.output(OUTPUTS["raw_shards"]).relative_to(made.data))}


@pytest.mark.slow
def test_a_source_that_is_gone_is_not_needed_where_a_whole_copy_is_stored(made: Corpus) -> None:
    (made.folder / SOURCE).unlink()
    before = made.products()
    flip(made.output(OUTPUTS["cleaned_documents"]))
    run_repairs(made, before)


# Files of artifacts


def _alter_unseen(made: Corpus) -> None:
    """Flip a byte of each asset and alter a manifest; their sizes and times stay."""
    for pattern in OUTPUTS.values():
        flip(made.output(pattern), keep_time=True)
    manifest = made.output(f"packed_bins/{SHARDS[1]}/*/manifest.json")
    status, text = manifest.stat(), manifest.read_text(encoding="utf-8")
    recorded = sha256(manifest.with_name("train.bin"))
    assert recorded in text
    manifest.write_text(text.replace(recorded, "0" * 64), encoding="utf-8")
    os.utime(manifest, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_what_hides_behind_size_and_time_is_found_by_verify(made: Corpus) -> None:
    before = made.products()
    _alter_unseen(made)
    faults = verify(made)
    assert len(faults) == len(OUTPUTS) + 1
    for asset, pattern in OUTPUTS.items():
        fault = faults[asset, SHARD if f"/{SHARD}/" in pattern else ""]
        assert before[str(made.output(pattern).relative_to(made.data))] in fault
        assert sha256(made.output(pattern)) in fault
    assert "its content hash does not fit" in faults["packed_bins", SHARDS[1]]


@pytest.mark.slow
def test_what_verify_has_found_is_repaired_by_run(made: Corpus) -> None:
    before = made.products()
    _alter_unseen(made)
    assert verify(made)
    run_repairs(made, before)


def test_a_pack_that_is_gone_and_one_in_which_verify_found_a_flip_are_made_again(
    made: Corpus,
) -> None:
    before = made.products()
    folder_gone(made.output(OUTPUTS["packed_bins"]))
    flip(made.output(f"packed_bins/{SHARDS[1]}/*/train.bin"), keep_time=True)
    packs = [("packed_bins", SHARD), ("packed_bins", SHARDS[1])]
    assert packs[1] in verify(made)
    due = [(entry["asset"], entry["partition"]) for entry in made.plan()]
    assert due == [*packs, ("shuffled_bins", None)]  # a release of the same id
    run_repairs(made, before)


@pytest.mark.slow
def test_files_manifests_folders_catalog_and_pointers_that_are_gone_are_made_again(
    made: Corpus,
) -> None:
    before = made.products()
    made.output(OUTPUTS["raw_shards"]).unlink()
    made.output(OUTPUTS["cleaned_documents"]).with_name("manifest.json").unlink()
    shutil.rmtree(made.output(OUTPUTS["minhash_signatures"]).parent)
    made.output(OUTPUTS["dedup_verdicts"]).unlink()
    made.output(OUTPUTS["tokenizer"]).with_name("manifest.json").unlink()
    shutil.rmtree(made.output(OUTPUTS["packed_bins"]).parent)
    made.output(OUTPUTS["shuffled_bins"]).unlink()
    shutil.rmtree(made.data / "catalog")
    for name in POINTERS:
        (made.data / name).unlink()
    run_repairs(made, before)


def file_gone(path: Path) -> None:
    path.unlink()


def manifest_gone(path: Path) -> None:
    path.with_name("manifest.json").unlink()


def manifest_alone(path: Path) -> None:
    for file in path.parent.iterdir():
        if file.name != "manifest.json":
            file.unlink()


def folder_gone(path: Path) -> None:
    shutil.rmtree(path.parent)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def manifest_cut(path: Path) -> None:
    cut(path.with_name("manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("asset", OUTPUTS)
@pytest.mark.parametrize(
    "harm", [flip, file_gone, manifest_gone, manifest_alone, folder_gone, cut, manifest_cut]
)
def test_any_harm_to_any_artifact_is_noticed_by_run_and_repaired(
    made: Corpus, asset: str, harm: Callable[[Path], None]
) -> None:
    before = made.products()
    harm(made.output(OUTPUTS[asset]))
    assert made.plan() != []
    run_repairs(made, before)


@pytest.mark.slow
@pytest.mark.parametrize("asset", OUTPUTS)
def test_a_flip_that_keeps_its_time_is_found_by_verify(made: Corpus, asset: str) -> None:
    before = made.products()
    flip(made.output(OUTPUTS[asset]), keep_time=True)
    assert [found for found, _ in verify(made)] == [asset]
    run_repairs(made, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["catalog", *POINTERS, "leases", "registry.json"])
def test_what_only_remembers_or_points_can_be_removed(made: Corpus, name: str) -> None:
    before, path = made.products(), made.data / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    run_repairs(made, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["catalog/*", "dedup_clusters/latest.json", "releases/current.json"]
)
def test_what_only_remembers_or_points_can_be_cut(made: Corpus, name: str) -> None:
    before = made.products()
    for path in made.data.glob(name):
        cut(path)
    run_repairs(made, before)
