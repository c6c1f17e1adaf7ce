"""Slack: one channel that texts are posted to, through dagster-slack.

A text that was not posted comes back as a value that says why, in words, and how long to wait. The
token is in none of them. dagster-slack is an extra, and is imported when it is first needed.
"""

import functools
import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corpus_platform.config import Settings, SlackSettings
from corpus_platform.errors import MissingExtra, SettingsError

if TYPE_CHECKING:
    from dagster_slack import SlackResource
    from slack_sdk.errors import SlackApiError

__all__ = ["CHANNEL", "TOKEN", "NotPosted", "Slack", "connect", "is_wanted"]

TOKEN, CHANNEL = "SLACK_BOT_TOKEN", "SLACK_CHANNEL"
TIMEOUT_SECONDS = 10
LONGEST_WAIT_SECONDS = 3600.0  # whatever a server asks for
AUTH = f"set {TOKEN} to a valid bot token (xoxb-...), and restart what runs the sensors"
WAYS_OUT = {
    "invalid_auth": AUTH,
    "not_authed": AUTH,
    "token_expired": AUTH,
    "token_revoked": AUTH,
    "account_inactive": AUTH,
    "missing_scope": "give the app the scope chat:write, and install it again",
    "channel_not_found": f"correct {CHANNEL} or alerts.slack.channel, and invite the app into it",
    "not_in_channel": "invite the app into the channel",
    "is_archived": f"name another channel in {CHANNEL} or alerts.slack.channel",
}
ELSE = "look the error up in Slack's documentation of chat.postMessage"


@dataclass(frozen=True)
class NotPosted:
    """Why a text was not posted, and for how many seconds Slack wants to be left alone."""

    reason: str
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class Slack:
    """A channel, and what it takes to post to it."""

    resource: "SlackResource" = field(repr=False)  # it holds the token
    channel: str

    def post(self, text: str) -> NotPosted | None:
        """Post a text as it stands; return why it could not be, None when Slack took it."""
        from slack_sdk.errors import SlackApiError

        try:
            self.resource.get_client().chat_postMessage(
                channel=self.channel,
                text=text,
                parse="none",
                link_names=False,
                unfurl_links=False,
                unfurl_media=False,
            )
        except SlackApiError as error:
            return _refused(error, self.channel)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return NotPosted(f"Slack cannot be reached ({type(error).__name__}); tried again later")
        return None


def is_wanted(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Tell whether alerts are to be sent at all."""
    return settings.alerts.slack is not None or bool(environment.get(CHANNEL, "").strip())


def connect(settings: Settings, environment: Mapping[str, str]) -> Slack:
    """Return the channel that settings and environment name.

    Raises SettingsError without a usable token, MissingExtra without dagster-slack.
    """
    slack = settings.alerts.slack or SlackSettings()
    token = environment.get(TOKEN, "").strip()
    if not token:
        raise SettingsError(
            f"no alert can be sent: {TOKEN} is not set; set it to the app's bot token, and restart"
            " what runs the sensors"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise SettingsError(
            f"no alert can be sent: {TOKEN} has characters that no token has; copy it again"
        )
    channel = environment.get(CHANNEL, "").strip() or slack.channel
    base_url = slack.base_url.rstrip("/") + "/"
    return Slack(_resource_class()(token=token, base_url=base_url), channel)


@functools.cache
def _resource_class() -> type["SlackResource"]:
    """Return dagster-slack's resource, with an address of the API and a time limit."""
    try:
        from dagster_slack import SlackResource
        from slack_sdk import WebClient
    except ImportError as error:
        raise MissingExtra(
            "no alert can be sent: dagster-slack is not installed;"
            " type: pip install 'corpus-platform[slack]'"
        ) from error

    class ChannelResource(SlackResource):
        base_url: str

        def get_client(self) -> WebClient:
            # Nothing is sent twice here: after a broken connection Slack may have taken the text.
            return WebClient(
                self.token, base_url=self.base_url, timeout=TIMEOUT_SECONDS, retry_handlers=[]
            )

    return ChannelResource


def _refused(error: "SlackApiError", channel: str) -> NotPosted:
    """Say in words what Slack answered."""
    answer = error.response
    status, name = int(answer.status_code), str(answer.get("error"))
    if not re.fullmatch("[a-z_]{1,60}", name):  # not Slack's: nothing of it is repeated
        name = "an answer that is none of Slack's"
    if status == 429 or name == "ratelimited":
        wait = _seconds(answer.headers)
        return NotPosted(f"Slack asked to wait {wait:.0f} s (HTTP 429)", wait)
    if status >= 500:
        return NotPosted(f"Slack has a fault (HTTP {status}); tried again later")
    if status != 200:
        return NotPosted(f"Slack answered HTTP {status}; is alerts.slack.base_url right?")
    return NotPosted(f"Slack refused {channel}: {name}; {WAYS_OUT.get(name, ELSE)}")


def _seconds(headers: Mapping[str, str]) -> float:
    """Return how long to wait after HTTP 429: what Retry-After says, else half a minute."""
    given = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    try:
        return min(max(float(given), 1.0), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 30.0
