"""Fixtures of the tests of alerts, of nights and of jobs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.memory import Memory
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import Corpus, load_corpus
from corpus_platform_tests.daemon import Daemon
from corpus_platform_tests.defs.nights import DAY, NIGHT
from corpus_platform_tests.defs.telling import TOKEN, Scene
from corpus_platform_tests.instances import in_folder, in_memory
from corpus_platform_tests.slack_server import SlackServer
from corpus_platform_tests.small import SHARDS, write_small_corpus


@pytest.fixture
def server() -> Iterator[SlackServer]:
    """A running stand-in for Slack."""
    with SlackServer() as running:
        yield running


@pytest.fixture
def alerting(tmp_path: Path, server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A new corpus whose alerts go to the server, and a token."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    monkeypatch.delenv("SLACK_CHANNEL", raising=False)
    monkeypatch.delenv("CORPUS_UI_URL", raising=False)
    config = tmp_path / "corpus.yaml"
    config.write_text(
        "sources: [{glob: 'source/crawl={crawl}/*'}]\n"
        f"alerts: {{slack: {{base_url: '{server.base_url}'}}, ui_url: 'http://ui:3000/'}}\n"
    )
    return load_corpus(config)


@pytest.fixture
def scene(alerting: Corpus, tmp_path: Path, server: SlackServer) -> Iterator[Scene]:
    """That corpus before its first tick, on an instance in memory."""
    with in_memory() as instance:
        yield Scene(tmp_path, instance, alerting, server)


@pytest.fixture
def stored_scene(alerting: Corpus, tmp_path: Path, server: SlackServer) -> Iterator[Scene]:
    """The same on an instance in the folder `instance`."""
    with in_folder(tmp_path / "instance") as instance:
        yield Scene(tmp_path, instance, alerting, server)


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """The one in memory after its first tick, which found nothing."""
    assert scene.tick() == "nothing new to tell"
    return scene


@pytest.fixture
def stored(stored_scene: Scene) -> Scene:
    """The one in a folder after its first tick, which found nothing."""
    assert stored_scene.tick() == "nothing new to tell"
    return stored_scene


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small corpus after its first night, with the home of its instance beside it."""
    folder = tmp_path_factory.mktemp("nightly") / "corpus"
    daemon = Daemon(write_small_corpus(folder), folder / "home")
    daemon.run(daemon.night(NIGHT - DAY))
    daemon.settle()
    return folder


@pytest.fixture
def daemon(grown: Path, tmp_path: Path) -> Daemon:
    """A daemon over a copy of the grown corpus."""
    folder = tmp_path / "corpus"
    shutil.copytree(grown, folder, symlinks=True)
    _move(folder, grown)
    copied = Daemon(folder / "corpus.yaml", folder / "home")
    with copied.instance() as instance:  # a corpus is known by its place
        old = Memory(instance, load_corpus(grown / "corpus.yaml").name)
        new = Memory(instance, load_corpus(copied.config).name)
        for name in ("night", "heartbeats", "status"):
            new.set(name, old.get(name))
    return copied


@pytest.fixture
def awake(finished: Path, finished_once: Path, instance: dg.DagsterInstance) -> Daemon:
    """A daemon over the small corpus, of which all is made, after a first night; in memory."""
    _move(finished.parent, finished_once)
    first = Daemon(finished, instance)
    assert first.night(NIGHT - DAY).requests == []
    assert first.settle() == []
    return first


def _move(folder: Path, old: Path) -> None:
    """Let a copy of a corpus know the sources beside it as those that it was made of."""
    for name in ("data/registry.json", "data/catalog/sources.jsonl"):
        text = (folder / name).read_text(encoding="utf-8").replace(str(old), str(folder))
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that knows the partitions of the small corpus."""
    with in_memory() as made:
        made.add_dynamic_partitions(SHARDS_NAME, list(SHARDS))
        yield made
