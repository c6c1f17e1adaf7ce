"""How often and how long is waited, and what may be shown of a location."""

import pytest

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import StorageError
from corpus_platform.storage.transfer import Patience, shown


def _patience(waits: list[float], jitter: float, **settings: float) -> Patience:
    asked = DownloadSettings.model_validate(settings)
    return Patience(asked, "host/file", sleep=waits.append, jitter=lambda: jitter)


def test_waits_double_up_to_the_longest() -> None:
    waits: list[float] = []
    patience = _patience(waits, 1.0, tries=6, first_wait_seconds=1.0, max_wait_seconds=6.0)
    for _ in range(5):
        patience.wait("HTTP 503")
    assert waits == [1.0, 2.0, 4.0, 6.0, 6.0]


def test_waits_are_random_down_to_nothing_even_when_they_are_long() -> None:
    waits: list[float] = []
    patience = _patience(waits, 0.5, tries=100, first_wait_seconds=1.0, max_wait_seconds=6.0)
    for _ in range(99):
        patience.wait("HTTP 503")
    assert waits[:4] == [0.5, 1.0, 2.0, 3.0]
    assert waits[-1] == 3.0


def test_what_a_server_asks_for_is_waited_at_least_and_bounded() -> None:
    waits: list[float] = []
    patience = _patience(waits, 0.5, first_wait_seconds=1.0, max_wait_seconds=30.0)
    patience.wait("HTTP 429", asked=7.0)
    patience.wait("HTTP 429", asked=1e9)
    assert waits == [7.5, 30.0]


def test_tries_that_bring_nothing_end_with_the_last_fault() -> None:
    patience = _patience([], 0.0, tries=3)
    patience.wait("HTTP 503")
    patience.wait("HTTP 503")
    with pytest.raises(
        StorageError, match=r"^host/file: broken pipe; given up after 3 tries that brought nothing"
    ):
        patience.wait("broken pipe")


def test_bytes_that_came_renew_patience() -> None:
    waits: list[float] = []
    patience = _patience(waits, 1.0, tries=2, first_wait_seconds=1.0)
    for _ in range(5):
        patience.began()
        patience.wait("broken pipe")
        patience.progressed()
    assert (waits, patience.attempts) == ([1.0] * 5, 5)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://user:secret@host:8/a%20b?X-Amz-Signature=s#f", "https://host:8/a%20b"),
        ("HTTPS://user:secret@host/a?sig=s", "https://host/a"),
        ("s3://user:secret@bucket/key", "s3://bucket/key"),
        ("http://[::1/a?sig=secret", "http://..."),
        ("/data/what?is#this", "/data/what?is#this"),
    ],
)
def test_no_secret_of_a_location_is_shown(location: str, expected: str) -> None:
    assert shown(location) == expected


def test_all_of_a_key_of_s3_is_shown_on_one_line() -> None:
    assert shown("s3://bucket/a@b?1#2") == "s3://bucket/a@b?1#2"
    assert shown("s3://bucket/a\nb") == "s3://bucket/a\\nb"
