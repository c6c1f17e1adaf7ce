"""Shards from other machines, by the real command: the same products as from a folder."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.hub_server import serve
from corpus_platform_tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

OLD, NEW = "crawl=2026-40", "crawl=2026-44"
S3_KEYS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}
QUICK = {"tries": 4, "first_wait_seconds": 0.01, "max_wait_seconds": 0.1}


def _take_away(corpus: Corpus, crawl: str) -> dict[str, bytes]:
    """Return the source files of a crawl by name, which are no longer on this machine then."""
    folder = corpus.folder / "source" / crawl
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for name in files:
        (folder / name).unlink()
    return files


def _put(weed: S3Server, prefix: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        weed.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)


def _listing(files: Mapping[str, bytes]) -> bytes:
    rows = [
        {"url": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return json.dumps({"crawl": "2026-44", "shards": rows}).encode()


def _objects(files: Mapping[str, bytes]) -> dict[str, Served]:
    """Return what a server has: the listing and the files of one crawl."""
    served = {f"/d/{name}": Served(data) for name, data in files.items()}
    return {"/d/shards.json": Served(_listing(files)), **served}


@pytest.mark.xdist_group("s3")
@pytest.mark.slow
def test_shards_of_s3_and_of_a_server_that_fails_make_what_shards_of_a_folder_make(
    fresh: Corpus, undisturbed: Corpus, weed: S3Server
) -> None:
    _put(weed, "e2e/" + OLD, _take_away(fresh, OLD))
    newer = _take_away(fresh, NEW)
    half = len(next(iter(newer.values()))) // 2
    troubles = [None, Twist(503, {"Retry-After": "0"}), Twist(cut=half), Twist(ignore_range=True)]
    with HttpServer(_objects(newer), *troubles) as server:
        fresh.set(
            sources=[
                {"glob": f"s3://{BUCKET}/e2e/crawl={{crawl}}/*"},
                {"listing": f"{server.url}/d/shards.json"},
            ],
            s3={"endpoint_url": weed.url},
            download=QUICK,
            run={"workers": 2},  # the others make it with one
        )
        ended, result = fresh.run(environment={**S3_KEYS, "PYTHONHASHSEED": "1"})
        assert server.twists == []  # every trouble was met
    assert ended.code == 0, ended.printed
    assert result["outcome"] == "complete"
    ours, theirs = fresh.products(), undisturbed.products()
    assert ours.keys() == theirs.keys()  # the id of the release among them
    differing = {name for name in ours if ours[name] != theirs[name]}
    release = f"releases/{result['release']['id']}"
    assert differing == {
        "releases/current.json",
        *(f"{release}/{name}" for name in ("manifest.json", "REPORT.md", "sources.json")),
    }
    here, there = (
        json.loads((c.data / release / "sources.json").read_bytes()) for c in (fresh, undisturbed)
    )
    places = {crawl: row.pop("location") for crawl, row in here["crawls"].items()}
    assert places == {
        "2026-40": f"s3://{BUCKET}/e2e/{OLD}/*",
        "2026-44": f"{server.url}/d/part-00000.parquet",
    }
    for row in there["crawls"].values():
        assert row.pop("location").startswith("source/crawl=")
    assert here == there  # a release says where its shards came from, and differs in nothing else
    manifest = json.loads((fresh.data / "source-manifest.json").read_bytes())
    row = manifest["shards"]["2026-40/part-00000.jsonl.zst"]
    assert row["members"][0]["source"] == f"s3://{BUCKET}/e2e/{OLD}/part-00000.jsonl.zst"
    assert (row["state"], row["verified"], row["verdict"]) == ("stored", "length", "cleared")
    assert manifest["shards"]["2026-44/part-00000.parquet"]["verified"] == "sha256"


@pytest.mark.slow
@pytest.mark.xdist_group("s3")
def test_a_wrong_key_blocks_without_a_traceback_and_without_the_key_in_any_file(
    fresh: Corpus, weed: S3Server
) -> None:
    _put(weed, "wrong/" + OLD, _take_away(fresh, OLD))
    sources = [{"glob": f"s3://{BUCKET}/wrong/crawl={{crawl}}/*"}]
    fresh.set(sources=sources, s3={"endpoint_url": weed.url}, download=QUICK)
    wrong = {**S3_KEYS, "AWS_SECRET_ACCESS_KEY": "not-the-right-one"}
    ended, _ = fresh.run(environment=wrong)
    assert ended.code == 3
    assert "SignatureDoesNotMatch" in ended.printed
    assert "AWS_SECRET_ACCESS_KEY" in ended.printed
    assert "Traceback" not in ended.printed
    told = [
        p for p in fresh.folder.rglob("*") if p.is_file() and b"not-the-right" in p.read_bytes()
    ]
    assert told == []


@pytest.mark.slow
def test_a_dataset_of_the_hub_becomes_a_release_and_a_new_commit_of_it_makes_nothing_due(
    fresh: Corpus, undisturbed: Corpus
) -> None:
    files = {f"data/{name}": data for name, data in _take_away(fresh, NEW).items()}
    _take_away(fresh, OLD)
    with serve(files, token="hf_secret") as hub:
        fresh.set(
            sources=[{"huggingface": "owner/data", "files": "data/*.parquet", "crawl": "hub"}],
            download=QUICK,
        )
        environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_secret"}
        ended, result = fresh.run(environment=environment)
        assert ended.code == 0, ended.printed
        hub.push({**files, "README.md": b"words"})
        again, _ = fresh.run(environment=environment)
    assert "nothing was due: everything is current" in again.printed
    down, about = fresh.run(environment=environment)
    assert (down.code, about["outcome"]) == (3, "failed")
    assert "failed: the sources cannot be listed: " in down.printed
    assert about["release"] == result["release"]  # what is stored is none the worse for it
    assert hub.tokens("cdn") == {None}
    documents = json.loads((undisturbed.folder / "result.json").read_bytes())["crawls"]["2026-44"]
    assert result["crawls"]["hub"]["documents"] == documents["documents"]


@pytest.mark.slow
def test_the_example_ends_well_and_finds_all_copies(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "demo.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all copies were found; one of each is kept" in ended.stdout
    assert '"verdict": "cleared"' in ended.stdout
