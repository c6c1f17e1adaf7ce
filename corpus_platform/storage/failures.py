"""Why a shard could not be fetched at last: one small file per shard, gone when it could.

What is there is for people to read: nothing decides by it.
"""

import json
from pathlib import Path

from corpus_platform.storage.files import publish_bytes, read_if_there, safe_name

__all__ = ["Failures"]


class Failures:
    """The last failure of each shard, in words."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, key: str, reason: str) -> None:
        """Remember why a shard could not be fetched."""
        data = json.dumps({"reason": reason, "shard": key}, indent=1, sort_keys=True) + "\n"
        publish_bytes(self._path(key), data.encode())

    def forget(self, key: str) -> None:
        """Remember nothing of a shard any more."""
        self._path(key).unlink(missing_ok=True)

    def reason(self, key: str) -> str | None:
        """Return why a shard could not be fetched when that was tried last, None where it could."""
        try:
            return json.loads(read_if_there(self._path(key)) or b"{}").get("reason")
        except (ValueError, AttributeError):  # no file of ours
            return None

    def _path(self, key: str) -> Path:
        crawl, name = key.split("/", 1)
        return self._folder / safe_name(crawl) / f"{safe_name(name)}.json"
