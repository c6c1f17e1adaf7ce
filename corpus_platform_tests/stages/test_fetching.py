"""Tests of many shards fetched side by side: which ones, that one fault stops no other, and stopping."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from corpus_platform.errors import SettingsError, StorageError, Uncleared, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.fetching import Outcome, fetch_all, list_shards, shards_to_fetch
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.http_server import HttpServer, Served, Twist
from corpus_platform_tests.storage.fetching import BIG, OBJECT

NAMES = ("a", "b", "d")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    objects = {f"/{name}": Served(OBJECT) for name in NAMES}
    with HttpServer({**objects, "/list": Served("\n".join(NAMES).encode())}) as server:
        yield server


def _project(folder: Path, server: HttpServer, more: str = "") -> Project:
    (folder / "corpus.yaml").write_text(
        f"sources: [{{listing: '{server.url}/list', crawl: c}}]\n"
        f"download: {{tries: 2, first_wait_seconds: 0.001, timeout_seconds: 20}}\n{more}\n"
    )
    return open_project(load_settings(folder / "corpus.yaml"))


def _keys(project: Project, *names: str, limit: int | None = None) -> list[str]:
    return [s.key for s in shards_to_fetch(open_project(project.settings), names, limit)]


def _fetched(project: Project, *, jobs: int = 2, **more: bool) -> dict[str, Outcome]:
    wanted = shards_to_fetch(project)
    outcomes = fetch_all(
        project.settings, wanted, jobs=jobs, progress=lambda shard, done, total: None, **more
    )
    return {o.shard: o for o in outcomes}


def test_all_listed_shards_are_registered_and_wanted(tmp_path: Path, server: HttpServer) -> None:
    project = _project(tmp_path, server)
    assert _keys(project) == ["c/a", "c/b", "c/d"]
    assert project.registry.keys() == ["c/a", "c/b", "c/d"]


def test_what_is_whole_is_not_wanted_and_what_is_damaged_is(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server)
    assert {o.error for o in _fetched(project).values()} == {None}
    assert _keys(project) == []
    artifact = open_project(project.settings).artifact("raw_shards", "c/b")
    assert artifact is not None
    artifact.path("b").write_bytes(OBJECT[:-1])
    assert _keys(project) == ["c/b"]


def test_what_is_listed_with_other_bytes_now_is_wanted_and_refused(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server)
    _fetched(project)
    server.objects["/list"] = Served(f"{'0' * 64}  a\n".encode())
    project = open_project(project.settings)
    assert _keys(project) == ["c/a"]
    (outcome,) = _fetched(project).values()
    assert isinstance(outcome.error, Uncleared)
    assert outcome.error.gate == "source_unchanged"


def test_a_limit_bounds_what_is_fetched_and_what_is_registered(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server)
    assert _keys(project, limit=2) == ["c/a", "c/b"]
    assert project.registry.keys() == ["c/a", "c/b"]
    fetch_shard(project, "c/a")
    assert _keys(project, limit=1) == ["c/b"]
    assert _keys(project, limit=2) == ["c/b", "c/d"]


def test_only_named_shards_are_wanted_and_registered(tmp_path: Path, server: HttpServer) -> None:
    project = _project(tmp_path, server)
    assert _keys(project, "c/d") == ["c/d"]
    assert project.registry.keys() == ["c/d"]
    with pytest.raises(UsageError, match="'c/x' is neither listed by the sources nor registered"):
        _keys(project, "c/d", "c/x")


def test_a_retired_shard_is_not_wanted_and_cannot_be_named(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server)
    _keys(project)
    project.registry.retire("c/b")
    assert _keys(project) == ["c/a", "c/d"]
    with pytest.raises(UsageError, match=r"'c/b' is retired; .*corpus retire --undo c/b"):
        _keys(project, "c/b")


def test_a_shard_that_may_be_missing_is_fetched_only_by_name(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server, "checks: {allow_missing: ['c/[bd]']}")
    assert _keys(project) == ["c/a"]
    assert _keys(project, "c/d") == ["c/d"]


def test_sources_without_any_shard_are_an_error(tmp_path: Path, server: HttpServer) -> None:
    server.objects["/list"] = Served(b"# nothing\n")
    with pytest.raises(SettingsError, match="there is no shard"):
        list_shards(_project(tmp_path, server))


def test_one_shard_that_fails_stops_no_other(tmp_path: Path, server: HttpServer) -> None:
    project = _project(tmp_path, server)
    del server.objects["/a"]
    server.objects["/b"] = Twist(503, body=b"busy")
    found = _fetched(project)
    assert isinstance(found["c/a"].error, Uncleared)
    assert found["c/a"].error.gate == "source_present"
    assert isinstance(found["c/b"].error, StorageError)
    assert found["c/d"].report is not None
    assert len(server.requests) == 5  # the listing, b twice


def test_resuming_only_begins_nothing_and_goes_on_with_the_rest(
    tmp_path: Path, server: HttpServer
) -> None:
    project = _project(tmp_path, server)
    server.objects["/d"] = Served(BIG)
    server.twists = [None, Twist(cut=2_000_000), Twist(503)]
    shards = {s.key: s for s in shards_to_fetch(project)}
    list(fetch_all(project.settings, [shards["c/d"]], jobs=1, progress=lambda *_: None))
    server.sent = 0
    found = _fetched(project, resume_only=True)
    for key in ("c/a", "c/b"):
        error = found[key].error
        assert isinstance(error, UsageError)
        assert f"nothing of {server.url}/{key[-1]} is here to go on with" in str(error)
    assert found["c/d"].report is not None
    assert server.sent == 1_000_000 + len(b"a\nb\nd")


def test_progress_tells_bytes_of_each_shard(tmp_path: Path, server: HttpServer) -> None:
    project = _project(tmp_path, server)
    seen: list[tuple[str, int, int | None]] = []
    shards = shards_to_fetch(project, ["c/a"])
    list(fetch_all(project.settings, shards, jobs=4, progress=lambda *told: seen.append(told)))
    assert seen[-1] == ("c/a", 1000, None)


def test_closing_stops_what_is_at_work_and_begins_nothing_more(
    tmp_path: Path, server: HttpServer
) -> None:
    with HttpServer({**server.objects, "/a": Served(BIG)}, bytes_per_second=1e6) as slow:
        project = _project(tmp_path, slow)
        begun = threading.Event()
        shards = shards_to_fetch(project)
        outcomes = fetch_all(project.settings, shards, jobs=2, progress=lambda *_: begun.set())
        with closing(outcomes):
            assert next(outcomes).shard == "c/b"
            assert begun.wait(5)
            before = time.monotonic()
        assert time.monotonic() - before < 3
        assert not [t for t in threading.enumerate() if t.name.startswith("fetch-")]
        assert open_project(project.settings).artifact("raw_shards", "c/a") is None


def test_no_shards_end_at_once(tmp_path: Path, server: HttpServer) -> None:
    project = _project(tmp_path, server)
    assert list(fetch_all(project.settings, [], jobs=4, progress=lambda *_: None)) == []
