"""Small questions to S3 about one object: what it is, and that it go."""

from typing import Any  # boto3's clients are made at run time and have no type

from corpus_platform.config import DownloadSettings
from corpus_platform.storage.upload_requests import Target

__all__ = ["delete", "look"]


def look(client: Any, url: str, *, settings: DownloadSettings) -> tuple[int, str | None] | None:
    """Return the bytes of an object and the sha256 in its metadata; None where there is none.

    One that the keys may not see counts as none.
    """
    there = Target(client, url, settings, None).look()
    return (
        None if there is None else (there["ContentLength"], there.get("Metadata", {}).get("sha256"))
    )


def delete(client: Any, url: str, *, settings: DownloadSettings) -> None:
    """Delete an object; none is none."""
    Target(client, url, settings, None).ask("delete_object")
