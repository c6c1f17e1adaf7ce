"""Tests of the commands about sources: fetch, inspect, lock and verify --locked, by their exit codes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.small import write_small_corpus
from corpus_platform_tests.storage.fetching import BIG, OBJECT, OBJECT_SHA256, OTHER, OTHER_SHA256

NAMES = ("a", "b", "d")


def _corpus(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Traceback" not in result.output
    return result


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORPUS_CONFIG", raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    """A server of three shards, and a corpus of its listing."""
    objects = {f"/{name}": Served(OBJECT) for name in NAMES}
    with HttpServer({**objects, "/list": Served("\n".join(NAMES).encode())}) as server:
        _configure(tmp_path, server)
        yield server


def _configure(folder: Path, server: HttpServer, more: str = "") -> None:
    (folder / "corpus.yaml").write_text(
        f"sources: [{{listing: '{server.url}/list', crawl: c}}]\n"
        f"download: {{tries: 2, first_wait_seconds: 0.001, timeout_seconds: 30}}\n{more}\n"
    )


def _stored(folder: Path) -> list[str]:
    project = open_project(load_settings(folder / "corpus.yaml"))
    return [key for key in project.shards() if project.artifact("raw_shards", key) is not None]


def test_fetch_brings_all_once_and_says_what_came(tmp_path: Path, server: HttpServer) -> None:
    result = _corpus("fetch")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert sorted(re.sub(r"\d/3 ", "", line) for line in lines[:3]) == [
        f"  c/{name}: 1.0 kB, 1.0 kB transferred; verified by length" for name in NAMES
    ]
    assert lines[3] == "3 shards fetched; 0 were there before"
    manifest = json.loads((tmp_path / "data/source-manifest.json").read_bytes())
    assert lines[4] == f"{tmp_path}/data/source-manifest.json: sha256 {manifest['sha256']}"
    assert {row["state"] for row in manifest["shards"].values()} == {"stored"}
    server.sent = 0
    assert "0 shards fetched; 3 were there before" in _corpus("fetch").output
    assert server.sent == len(b"a\nb\nd")


def test_fetch_counts_only_what_is_there(tmp_path: Path, server: HttpServer) -> None:
    assert "1 shards fetched; 0 were there before" in _corpus("fetch", "c/b").output
    assert "1 shards fetched; 1 were there before" in _corpus("fetch", "--limit", "1").output
    assert _stored(tmp_path) == ["c/a", "c/b"]
    assert "1 shards fetched; 2 were there before" in _corpus("fetch", "--jobs", "1").output


def test_planned_shards_are_in_the_source_manifest_before_they_come(
    tmp_path: Path, server: HttpServer
) -> None:
    server.objects["/b"] = Twist(503)
    result = _corpus("fetch", "c/b")
    assert result.exit_code == 3
    assert "c/b: not fetched: " in result.output
    assert "HTTP 503; given up after 2 tries" in result.output
    (row,) = json.loads((tmp_path / "data/source-manifest.json").read_bytes())["shards"].values()
    assert (row["state"], "HTTP 503" in row["reason"]) == ("failed", True)


def test_a_refused_shard_ends_with_1_and_the_others_come(
    tmp_path: Path, server: HttpServer
) -> None:
    server.objects["/list"] = Served(f"a\n{OTHER_SHA256}  b\nd".replace("a\n", f"{OBJECT_SHA256}  a\n").replace("\nd", f"\n{OBJECT_SHA256}  d").encode())  # fmt: skip
    del server.objects["/a"]
    result = _corpus("fetch")
    assert result.exit_code == 1
    assert f"source_present: {server.url}/a: HTTP 404" in result.output
    assert OBJECT_SHA256 in result.output
    assert OTHER_SHA256 in result.output
    assert "1 shards fetched, 2 not; 0 were there before" in result.output
    assert _stored(tmp_path) == ["c/d"]
    server.objects["/d"] = Twist(503)
    shutil.rmtree(tmp_path / "data")
    assert _corpus("fetch").exit_code == 3  # a failed machine wins


def test_fetch_of_nothing_there_is_wrong_usage(server: HttpServer) -> None:
    result = _corpus("fetch", "c/x")
    assert result.exit_code == 2
    assert "error: shard 'c/x' is neither listed by the sources nor registered" in result.output
    for arguments in (["--limit", "0"], ["--jobs", "0"], ["--jobs", "65"]):
        assert _corpus("fetch", *arguments).exit_code == 2


def test_resume_only_begins_nothing_and_ends_with_1(tmp_path: Path, server: HttpServer) -> None:
    server.twists = [None, Twist(cut=500), Twist(503)]
    assert _corpus("fetch", "c/a").exit_code == 3
    server.sent = 0
    result = _corpus("fetch", "--resume-only")
    assert result.exit_code == 1
    assert f"nothing of {server.url}/b is here to go on with" in result.output
    assert _stored(tmp_path) == ["c/a"]
    assert server.sent == 500 + len(b"a\nb\nd")


def test_a_cache_serves_an_empty_storage(tmp_path: Path, server: HttpServer) -> None:
    assert _corpus("fetch", "--cache-dir", "cache").exit_code == 0
    first = (tmp_path / "data/source-manifest.json").read_bytes()
    shutil.rmtree(tmp_path / "data")
    server.sent = 0
    result = _corpus("fetch", "--cache-dir", "cache")
    assert result.exit_code == 0
    assert result.output.count("0 bytes transferred") == 3
    assert server.sent == len(b"a\nb\nd")
    assert (tmp_path / "data/source-manifest.json").read_bytes() == first
    cached = sorted((tmp_path / "cache").glob("*.file"))
    cached[0].write_bytes(OTHER)
    shutil.rmtree(tmp_path / "data")
    server.sent = 0
    assert _corpus("fetch", "--cache-dir", "cache").exit_code == 0
    assert server.sent == 1000 + len(b"a\nb\nd")


def test_a_shard_that_is_listed_otherwise_now_is_refused_until_accepted(
    tmp_path: Path, server: HttpServer
) -> None:
    assert _corpus("fetch", "c/a").exit_code == 0
    server.objects["/a"] = Served(OTHER, '"v2"')
    server.objects["/list"] = Served(f"{OTHER_SHA256}  a".encode())
    result = _corpus("fetch")
    assert result.exit_code == 1
    assert "source_unchanged" in result.output
    assert _corpus("lock", "--accept", "c/a").exit_code == 0
    result = _corpus("fetch")
    assert (result.exit_code, "verified by sha256" in result.output) == (0, True)


def test_verify_locked_compares_both_ways(tmp_path: Path, server: HttpServer) -> None:
    result = _corpus("verify", "--locked")
    assert result.exit_code == 2
    assert "there is no lock to verify against; write it with: corpus lock" in result.output
    assert _corpus("fetch", "c/a", "c/b").exit_code == 0
    assert _corpus("lock").exit_code == 0
    result = _corpus("verify", "--locked")
    assert (result.exit_code, result.output) == (
        0,
        "2 shards held against the lock, 0 differences\n",
    )
    assert _corpus("fetch").exit_code == 0
    result = _corpus("verify", "--locked")
    assert result.exit_code == 1
    assert "c/d: it is stored, and the lock does not name it" in result.output
    assert f"{tmp_path}/corpus.lock: the source manifest has sha256" in result.output
    assert _corpus("lock").exit_code == 0
    shutil.rmtree(tmp_path / "data/raw_shards/c/b")
    result = _corpus("verify", "--locked")
    assert result.exit_code == 1
    assert "c/b: the lock names it, and no whole copy is stored" in result.output


def test_verify_locked_notices_a_changed_manifest_and_writes_nothing(
    tmp_path: Path, server: HttpServer
) -> None:
    assert _corpus("fetch").exit_code == 0
    assert _corpus("lock").exit_code == 0
    path = tmp_path / "data/source-manifest.json"
    path.write_bytes(changed := path.read_bytes().replace(b'"stored"', b'"planned"', 1))
    for options in ([], ["--locked"]):
        result = _corpus("verify", *options)
        assert result.exit_code == 1
        assert f"{path}: its sha256 is" in result.output
        assert path.read_bytes() == changed
    (tmp_path / "corpus.lock").write_text("<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs\n")
    result = _corpus("verify", "--locked")
    assert result.exit_code == 2
    assert "marks of a merge" in result.output


LINES = b'{"id": "d1", "text": "The library at the corner of the street is open every day."}\n' * 3


def test_inspect_shows_a_file_without_any_settings(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(LINES)
    result = _corpus("inspect", "x.jsonl")
    assert result.exit_code == 0
    assert result.output.splitlines()[:4] == [
        "file: x.jsonl: 249 bytes stored as plain, holds lines",
        "column: id: string, taken as the id",
        "column: text: string, taken as the text",
        "3 rows; 3 of 3 records read are documents; 249 bytes of plain bytes read",
    ]
    whole = json.loads(_corpus("inspect", "x.jsonl", "--json").stdout)
    assert (whole["rows"], whole["languages"], whole["failure"]) == (3, {"en": 3}, None)
    assert [p.name for p in tmp_path.iterdir()] == ["x.jsonl"]


def test_no_name_steers_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"\x1b]0;{name}\x9b31m.jsonl").write_text("{}")
    shutil.copytree(tmp_path / "in", tmp_path / "other/in")
    both = "sources: [{glob: 'in/*', crawl: c}, {glob: 'other/in/*', crawl: c}]"
    (tmp_path / "corpus.yaml").write_text(both)
    result = _corpus("plan")
    assert result.exit_code == 2
    assert "are both shard" in result.output
    assert "\\x1b]0;a\\x9b31m" in result.output
    assert not re.search("[\x1b\x9b]", result.output)


def test_inspect_takes_fields_and_limits_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(LINES.replace(b'"text"', b'"body"'))
    (tmp_path / "corpus.yaml").write_text(
        "sources: [{glob: 'nowhere/{crawl}/*', fields: {text: body}}]\n"
        "clean: {max_record_bytes: 1024}"
    )
    assert "3 of 3 records read are documents" in _corpus("inspect", "x.jsonl").output


def test_inspect_of_a_damaged_file_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PAR1 and no more")
    result = _corpus("inspect", "x")
    assert result.exit_code == 1
    assert "cannot be read on: no readable Parquet footer" in result.output
    whole = json.loads(_corpus("inspect", "x", "--json").stdout)
    assert "no readable Parquet footer" in whole["failure"]


def test_inspect_of_a_name_that_is_not_utf8_prints_json(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.jsonl")
    (tmp_path / name).write_bytes(LINES)
    result = _corpus("inspect", name, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"][0]["name"] == name
    assert _corpus("inspect", name).exit_code == 0


def test_inspect_shows_a_shard_once_it_is_stored(tmp_path: Path, server: HttpServer) -> None:
    server.objects["/a"] = Served(LINES)
    result = _corpus("inspect", "c/a")
    assert result.exit_code == 2
    assert "error: c/a is not stored yet; fetch it first: corpus fetch c/a" in result.output
    assert _corpus("fetch", "c/a").exit_code == 0
    assert "3 of 3 records read are documents" in _corpus("inspect", "c/a").output
    result = _corpus("inspect", "c/x")
    assert result.exit_code == 2
    assert "error: 'c/x' is neither a file nor a shard; name a file" in result.output


def test_ctrl_c_ends_in_seconds_and_the_next_fetch_goes_on(
    tmp_path: Path, server: HttpServer
) -> None:
    sources = {"/list": Served(b"big"), "/big": Served(BIG)}
    with HttpServer(sources, bytes_per_second=1e6) as slow:
        _configure(tmp_path, slow)
        process = subprocess.Popen(
            [Path(sys.executable).with_name("corpus"), "fetch"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        _wait_until(lambda: slow.sent > 1_500_000)
        process.send_signal(signal.SIGINT)
        before = time.monotonic()
        output, _ = process.communicate(timeout=20)
        assert time.monotonic() - before < 6
        assert process.returncode == 130
        assert "stopped; the same command goes on where this one ended" in output
        assert "Traceback" not in output
        assert _stored(tmp_path) == []
        came, slow.sent = slow.sent, 0
        assert _corpus("fetch").exit_code == 0
        assert slow.sent <= len(BIG) - came + (1 << 20)
    assert _stored(tmp_path) == ["c/big"]


def test_ctrl_c_ends_in_seconds_when_a_server_is_silent(tmp_path: Path, server: HttpServer) -> None:
    server.objects["/a"] = Twist(silent_seconds=60)
    process = subprocess.Popen(
        [Path(sys.executable).with_name("corpus"), "fetch"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until(lambda: any(r.path == "/a" for r in server.requests))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    _, output = process.communicate(timeout=20)
    assert time.monotonic() - before < 8
    assert (process.returncode, "goes on where" in output) == (130, True)


def _wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_without_a_shard_that_may_be_missing_is_complete(tmp_path: Path) -> None:
    config = write_small_corpus(tmp_path)
    (tmp_path / "list.txt").write_text("http://127.0.0.1:9/gone.jsonl\n")
    listing = "sources:\n  - {listing: list.txt, crawl: '2026-50'}\n"
    missing = "checks: {allow_missing: ['2026-50/*'], max_uncleared_share: 0.5}\n"
    config.write_text(config.read_text().replace("sources:\n", listing) + missing)
    command = [Path(sys.executable).with_name("corpus"), "run", "--json", "result.json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "result.json").read_bytes())
    assert (result["outcome"], result["blocked"]) == ("complete", [])
    assert result["release"]["id"] in ended.stdout
    assert f"\ncontent {result['release']['content']}\n" in ended.stdout
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, "nothing was due" in again.stdout) == (0, True)
