"""Tests of the channel against a server that answers as Slack does, and as a broken one does."""

import logging
import sys
from pathlib import Path

import pytest

from corpus_platform.config import Settings
from corpus_platform.defs import slack as module
from corpus_platform.defs.slack import NotPosted, Slack, connect, is_wanted
from corpus_platform.errors import MissingExtra, SettingsError
from corpus_platform_tests.defs.telling import TOKEN
from corpus_platform_tests.slack_server import Answer, SlackServer, fault, hang, refuse, wait


def settings(alerts: dict[str, object]) -> Settings:
    """Return settings with some alerts."""
    sources = [{"glob": "source/crawl={crawl}/*"}]
    return Settings.model_validate({"sources": sources, "alerts": alerts, "base": Path()})


def channel(server: SlackServer, **environment: str) -> Slack:
    """Return the channel #corpus of a server."""
    alerts = {"slack": {"base_url": server.base_url}}
    return connect(settings(alerts), {"SLACK_BOT_TOKEN": TOKEN, **environment})


def test_a_text_is_posted_as_it_stands_with_nothing_unfurled(server: SlackServer) -> None:
    assert channel(server).post("a & b") is None
    [request] = server.requests
    assert (request.path, request.token) == ("/api/chat.postMessage", TOKEN)
    assert request.body == {
        "channel": "#corpus",
        "text": "a & b",
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def test_the_environment_wins_over_the_channel_of_the_settings(server: SlackServer) -> None:
    channel(server, SLACK_CHANNEL=" #ops ").post("a")
    assert server.requests[0].body["channel"] == "#ops"


def test_white_space_around_the_token_is_none_of_it(server: SlackServer) -> None:
    channel(server, SLACK_BOT_TOKEN=f" {TOKEN}\n").post("a")
    assert server.requests[0].token == TOKEN


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (fault, NotPosted("Slack has a fault (HTTP 500); tried again later")),
        (wait("7"), NotPosted("Slack asked to wait 7 s (HTTP 429)", 7.0)),
        (wait("soon"), NotPosted("Slack asked to wait 30 s (HTTP 429)", 30.0)),
        (wait("1e9"), NotPosted("Slack asked to wait 3600 s (HTTP 429)", 3600.0)),
        (
            Answer(404, "<html>"),
            NotPosted("Slack answered HTTP 404; is alerts.slack.base_url right?"),
        ),
        (
            refuse("invalid_auth"),
            NotPosted(
                "Slack refused #corpus: invalid_auth; set SLACK_BOT_TOKEN to a valid bot token"
                " (xoxb-...), and restart what runs the sensors"
            ),
        ),
        (
            refuse("channel_not_found"),
            NotPosted(
                "Slack refused #corpus: channel_not_found; correct SLACK_CHANNEL or"
                " alerts.slack.channel, and invite the app into it"
            ),
        ),
        (
            refuse("<!channel>"),
            NotPosted(
                "Slack refused #corpus: an answer that is none of Slack's; look the error up in"
                " Slack's documentation of chat.postMessage"
            ),
        ),
        (
            refuse("fatal_error"),
            NotPosted(
                "Slack refused #corpus: fatal_error; look the error up in Slack's documentation"
                " of chat.postMessage"
            ),
        ),
    ],
)
def test_what_slack_did_not_take_comes_back_in_words(
    answer: Answer, failed: NotPosted, server: SlackServer
) -> None:
    server.answer(answer)
    assert channel(server).post("a") == failed
    assert len(server.requests) == 1  # nothing is tried twice behind our back


def test_a_server_that_is_stopped_or_hangs_is_said_to_be_out_of_reach(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1)
    server.answer(hang)
    out = NotPosted("Slack cannot be reached (TimeoutError); tried again later")
    assert channel(server).post("a") == out
    server.stop()
    stopped = channel(server).post("a")
    assert stopped == NotPosted("Slack cannot be reached (URLError); tried again later")


@pytest.mark.parametrize("token", ["", " \n"])
def test_without_a_token_there_is_no_channel(token: str) -> None:
    with pytest.raises(SettingsError, match="SLACK_BOT_TOKEN is not set; set it"):
        connect(settings({}), {"SLACK_BOT_TOKEN": token})


@pytest.mark.parametrize("token", ["xoxb-se\ncret", "xoxb-se cret", "xoxb-sécret"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(token: str) -> None:
    with pytest.raises(SettingsError, match="has characters that no token has") as refused:
        connect(settings({}), {"SLACK_BOT_TOKEN": token})
    assert "cret" not in str(refused.value)


def test_without_dagster_slack_the_error_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dagster_slack", None)
    module._resource_class.cache_clear()
    with pytest.raises(MissingExtra, match=r"type: pip install 'corpus-platform\[slack\]'"):
        connect(settings({}), {"SLACK_BOT_TOKEN": TOKEN})


@pytest.mark.parametrize("answer", [fault, wait("1"), refuse("invalid_auth"), refuse(TOKEN), hang])
def test_the_token_is_in_no_log_and_no_reason(
    answer: Answer,
    server: SlackServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1)
    server.answer(answer)
    slack = channel(server)
    failed = slack.post("a")
    logged = caplog.text if answer != refuse(TOKEN) else ""  # what a server says it logs itself
    assert TOKEN not in f"{failed} {slack} {logged}"


def test_alerts_are_wanted_by_the_settings_or_the_environment() -> None:
    assert not is_wanted(settings({}), {})
    assert not is_wanted(settings({}), {"SLACK_CHANNEL": " ", "SLACK_BOT_TOKEN": TOKEN})
    assert is_wanted(settings({"slack": {}}), {})
    assert is_wanted(settings({}), {"SLACK_CHANNEL": "#ops"})
