"""Fixtures of the tests of alerts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform.defs.resources import load_corpus
from corpus_platform_tests.defs.telling import TOKEN, Scene, open_instance
from corpus_platform_tests.slack_server import SlackServer


@pytest.fixture
def server() -> Iterator[SlackServer]:
    """A running stand-in for Slack."""
    with SlackServer() as running:
        yield running


@pytest.fixture
def scene(tmp_path: Path, server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A new corpus with a token, before its first tick."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    monkeypatch.delenv("SLACK_CHANNEL", raising=False)
    monkeypatch.delenv("CORPUS_UI_URL", raising=False)
    config = tmp_path / "corpus.yaml"
    config.write_text(
        "sources: [{glob: 'source/crawl={crawl}/*'}]\n"
        f"alerts: {{slack: {{base_url: '{server.base_url}'}}, ui_url: 'http://ui:3000/'}}\n"
    )
    with open_instance(tmp_path / "instance") as instance:
        yield Scene(tmp_path, instance, load_corpus(config), server)


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """The same after its first tick, which found nothing."""
    assert scene.tick() == "nothing new to tell"
    return scene
