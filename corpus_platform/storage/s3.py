"""Objects of S3 and of servers that speak it: listed, and fetched in parts to a file.

All parts of a download are of one version: each request names the ETag of the first answer
(`If-Match`), and each answer is compared with it, since some servers ignore that. An ETag is never
taken for a hash of the bytes: it is none for objects that were uploaded in parts or are encrypted
with keys of KMS or the customer. Keys are any text; none becomes a path here.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any  # boto3's clients are made at run time and have no type

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage.connections import (
    Answer,
    Fault,
    Replaced,
    Tally,
    Turns,
    fetch_missing,
)
from corpus_platform.storage.parts import Origin, PartsFile
from corpus_platform.storage.s3_requests import (
    KEYS,
    OutOfRange,
    Source,
    call,
    same_etag,
    split,
    where,
)
from corpus_platform.storage.transfer import Fetched, Patience, Read, Whole

__all__ = ["S3Object", "connect", "get_bytes", "get_file", "list_objects"]


@dataclass(frozen=True)
class S3Object:
    """One entry of a listing; `etag` names its version."""

    key: str
    bytes: int
    etag: str | None


def connect(settings: S3Settings, download: DownloadSettings) -> Any:
    """Return a client of boto3; keys come from AWS's environment variables and files."""
    config = Config(
        signature_version=botocore.UNSIGNED if settings.anonymous else None,
        region_name=settings.region,
        connect_timeout=download.timeout_seconds,
        read_timeout=download.timeout_seconds,
        max_pool_connections=download.connections * download.jobs,
        retries={"total_max_attempts": 1, "mode": "standard"},  # Patience does it, and counts
        s3={"addressing_style": "path"} if settings.endpoint_url else None,
        request_checksum_calculation="when_required",  # other servers than AWS stumble over it
        response_checksum_validation="when_required",
    )
    try:
        # Not the default session: threads may not share that while it is made.
        return boto3.session.Session().client(
            "s3", endpoint_url=settings.endpoint_url, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"s3: no client can be made: {error}; {KEYS}") from error


def list_objects(
    client: Any, url_prefix: str, *, settings: DownloadSettings, patience: Patience | None = None
) -> Iterator[S3Object]:
    """Yield all objects whose URL begins so, in the order of the server, their keys as they are.

    Objects of no bytes that stand for folders (`key/`) are left out.
    """
    bucket, prefix = split(url_prefix)
    turns = Turns(patience or Patience(settings, where(bucket, prefix)))
    place: dict[str, str] = {}
    while True:
        page = turns.until_answered(partial(_page, client, bucket, prefix, place))
        turns.progressed()
        for row in page.get("Contents", ()):
            if not (row["Key"].endswith("/") and row["Size"] == 0):
                yield S3Object(row["Key"], row["Size"], row.get("ETag"))
        if not page.get("IsTruncated"):
            return
        before, place = place, {"ContinuationToken": page.get("NextContinuationToken", "")}
        if place == before or not place["ContinuationToken"]:
            raise StorageError(
                f"{where(bucket, prefix)}: the server says the listing goes on, but not where;"
                " it would be incomplete"
            )


def get_bytes(
    client: Any,
    url: str,
    *,
    settings: DownloadSettings,
    max_bytes: int,
    patience: Patience | None = None,
) -> bytes:
    """Return a small object; raises SourceRefused when it has more than `max_bytes`."""
    source = Source(client, url)
    turns = Turns(patience or Patience(settings, source.where))

    def whole() -> bytes:
        answer = source.ask(0, None)
        try:
            if answer.total > max_bytes:
                raise SourceRefused(
                    f"{source.where}: it has {answer.total} bytes; {max_bytes} are read of such"
                )
            return _read_whole(answer)
        finally:
            answer.body.close()

    return turns.until_answered(whole)


def get_file(
    client: Any,
    url: str,
    target: Path,
    *,
    settings: DownloadSettings,
    read: Read,
    version: str | None = None,
    expect: int | None = None,
    patience: Patience | None = None,
    whole: Whole | None = None,
) -> Fetched:
    """Fetch an object to a file, going on from what an earlier process left of it.

    `version` is the ETag it must have, `expect` the length; without a version an object that is
    replaced meanwhile is fetched anew. `whole` is called just before the file gets its name. Raises
    SourceRefused when it is not given or not that one, StorageError when it cannot be had now.
    """
    source = Source(client, url)
    patience = patience or Patience(settings, source.where)
    tally = Tally(read)
    for _ in range(settings.tries):
        download = _Download(source, target, settings, tally, Turns(patience))
        try:
            return download.run(version, expect, whole)
        except Replaced as replaced:
            if version is not None:
                raise _other_version(source, version, replaced.etag) from replaced
            tally.lost()
            PartsFile.remove(target)
            continue
        except OSError as error:
            raise StorageError(f"{target}: cannot be written: {error}; run again") from error
    raise StorageError(
        f"{source.where}: it was replaced during each of {settings.tries} downloads; run again"
    )


class _Download:
    """One way from the first request to the published file, of one version."""

    def __init__(
        self,
        source: Source,
        target: Path,
        settings: DownloadSettings,
        tally: Tally,
        turns: Turns,
    ) -> None:
        self._source, self._target, self._settings = source, target, settings
        self._tally, self._turns = tally, turns

    def run(self, version: str | None, expect: int | None, whole: Whole | None) -> Fetched:
        """Return what was published; `whole` hears of it before."""
        file, first = self._open(version, expect)
        with file:
            origin = file.origin
            self._check_room(file)
            self._tally.kept(file.kept)
            fetch_missing(
                file,
                lambda start, end: self._source.ask(start, end, origin=origin),
                first=first,
                connections=self._settings.connections,
                part_bytes=self._settings.part_bytes,
                turns=self._turns,
                tally=self._tally,
            )
            fetched = Fetched(
                bytes=origin.bytes,
                sha256=file.finish(),
                length_known=True,
                version=origin.etag,
                transferred=self._tally.transferred,
                attempts=self._turns.attempts,
            )
            if whole is not None:
                whole(fetched)
            file.publish()
            return fetched

    def _open(self, version: str | None, expect: int | None) -> tuple[PartsFile, Answer | None]:
        """Return the file to go on with, or a new one and the answer that brings its first part."""
        file = PartsFile.reopen(self._target, self._source.url)
        if file is not None:
            if _is_wanted(file.origin, version, expect):
                return file, None
            file.close()
        first = self._first(version)
        try:
            self._check_length(first, expect)
            origin = Origin(self._source.url, first.etag, first.total)
            return PartsFile.create(self._target, origin), first
        except BaseException:
            first.body.close()
            raise

    def _first(self, version: str | None) -> Answer:
        ask = partial(self._source.ask, 0, version=version)
        try:
            return self._turns.until_answered(partial(ask, self._settings.part_bytes))
        except OutOfRange:
            return self._turns.until_answered(partial(ask, None))  # there are no bytes

    def _check_room(self, file: PartsFile) -> None:
        """Refuse what the disk cannot hold before it is fetched; disks that tell nothing are left."""
        disk = shutil.disk_usage(self._target.parent)
        missing = file.origin.bytes - file.occupied
        if disk.total and missing > disk.free:
            raise StorageError(
                f"{self._target}: {missing} more bytes of {self._source.where} are to come,"
                f" {disk.free} are free on this disk; make room and run again"
            )

    def _check_length(self, first: Answer, expect: int | None) -> None:
        if expect not in (None, first.total):
            raise SourceRefused(
                f"{self._source.where}: it has {first.total} bytes, its listing says {expect};"
                " list it anew"
            )


def _is_wanted(origin: Origin, version: str | None, expect: int | None) -> bool:
    return (version is None or same_etag(origin.etag, version)) and expect in (None, origin.bytes)


def _other_version(source: Source, version: str, etag: str | None) -> SourceRefused:
    now = etag or source.present_etag() or "another"
    return SourceRefused(
        f"{source.where}: its ETag is {now}, its listing says {version}: the object was replaced;"
        " list it anew"
    )


def _page(client: Any, bucket: str, prefix: str, place: dict[str, str]) -> dict[str, Any]:
    """Return a page of a listing; boto3 asks for encoded keys and decodes them."""
    named = where(bucket, prefix)
    page = call(client.list_objects_v2, named, Bucket=bucket, Prefix=prefix, **place)
    if "IsTruncated" not in page:  # any XML is taken for an empty page
        raise SourceRefused(f"{named}: the answer is no listing; is s3.endpoint_url an S3 server?")
    return page


def _read_whole(answer: Answer) -> bytes:
    blocks, left = [], answer.total
    while left:
        block = answer.body.read(left)
        if not block:
            raise Fault(f"the answer ended {left} bytes early")
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)
