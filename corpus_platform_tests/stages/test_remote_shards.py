"""Tests of raw shards whose members a network brings: what is expected, refused, accepted, told."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform.config import Fields
from corpus_platform.errors import StorageError, Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.fetching import list_shards
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import accept_source, fetch_shard, not_begun
from corpus_platform.stages.source_lock import write_lock
from corpus_platform.storage.registry import Member, Shard
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.s3_stub import S3Stub
from corpus_platform_tests.small import register

SERVED = b'{"id": "1", "text": "a line of text"}\n' * 30
CHANGED = b'{"id": "2", "text": "another line"}\n' * 30
SHA256, CHANGED_SHA256 = (hashlib.sha256(data).hexdigest() for data in (SERVED, CHANGED))


def _again(project: Project) -> Project:
    return open_project(project.settings)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer({"/c/a.jsonl": Served(SERVED)}) as server:
        yield server


def _listed(
    folder: Path, server: HttpServer, *entries: object, name: str = "list.json", more: str = ""
) -> Project:
    """Return a project of a listing that lies at the server, registered."""
    rows = entries or ({"url": f"{server.url}/c/a.jsonl"},)
    server.objects[f"/{name}"] = Served(json.dumps(rows).encode())
    config = folder / "corpus.yaml"
    config.write_text(
        f"sources: [{{listing: '{server.url}/{name}', crawl: c}}]\n"
        f"download: {{tries: 2, first_wait_seconds: 0.001, timeout_seconds: 5}}\n{more}\n"
    )
    project = open_project(load_settings(config))
    project.registry.register(list_shards(project))
    return project


def _refusal(project: Project, shard: str = "c/a.jsonl") -> Uncleared:
    with pytest.raises(Uncleared) as caught:
        fetch_shard(_again(project), shard)
    return caught.value


def _stored(project: Project, shard: str = "c/a.jsonl") -> list[bytes]:
    artifact = _again(project).artifact("raw_shards", shard)
    return [artifact.path(o.name).read_bytes() for o in artifact.manifest.outputs] if artifact else []  # fmt: skip


def test_a_remote_shard_says_how_it_came(tmp_path: Path, server: HttpServer) -> None:
    project = _listed(tmp_path, server)
    artifact = fetch_shard(project, "c/a.jsonl").artifact
    assert artifact.manifest.measured["source"] == [
        {
            "attempts": 1,
            "bytes": len(SERVED),
            "name": "a.jsonl",
            "sha256": SHA256,
            "source": f"{server.url}/c/a.jsonl",
            "transferred": len(SERVED),
            "verified": "length",
            "version": '"v1"',
        }
    ]
    assert list((tmp_path / "data/downloads").glob("http*")) == []


def test_the_hash_of_a_listing_verifies_and_a_wrong_one_is_named_after_a_second_try(
    tmp_path: Path, server: HttpServer
) -> None:
    url = f"{server.url}/c/a.jsonl"
    right = fetch_shard(_listed(tmp_path, server, {"url": url, "sha256": SHA256}), "c/a.jsonl")
    assert right.artifact.numbers["verified/sha256"] == 1
    (tmp_path / "other").mkdir()
    wrong = _listed(tmp_path / "other", server, {"url": url, "sha256": CHANGED_SHA256})
    server.requests.clear()
    refusal = _refusal(wrong)
    assert refusal.gate == "expected"
    assert SHA256 in refusal.reason
    assert CHANGED_SHA256 in refusal.reason
    assert [r.path for r in server.requests] == ["/c/a.jsonl"] * 2
    assert _stored(wrong) == []
    assert list((tmp_path / "other/data/downloads").glob("http*")) == []


def test_bytes_that_were_wrong_once_are_right_at_the_second_try(
    tmp_path: Path, server: HttpServer
) -> None:
    seen: list[int] = []
    project = _listed(tmp_path, server, {"url": f"{server.url}/c/a.jsonl", "sha256": SHA256})
    server.twists = [Twist(body=CHANGED[: len(SERVED)].ljust(len(SERVED)))]
    fetch_shard(project, "c/a.jsonl", progress=lambda done, _: seen.append(done))
    assert _stored(project) == [SERVED]
    assert seen[-1] == len(SERVED)


def test_a_sidecar_of_a_listing_is_held_against_the_bytes(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _listed(tmp_path, server)
    config = tmp_path / "corpus.yaml"
    config.write_text(config.read_text().replace("crawl: c", "crawl: c, sidecars: true"))
    project = open_project(load_settings(config))
    project.registry.register(list_shards(project))
    refusal = _refusal(project)
    assert (refusal.gate, "HTTP 404" in refusal.reason) == ("source_present", True)
    server.objects["/c/a.jsonl.sha256"] = Served(b"no hash at all")
    assert _refusal(project).gate == "expected"
    server.objects["/c/a.jsonl.sha256"] = Served(f"{CHANGED_SHA256}  a.jsonl\n".encode())
    assert _refusal(project).gate == "expected"
    server.objects["/c/a.jsonl.sha256"] = Served(f"{SHA256}  a.jsonl\n".encode())
    assert fetch_shard(project, "c/a.jsonl").artifact.numbers["verified/sha256"] == 1


def test_a_sidecar_beside_a_local_file_is_held_against_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/a.jsonl").write_bytes(SERVED)
    (tmp_path / "c/a.jsonl.sha256").write_text(CHANGED_SHA256)
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: '{crawl}/*.jsonl*'}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    assert register(project) == ["c/a.jsonl"]
    refusal = _refusal(project)
    assert refusal.gate == "expected"
    assert f"says sha256 {CHANGED_SHA256}, the source has {SHA256}" in refusal.reason
    assert _stored(project) == []
    (tmp_path / "c/a.jsonl.sha256").write_text(SHA256)
    assert fetch_shard(project, "c/a.jsonl").artifact.numbers["verified/sha256"] == 1


def test_what_the_source_does_not_have_is_refused_with_the_status_and_remembered(
    tmp_path: Path, server: HttpServer
) -> None:
    del server.objects["/c/a.jsonl"]
    project = _listed(tmp_path, server)
    refusal = _refusal(project)
    assert refusal.gate == "source_present"
    assert f"{server.url}/c/a.jsonl: HTTP 404" in refusal.reason
    assert project.failures.reason("c/a.jsonl") == str(refusal)
    server.objects["/c/a.jsonl"] = Served(SERVED)
    fetch_shard(project, "c/a.jsonl")
    assert project.failures.reason("c/a.jsonl") is None


def test_what_cannot_be_had_now_is_no_refusal(tmp_path: Path, server: HttpServer) -> None:
    project = _listed(tmp_path, server)
    server.twists = [Twist(503), Twist(503)]
    with pytest.raises(StorageError, match="HTTP 503; given up after 2 tries") as caught:
        fetch_shard(project, "c/a.jsonl")
    assert caught.value.exit_code == 3


def test_a_body_of_no_stated_length_is_stored_and_warned_of(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _listed(tmp_path, server)
    server.twists = [Twist(chunked=True)]
    report = fetch_shard(project, "c/a.jsonl")
    assert report.artifact.numbers["verified/nothing"] == 1
    (finding,) = [f for f in report.findings if f.gate == "verified"]
    assert (finding.passed, finding.blocks) == (False, False)
    assert "1 of 1 files came without a stated length or hash" in finding.reason
    assert project.require("raw_shards", "c/a.jsonl").content


def test_a_length_that_is_not_the_listed_one_is_refused(tmp_path: Path, server: HttpServer) -> None:
    project = _listed(tmp_path, server, {"url": f"{server.url}/c/a.jsonl", "bytes": 5})
    assert _refusal(project).gate in ("expected", "source_present")
    assert _stored(project) == []


@pytest.mark.parametrize("stated", [{"sha256": CHANGED_SHA256}, {"bytes": len(SERVED) + 1}])
def test_a_listing_that_states_something_else_later_blocks_a_whole_copy(
    tmp_path: Path, server: HttpServer, stated: dict[str, object]
) -> None:
    url = f"{server.url}/c/a.jsonl"
    fetch_shard(_listed(tmp_path, server, {"url": url}), "c/a.jsonl")
    project = _listed(tmp_path, server, {"url": url, **stated})
    assert _refusal(project).gate == "source_unchanged"
    assert "corpus lock --accept c/a.jsonl" in _refusal(project).reason
    assert project.refusal(["raw_shards"], "c/a.jsonl") is not None
    assert _stored(project) == [SERVED]


@pytest.mark.parametrize("cache", ["", "download: {cache_dir: cache, tries: 2}"])
def test_accepted_bytes_of_a_remote_source_are_its_present_ones(
    tmp_path: Path, server: HttpServer, cache: str
) -> None:
    (tmp_path / "corpus.yaml").write_text(
        f"sources: [{{listing: '{server.url}/list.txt', crawl: c}}]\n{cache}"
    )
    server.objects["/list.txt"] = Served(b"c/a.jsonl")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    project.registry.register(list_shards(project))
    old = fetch_shard(project, "c/a.jsonl").artifact
    server.objects["/c/a.jsonl"] = Served(CHANGED, '"v2"')
    assert accept_source(_again(project), "c/a.jsonl").generation == 1
    new = fetch_shard(_again(project), "c/a.jsonl")
    assert (new.made, _stored(project)) == (True, [CHANGED])
    assert old.path("a.jsonl").read_bytes() == SERVED


def test_bytes_that_are_refused_are_not_kept_so_that_a_restored_source_counts(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _listed(tmp_path, server)
    path = fetch_shard(project, "c/a.jsonl").artifact.path("a.jsonl")
    path.write_bytes(b"damaged")
    server.objects["/c/a.jsonl"] = Served(CHANGED, '"v2"')
    refusal = _refusal(project)
    assert refusal.gate == "source_unchanged"
    assert (SHA256 in refusal.reason, CHANGED_SHA256 in refusal.reason) == (True, True)
    server.objects["/c/a.jsonl"] = Served(SERVED)
    assert fetch_shard(_again(project), "c/a.jsonl").made
    assert path.read_bytes() == SERVED


def test_other_bytes_than_locked_are_refused_when_a_new_machine_gets_them(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _listed(tmp_path, server)
    fetch_shard(project, "c/a.jsonl")
    write_lock(project, "0" * 64)
    shutil.rmtree(tmp_path / "data")
    server.objects["/c/a.jsonl"] = Served(CHANGED, '"v2"')
    project = _listed(tmp_path, server)
    assert _refusal(project).gate == "lock"
    assert _stored(project) == []
    accept_source(_again(project), "c/a.jsonl")
    fetch_shard(_again(project), "c/a.jsonl")
    assert _stored(project) == [CHANGED]


@pytest.mark.parametrize(("locked", "gate"), [(True, "lock"), (False, "source_unchanged")])
def test_other_bytes_are_refused_under_another_name_of_the_file_too(
    tmp_path: Path, server: HttpServer, locked: bool, gate: str
) -> None:
    server.objects["/c/b.jsonl"] = Served(CHANGED)
    server.objects["/c/same.jsonl"] = Served(SERVED)
    project = _listed(tmp_path, server, {"url": f"{server.url}/c/a.jsonl", "name": "x"})
    fetch_shard(project, "c/x")
    if locked:
        write_lock(project, "0" * 64)
        shutil.rmtree(tmp_path / "data")
    moved = _listed(tmp_path, server, {"url": f"{server.url}/c/b.jsonl", "name": "x"})
    refusal = _refusal(moved, "c/x")
    assert refusal.gate == gate
    assert SHA256 in refusal.reason
    assert CHANGED_SHA256 in refusal.reason
    moved = _listed(tmp_path, server, {"url": f"{server.url}/c/same.jsonl", "name": "x"})
    fetch_shard(moved, "c/x")
    assert _stored(moved, "c/x") == [SERVED]


def test_a_kill_behind_the_last_write_leaves_a_changed_version_accepted(
    tmp_path: Path, s3_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Stub() as stub:
        stub.objects = {"p/c/a.jsonl": SERVED}
        (tmp_path / "corpus.yaml").write_text(
            f"sources: [{{glob: 's3://crawls/p/{{crawl}}/*'}}]\ns3: {{endpoint_url: '{stub.url}'}}"
        )
        project = open_project(load_settings(tmp_path / "corpus.yaml"))
        project.registry.register(list_shards(project))
        stub.objects["p/c/a.jsonl"] = CHANGED
        project.registry.register(list_shards(project))

        def killed(key: str) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(project.failures, "forget", killed)  # called when all is published
        with pytest.raises(KeyboardInterrupt):
            fetch_shard(project, "c/a.jsonl")
        fetch_shard(_again(project), "c/a.jsonl")
        assert _stored(project) == [CHANGED]


def test_a_disk_that_takes_no_copy_is_named_with_the_way_out(
    tmp_path: Path, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listed(tmp_path, server)
    config = tmp_path / "corpus.yaml"
    config.write_text(config.read_text().replace("tries: 2", "cache_dir: cache, tries: 2"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(
        StorageError, match=r"a\.jsonl: cannot be written: .*No space left.*make room"
    ):
        fetch_shard(open_project(load_settings(config)), "c/a.jsonl")


def test_another_etag_in_s3_blocks_a_whole_copy_until_it_is_accepted(
    tmp_path: Path, s3_keys: None
) -> None:
    with S3Stub() as stub:
        stub.objects = {
            "p/c/a.jsonl": SERVED,
            "p/c/b.jsonl": SERVED,
            "p/c/b.jsonl.sha256": SHA256.encode(),
        }
        (tmp_path / "corpus.yaml").write_text(
            f"sources: [{{glob: 's3://crawls/p/{{crawl}}/*'}}]\ns3: {{endpoint_url: '{stub.url}'}}"
        )
        project = open_project(load_settings(tmp_path / "corpus.yaml"))
        assert project.registry.register(list_shards(project)) == ["c/a.jsonl", "c/b.jsonl"]
        assert fetch_shard(project, "c/a.jsonl").artifact.numbers["verified/length"] == 1
        assert fetch_shard(project, "c/b.jsonl").artifact.numbers["verified/sha256"] == 1
        was, stub.objects["p/c/a.jsonl"] = stub.etag("p/c/a.jsonl"), CHANGED
        project.registry.register(list_shards(project))
        refusal = _refusal(project)
        assert refusal.gate == "source_unchanged"
        assert was in refusal.reason
        assert stub.etag("p/c/a.jsonl") in refusal.reason
        assert _stored(project) == [SERVED]
        accept_source(_again(project), "c/a.jsonl")
        fetch_shard(_again(project), "c/a.jsonl")
        assert _stored(project) == [CHANGED]
        assert project.registry.shard("c/a.jsonl").members[0].changed is None


BUNDLE = "c/a.jsonl%+2"


def _bundle(folder: Path, server: HttpServer) -> Project:
    rows = [{"url": f"{server.url}/c/{name}.jsonl", "bytes": len(SERVED)} for name in "abd"]
    server.objects.update({f"/c/{name}.jsonl": Served(SERVED) for name in "abd"})
    project = _listed(folder, server, *rows)
    config = folder / "corpus.yaml"
    config.write_text(config.read_text().replace("crawl: c", "crawl: c, bundle_bytes: 9999999"))
    shutil.rmtree(folder / "data")
    project = open_project(load_settings(config))
    assert project.registry.register(list_shards(project)) == [BUNDLE]
    return project


def test_a_bundle_has_its_members_and_is_cleaned_as_one_shard_with_rows_running_on(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _bundle(tmp_path, server)
    artifact = fetch_shard(project, BUNDLE).artifact
    members = artifact.manifest.ledger["members"]
    assert [m["name"] for m in members] == ["00000-a.jsonl", "00001-b.jsonl", "00002-d.jsonl"]
    assert _stored(project, BUNDLE) == [SERVED] * 3
    cleaned = clean_documents(project, BUNDLE).artifact.manifest.ledger
    assert (cleaned["lines"], cleaned["documents"]) == (90, 90)
    server.objects.clear()
    assert fetch_shard(_again(project), BUNDLE).made is False  # it is whole, whatever is gone


def test_a_bundle_that_is_broken_off_keeps_its_whole_members(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _bundle(tmp_path, server)
    server.twists = [None, None, Twist(503), Twist(503)]
    with pytest.raises(StorageError):
        fetch_shard(project, BUNDLE)
    server.sent = 0
    fetch_shard(_again(project), BUNDLE)
    assert server.sent == len(SERVED)
    assert list((tmp_path / "data/downloads").glob("http*")) == []


def test_what_a_killed_process_had_stored_leaves_the_folder_of_downloads(
    tmp_path: Path, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = _listed(tmp_path, server)
    monkeypatch.setattr(project.downloads, "settle", lambda member: None)
    fetch_shard(project, "c/a.jsonl")
    assert len(list((tmp_path / "data/downloads").glob("http*"))) == 2
    assert fetch_shard(_again(project), "c/a.jsonl").made is False
    assert list((tmp_path / "data/downloads").glob("http*")) == []
    assert _stored(project) == [SERVED]


@pytest.mark.parametrize(
    "path", ["manifest.json", ".draft-x", "a%00b", "%2e%2e%2f%2e%2e%2fx", "y" * 3000, "a?b=manifest.json"]
)  # fmt: skip
def test_whatever_a_file_is_called_it_lies_in_its_artifact(
    tmp_path: Path, server: HttpServer, path: str
) -> None:
    server.objects[f"/c/{path.partition('?')[0]}"] = Served(SERVED)
    project = _listed(tmp_path, server)
    member = Member(f"{server.url}/c/{path}")
    project.registry.register([Shard("c/x", (member,), Fields())])
    fetch_shard(project, "c/x")
    assert _stored(project, "c/x") == [SERVED]
    assert project.require("raw_shards", "c/x").manifest.outputs[0].bytes == len(SERVED)
    assert fetch_shard(_again(project), "c/x").made is False
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.yaml", "data"]


def test_members_of_one_base_name_are_two_files(tmp_path: Path, server: HttpServer) -> None:
    project = _listed(tmp_path, server)
    server.objects["/d/a.jsonl"] = Served(CHANGED)
    urls = (f"{server.url}/c/a.jsonl", f"{server.url}/d/a.jsonl")
    members = tuple(Member(url, name=str(n)) for n, url in enumerate(urls))
    project.registry.register([Shard("c/x", members, Fields())])
    fetch_shard(project, "c/x")
    assert _stored(project, "c/x") == [SERVED, CHANGED]


def test_a_local_name_that_is_not_utf8_is_stored_and_told_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c/\xff.jsonl")).write_bytes(SERVED)
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: '{crawl}/*.jsonl'}]")
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    assert register(project) == ["c/%FF.jsonl"]
    source = fetch_shard(project, "c/%FF.jsonl").artifact.manifest.measured["source"][0]["source"]
    assert source == f"{tmp_path}/c/\\udcff.jsonl"


def test_a_signature_is_told_nowhere_but_in_the_registry(
    tmp_path: Path, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    url = f"{server.url}/c/a.jsonl?X-Signature=5ec2e7"
    project = _listed(tmp_path, server, {"url": url}, {"url": f"{server.url}/c/gone?sig=5ec2e7"})
    assert list(project.shards()) == ["c/a.jsonl", "c/gone"]
    server.twists = [Twist(503)]
    fetch_shard(project, "c/a.jsonl")
    told = [str(_refusal(project, "c/gone")), caplog.text]
    write_lock(project, "0" * 64)
    for path in tmp_path.rglob("*"):
        told.append(path.name)
        if path.is_file() and path.name != "registry.json":
            told.append(path.read_bytes().decode("utf-8", "replace"))
    assert not any("5ec2e7" in text for text in told)
    assert "5ec2e7" in (tmp_path / "data/registry.json").read_text()


def test_what_is_being_downloaded_is_begun_and_what_is_stored_needs_nothing(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _listed(tmp_path, server)
    shard = project.shard("c/a.jsonl")
    assert not_begun(project, shard) == shard.members[0]
    server.twists = [Twist(cut=600), Twist(503)]
    with pytest.raises(StorageError):
        fetch_shard(project, "c/a.jsonl")
    assert not_begun(project, shard) is None
    artifact = fetch_shard(project, "c/a.jsonl").artifact
    assert not_begun(project, shard) is None
    artifact.path("a.jsonl").write_bytes(b"damaged")
    assert not_begun(_again(project), shard) == shard.members[0]
