"""Tests of the source manifest: every shard in it, the same bytes everywhere, and no secret or path."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpus_platform.errors import DamagedShard, StorageError, Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.source_manifest import (
    differs_from_file,
    read_source_manifest,
    source_manifest,
    source_manifest_path,
    write_source_manifest,
)
from corpus_platform.stages.verifying import verify_all
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.small import register

LINE = b'{"id": "1", "text": "a line of text"}\n'
SHA256 = hashlib.sha256(LINE).hexdigest()


def _local(folder: Path, **files: bytes) -> Project:
    """Return a project of files of one crawl, registered."""
    (folder / "in/c").mkdir(parents=True)
    for name, data in files.items():
        (folder / f"in/c/{name}").write_bytes(data)
    (folder / "corpus.yaml").write_text("sources: [{glob: 'in/{crawl}/*'}]")
    project = open_project(load_settings(folder / "corpus.yaml"))
    register(project)
    return project


def _rows(project: Project) -> dict[str, Any]:
    write_source_manifest(open_project(project.settings))
    return json.loads(source_manifest_path(project).read_bytes())["shards"]


def test_a_planned_shard_is_in_it_with_what_its_listing_states(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(
        json.dumps([{"url": "https://h/a?sig=5ec2e7", "sha256": SHA256, "bytes": 38}])
    )
    (tmp_path / "corpus.yaml").write_text("sources: [{listing: list.json, crawl: c}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    project.registry.register(list_shards(project))
    assert _rows(project) == {
        "c/a": {
            "state": "planned",
            "members": [{"source": "https://h/a", "bytes": 38, "sha256": SHA256}],
        }
    }


def test_a_stored_shard_has_bytes_hashes_counts_and_a_verdict(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE)
    fetch_shard(project, "c/a")
    row = {
        "bytes": 38,
        "members": [{"bytes": 38, "name": "a", "sha256": SHA256, "source": "in/c/a"}],
        "state": "stored",
        "verified": "length",
    }
    assert _rows(project) == {"c/a": {**row, "verdict": "not read yet"}}
    clean_documents(project, "c/a")
    counts = {"documents": 1, "kept": 0, "lines": 1, "quarantined": 0, "decompressed_bytes": 38}
    assert _rows(project) == {"c/a": {**row, "verdict": "cleared", **counts}}


def test_a_shard_that_a_gate_stopped_says_which(tmp_path: Path) -> None:
    project = _local(tmp_path, a=b"\x1f\x8b broken")
    fetch_shard(project, "c/a")
    with pytest.raises(DamagedShard):
        clean_documents(project, "c/a")
    assert _rows(project)["c/a"]["verdict"] == "refused: cleaned_documents: readable"


def test_a_shard_that_could_not_be_fetched_has_the_reason(tmp_path: Path) -> None:
    with HttpServer({"/list": Served(b"gone\nchunked"), "/chunked": Served(LINE)}) as server:
        (tmp_path / "corpus.yaml").write_text(
            f"sources: [{{listing: '{server.url}/list', crawl: c}}]"
        )
        project = open_project(load_settings(tmp_path / "corpus.yaml"))
        project.registry.register(list_shards(project))
        with pytest.raises(Uncleared):
            fetch_shard(project, "c/gone")
        server.twists = [Twist(chunked=True)]
        fetch_shard(project, "c/chunked")
        rows = _rows(project)
    assert rows["c/gone"] == {
        "members": [{"source": f"{server.url}/gone"}],
        "reason": f"raw_shards[c/gone]: source_present: {server.url}/gone: HTTP 404 (there is no"
        " such file)",
        "state": "failed",
    }
    assert rows["c/chunked"]["verified"] == "nothing"


def test_it_has_the_same_bytes_wherever_the_same_sources_were_read(tmp_path: Path) -> None:
    found = []
    for place in (tmp_path / "one", tmp_path / "other/deep"):
        project = _local(place, a=LINE, b=LINE * 2, gone=LINE)
        (place / "in/c/gone").unlink()
        for shard in ("c/a", "c/b", "c/gone"):
            try:
                fetch_shard(project, shard)
            except Uncleared:
                assert shard == "c/gone"
        clean_documents(project, "c/a")
        _rows(project)
        found.append(source_manifest_path(project).read_bytes())
    assert found[0] == found[1]
    assert str(tmp_path).encode() not in found[0]
    assert b"source_present: in/c/gone is not there any more" in found[0]


def test_a_shard_of_a_bundle_has_all_its_members(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE, b=LINE * 2)
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'in/{crawl}/*', bundle_bytes: 1000}]")
    shutil.rmtree(tmp_path / "data")
    project = open_project(load_settings(config))
    register(project)
    fetch_shard(project, "c/a%+1")
    row = _rows(project)["c/a%+1"]
    told = [(m["name"], m["source"], m["bytes"]) for m in row["members"]]
    assert told == [("00000-a", "in/c/a", 38), ("00001-b", "in/c/b", 76)]
    assert row["bytes"] == 114


def test_it_is_written_where_it_changed_and_not_else(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE)
    first = write_source_manifest(project)
    path = source_manifest_path(project)
    before = path.stat().st_mtime_ns
    os.utime(path, ns=(5, 5))
    assert write_source_manifest(project).sha256 == first.sha256
    assert (path.stat().st_mtime_ns, before > 5) == (5, True)
    fetch_shard(project, "c/a")
    assert write_source_manifest(open_project(project.settings)).sha256 != first.sha256
    assert path.stat().st_mtime_ns != 5


def test_its_own_hash_is_that_of_what_it_says(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE)
    told = json.dumps(
        {"format": 1, "shards": {"c/a": {"members": [{"source": "in/c/a"}], "state": "planned"}}},
        sort_keys=True,
        separators=(",", ":"),
    )
    expected = hashlib.sha256(told.encode()).hexdigest()
    assert write_source_manifest(project).sha256 == expected
    whole = json.loads(source_manifest_path(project).read_bytes())
    assert (whole["sha256"], whole["format"]) == (expected, 1)
    assert read_source_manifest(source_manifest_path(project)).sha256 == expected


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"planned"', b'"stored"', "its sha256 is"),
        (b'"format": 1', b'"format": 2', "of format 2"),
        (b"{", b"[", "not a source manifest"),
        (b"{", b"[" * 100_000, "not a source manifest: RecursionError"),
        (b"planned", b"\xff", "not a source manifest"),
        (b'"sha256"', b'"other"', "not a source manifest: KeyError"),
    ],
)
def test_one_that_was_changed_is_noticed_by_its_reader_and_by_verify(
    tmp_path: Path, old: bytes, new: bytes, words: str
) -> None:
    project = _local(tmp_path, a=LINE)
    manifest, path = write_source_manifest(project), source_manifest_path(project)
    assert differs_from_file(project, manifest) is None
    assert verify_all(project, progress=lambda done, total: None)[1] == []
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(StorageError, match=words):
        read_source_manifest(path)
    assert words in (differs_from_file(project, manifest) or "")
    (fault,) = verify_all(project, progress=lambda done, total: None)[1]
    assert (fault.asset, fault.partition) == ("raw_shards", None)
    assert words in fault.reason
    write_source_manifest(project)
    assert differs_from_file(project, manifest) is None


def test_one_that_is_older_than_what_is_stored_differs(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE)
    assert "there is none" in (differs_from_file(project, source_manifest(project)) or "")
    write_source_manifest(project)
    fetch_shard(project, "c/a")
    now = source_manifest(open_project(project.settings))
    assert f"that of what is stored is {now.sha256}" in (differs_from_file(project, now) or "")


def test_names_that_are_not_utf8_are_told_with_escapes(tmp_path: Path) -> None:
    project = _local(tmp_path, a=LINE)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/c/\xff")).write_bytes(LINE)
    register(project)
    assert _rows(project)["c/%FF"]["members"] == [{"source": "in/c/\\udcff"}]
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/c/\xff")).unlink()
    with pytest.raises(Uncleared):
        fetch_shard(project, "c/%FF")
    assert "in/c/\\udcff is not there" in _rows(project)["c/%FF"]["reason"]
