"""Single requests to S3, and what its answers and refusals mean to those who asked.

An answer is checked to be the range and the version that was asked for: some servers ignore
`Range` or `If-Match`. Refusals name bucket, key, code and what helps; never what was signed.
"""

import re
from collections.abc import Container
from typing import Any  # boto3's clients and answers are made at run time and have no type

from botocore import exceptions
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage.connections import Answer, Fault, Replaced
from corpus_platform.storage.parts import Origin
from corpus_platform.storage.transfer import shown

__all__ = ["KEYS", "OutOfRange", "Source", "call", "same_etag", "split", "where"]

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", re.ASCII)
KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN too for temporary keys) or"
    " AWS_PROFILE, or `s3: {anonymous: true}` for a public bucket"
)
# What helps when S3 refuses with a code; https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_WAYS_OUT = {
    "NoSuchBucket": "check the name of the bucket, and s3.endpoint_url",
    "NoSuchKey": "the object was deleted or its listing is wrong",
    "404": "the object was deleted or its listing is wrong",
    "AccessDenied": f"the keys may not do that: {KEYS}",
    "403": f"the keys may not do that: {KEYS}",
    "InvalidAccessKeyId": f"the server does not know the key: {KEYS}",
    "SignatureDoesNotMatch": f"the secret does not fit the key: {KEYS}",
    "ExpiredToken": f"the keys have expired: {KEYS}",
    "InvalidToken": f"the session token does not fit the key: {KEYS}",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "PermanentRedirect": "the bucket is in another region: set s3.region",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set s3.region",
    "InvalidObjectState": "the object is archived: restore it first",
    "NoSuchUpload": "the upload was ended by another process or a rule of the bucket: run again",
    "EntityTooLarge": "the server takes no object of that size: make smaller files",
    "PreconditionFailed": "there is an object of that name already",
}
# Of no connection, a broken one, and an answer that is not S3's (of a proxy).
_CONNECTIONS = (exceptions.HTTPClientError, exceptions.ConnectionError, ResponseParserError)
# Codes below 500 after which the same request may succeed.
_PASSING = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestThrottled", "OperationAborted", "BadDigest", "XAmzContentSHA256Mismatch"}  # fmt: skip


class Source:
    """One object, asked for ranges of its bytes."""

    def __init__(self, client: Any, url: str) -> None:
        self.url, self._client = url, client
        self._bucket, self._key = split(url)
        self.where = where(self._bucket, self._key)
        if not self._key:
            raise SettingsError(f"{self.where}: it names a bucket, the URL of an object is wanted")

    def ask(
        self,
        start: int,
        end: int | None,
        *,
        origin: Origin | None = None,
        version: str | None = None,
    ) -> Answer:
        """Return an answer that begins at `start`, of the version of `origin` when it is given.

        Without `end` it is all of the object. Raises Fault, Replaced, SourceRefused, and OutOfRange
        for a range of an object of no bytes.
        """
        pinned = origin.etag if origin else version
        options = {"IfMatch": pinned} if pinned else {}
        if end is not None:
            options["Range"] = f"bytes={start}-{end - 1}"
        try:
            got = call(
                self._client.get_object, self.where, Bucket=self._bucket, Key=self._key, **options
            )
        except OutOfRange as error:
            if start:
                raise Replaced from error  # it is shorter now
            raise
        answer = self._answer(got)
        try:
            self._check(answer, start, end, origin, pinned)
        except BaseException:
            answer.body.close()
            raise
        return answer

    def present_etag(self) -> str | None:
        """Return the ETag it has now, None where that cannot be told."""
        try:
            head = call(self._client.head_object, self.where, Bucket=self._bucket, Key=self._key)
        except (Fault, StorageError):
            return None
        return head.get("ETag")

    def _answer(self, got: dict[str, Any]) -> Answer:
        body, etag, length = _Body(got["Body"]), got.get("ETag"), got.get("ContentLength")
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", got.get("ContentRange") or "", re.ASCII)
        if found:
            first, last, total = map(int, found.groups())
        elif length is not None and not got.get("ContentRange"):
            first, last, total = 0, length - 1, length
        else:
            etag = None
        if not etag:
            body.close()
            raise SourceRefused(
                f"{self.where}: the answer names no length or no ETag; is this an S3 server?"
            )
        return Answer(first, last + 1, total, etag, body)

    def _check(
        self, answer: Answer, start: int, end: int | None, origin: Origin | None, pinned: str | None
    ) -> None:
        if pinned and not same_etag(answer.etag, pinned):
            raise Replaced(answer.etag)
        if origin and answer.total != origin.bytes:
            raise Replaced(answer.etag)
        wanted = answer.total if end is None else min(end, answer.total)
        if answer.start != start or answer.end > wanted:
            raise SourceRefused(
                f"{self.where}: asked for bytes {start}-{wanted - 1} of it, the server gave"
                f" {answer.start}-{answer.end - 1}; set download.part_bytes to {answer.total} or"
                " more for a server that knows no ranges"
            )
        if answer.end <= start and wanted > start:
            raise Fault("the answer holds no bytes")


class _Body:
    """The body of an answer, whose breaks are Faults."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes, none at the end."""
        try:
            return self._stream.read(size)
        except (exceptions.BotoCoreError, HTTPError, OSError, ValueError) as error:
            raise Fault(f"the connection broke ({type(error).__name__})") from error

    def close(self) -> None:
        """Let go of it."""
        self._stream.close()


class OutOfRange(Exception):
    """The server has no bytes in the range that was asked for."""


def call(method: Any, where: str, **parameters: Any) -> dict[str, Any]:
    """Return S3's answer; raises Fault, Replaced, OutOfRange, SourceRefused, SettingsError.

    Of a refusal only its code is told: its text may hold what was signed.
    """
    try:
        return method(**parameters)
    except exceptions.ClientError as error:
        raise _judged(error, where, parameters) from error
    except _CONNECTIONS as error:
        raise Fault(f"{type(error).__name__}: {_short(error)}") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise SettingsError(f"{where}: no complete keys for S3 were found: {KEYS}") from error
    except exceptions.BotoCoreError as error:
        raise SettingsError(f"{where}: {type(error).__name__}: {_short(error)}; {KEYS}") from error


def _judged(error: exceptions.ClientError, where: str, asked_for: Container[str]) -> Exception:
    about = error.response.get("ResponseMetadata", {})
    code = str(error.response.get("Error", {}).get("Code") or "no code")
    status = about.get("HTTPStatusCode", 0)
    if status == 412 and "IfMatch" in asked_for:
        return Replaced()
    if status == 416 and "Range" in asked_for:
        return OutOfRange()
    fails = status >= 500 and code != "NotImplemented"
    if fails or status == 429 or code in _PASSING:
        asked = about.get("HTTPHeaders", {}).get("retry-after", "")
        return Fault(f"{code} (HTTP {status})", asked=float(asked) if asked.isdecimal() else None)
    way_out = _WAYS_OUT.get(code, "S3 will not answer this otherwise")
    return SourceRefused(f"{where}: {code} (HTTP {status}); {way_out}")


def split(url: str) -> tuple[str, str]:
    """Return bucket and key of `s3://bucket/key`; the key is all the rest, with nothing decoded."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not _BUCKET.fullmatch(bucket):
        raise SettingsError(f"{shown(url)}: an address such as s3://bucket/key is wanted")
    return bucket, key


def where(bucket: str, key: str) -> str:
    """Return how messages name an object, on one line."""
    return f"s3://{bucket}/{key if key.isprintable() else repr(key)[1:-1]}"


def same_etag(one: str, other: str) -> bool:
    """Tell whether two ETags are the same; some servers leave out the quotes in listings."""
    return one.strip('"') == other.strip('"')


def _short(error: Exception) -> str:
    """Return what an error says, without queries and passwords of addresses."""
    return re.sub(r"https?://[^\s\"']+", lambda found: shown(found[0]), str(error))[:300]
