"""What every way of fetching a file shares: what it returns, how long it is patient, what is told.

Bytes land in a file of the caller's choice, resumable there; what they are fetched for, and whether
they are the right ones, is the caller's to say.
"""

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import StorageError

__all__ = ["Fetched", "Patience", "Read", "Whole", "shown"]

_log = logging.getLogger(__name__)
LONG_SECONDS = 5.0

Read = Callable[[int], None]  # hears of bytes that are there; of negative ones when they are lost


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched whole: its bytes and hash.

    `length_known`: whether the source said how long it is. `version` is the ETag or time by which
    the source named it. `transferred` are the bytes that came over the network in this process,
    `attempts` the requests it took.
    """

    bytes: int
    sha256: str
    length_known: bool
    version: str | None
    transferred: int
    attempts: int


Whole = Callable[[Fetched], None]  # hears of a file that is whole, before it gets its name


@dataclass
class Patience:
    """How often and after which waits a request is made again; shared by all requests of a file.

    Waits are random up to a bound that doubles (full jitter), so that many clients do not come
    back at one time. `attempts` counts requests; `began` is to be called before each.
    """

    settings: DownloadSettings
    where: str
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    attempts: int = 0
    failures: int = field(default=0, init=False)

    def began(self) -> None:
        """Count a request."""
        self.attempts += 1

    def progressed(self) -> None:
        """Forget failures: bytes came."""
        self.failures = 0

    def wait(self, fault: str, *, asked: float | None = None) -> None:
        """Wait before the next try, at least as long as a server asked for; bounded.

        Raises StorageError, naming the last fault, when there were too many tries without a byte.
        """
        self.failures += 1
        if self.failures >= self.settings.tries:
            raise StorageError(
                f"{self.where}: {fault}; given up after {self.failures} tries that brought nothing"
                " (download.tries); run again to go on"
            )
        seconds = self._seconds(asked or 0.0)
        # The first fault, and long waits, are what a person in front of a silent command asks for.
        level = logging.WARNING if self.failures == 1 or seconds >= LONG_SECONDS else logging.INFO
        words = "%s: %s; try %d of %d in %.1f s"
        tries = (self.failures + 1, self.settings.tries)
        _log.log(level, words, self.where, fault, *tries, seconds)
        self.sleep(seconds)

    def _seconds(self, asked: float) -> float:
        """Return how long to wait. The random part is bounded before it is drawn, and comes on top
        of what was asked for: else all clients of a long outage come back at one time."""
        longest = self.settings.max_wait_seconds
        bound = min(self.settings.first_wait_seconds * 2.0 ** (self.failures - 1), longest)
        return min(asked + bound * self.jitter(), longest)


def shown(location: str) -> str:
    """Return a location as it may be shown and kept: without user, password and query.

    A query often carries a signature, which is a secret. A location of S3 has none: whatever is
    behind the bucket is the key, shown on one line.
    """
    if location.startswith("s3://"):
        bucket, slash, key = location.removeprefix("s3://").partition("/")
        whole = f"s3://{bucket.rpartition('@')[2]}{slash}{key}"
        return whole if whole.isprintable() else repr(whole)[1:-1]
    scheme = re.match(r"[a-z][a-z0-9+.-]*://", location, re.IGNORECASE)
    if scheme is None:
        return location
    try:
        parts = urlsplit(location)
    except ValueError:  # such as a bracket that is not closed
        return f"{scheme[0]}..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
