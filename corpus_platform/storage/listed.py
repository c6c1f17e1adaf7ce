"""One file that a source lists, and the shard key that is made of its crawl and name."""

import re
from typing import NamedTuple

from corpus_platform.errors import SettingsError
from corpus_platform.storage.registry import Member
from corpus_platform.storage.transfer import shown

__all__ = ["Listed", "shard_key"]


class Listed(NamedTuple):
    """A file of a source: its crawl, its name below the crawl, and where it lies."""

    crawl: str
    name: str
    member: Member

    @property
    def key(self) -> str:
        """The key of a shard of this one file; raises SettingsError for what is no crawl's name."""
        return shard_key(self.crawl, self.name, location=self.member.location)


def shard_key(crawl: str, name: str, *, location: str) -> str:
    """Return `<crawl>/<name>`, with what Dagster refuses in a partition key escaped."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", crawl) or "..." in crawl:
        raise SettingsError(
            f"sources: {shown(location)}: {crawl!r} is no name of a crawl: letters, digits, . _ and -"
            " are wanted, without ..."
        )
    # Dagster refuses control characters and `...` in partition keys; a byte of a name that is not
    # UTF-8 stands in it as a lone surrogate, which no file of ours can hold.
    safe = re.sub(
        r"[\x00-\x1f\x7f%\udc80-\udcff]|\.(?=\.\.)", lambda m: f"%{ord(m[0]) & 0xFF:02X}", name
    )
    return f"{crawl}/{safe}"
