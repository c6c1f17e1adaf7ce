"""Small questions to S3 about one object: what it is, and that it go."""

from functools import partial
from typing import Any  # boto3's clients are made at run time and have no type

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import SourceRefused
from corpus_platform.storage.connections import Turns
from corpus_platform.storage.s3_requests import call, split, where
from corpus_platform.storage.transfer import Patience

__all__ = ["delete", "look"]


def look(client: Any, url: str, *, settings: DownloadSettings) -> tuple[int, str | None] | None:
    """Return the bytes of an object and the sha256 in its metadata; None where there is none.

    One that the keys may not see counts as none.
    """
    try:
        head = _ask(client.head_object, url, settings)
    except SourceRefused:
        return None
    return head["ContentLength"], head.get("Metadata", {}).get("sha256")


def delete(client: Any, url: str, *, settings: DownloadSettings) -> None:
    """Delete an object; none is none."""
    _ask(client.delete_object, url, settings)


def _ask(method: Any, url: str, settings: DownloadSettings) -> dict[str, Any]:
    bucket, key = split(url)
    name = where(bucket, key)
    turns = Turns(Patience(settings, name))
    return turns.until_answered(partial(call, method, name, Bucket=bucket, Key=key))
