"""Single requests that make an object of S3 out of blocks of a file, and what their answers mean.

A block is read twice, for its MD5 and to be sent, and never held: memory does not grow with it. The
server compares it with its MD5; we compare what the server says of it.
"""

import base64
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any  # boto3's clients and answers are made at run time and have no type

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage.connections import BLOCK, Fault, Turns
from corpus_platform.storage.s3_requests import call, split, where
from corpus_platform.storage.transfer import Patience

__all__ = ["Block", "Blocks", "Stopped", "Target", "md5_of"]

_MD5 = re.compile(r"[0-9a-f]{32}", re.ASCII)


def md5_of(data: bytes) -> bytes:
    """Return the MD5 of bytes; here it finds what broke on the way and protects from nobody."""
    return hashlib.md5(data, usedforsecurity=False).digest()


class Stopped(Exception):
    """Another block failed: this one is not sent any further."""


class Blocks:
    """An open file in blocks, the last of them shorter; numbers begin at 1. Threads may share it."""

    def __init__(self, path: Path, descriptor: int, block: int) -> None:
        self.path, self.descriptor, self.block = path, descriptor, block
        self._about = os.fstat(descriptor)
        self.size = self._about.st_size
        self.count = max(1, -(-self.size // block))

    def length(self, number: int) -> int:
        """Return the bytes of a block."""
        return min(self.block, self.size - (number - 1) * self.block)

    def md5(self, number: int) -> bytes:
        """Return the MD5 of a block."""
        block, digest = Block(self, number), hashlib.md5(usedforsecurity=False)
        while data := block.read(BLOCK):
            digest.update(data)
        return digest.digest()

    def check_unchanged(self) -> None:
        """Raise StorageError when the file was changed since it was opened."""
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._about.st_mtime_ns):
            raise StorageError(f"{self.path}: was changed while it was uploaded; upload it again")


class Block:
    """One block, as boto3 reads it; once `stop` is set it breaks off."""

    def __init__(self, blocks: Blocks, number: int, stop: threading.Event | None = None) -> None:
        self._blocks, self._stop, self._at = blocks, stop, 0
        self._start, self._length = (number - 1) * blocks.block, blocks.length(number)
        self.failed: Exception | None = None

    def read(self, size: int | None = -1) -> bytes:
        """Return up to so many bytes and BLOCK at the most; all that are left without a size.

        botocore asks for a MiB at a time, and holds the one before meanwhile.
        """
        if self._stop is not None and self._stop.is_set():
            raise Stopped
        left = self._length - self._at
        wanted = left if size is None or size < 0 else min(size, left, BLOCK)
        try:
            data = os.pread(self._blocks.descriptor, wanted, self._start + self._at)
            if wanted and not data:
                self._blocks.check_unchanged()
        except (OSError, StorageError) as error:
            self.failed = error  # boto3 takes it for a broken connection
            raise
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        self._at = offset + {0: 0, 1: self._at, 2: self._length}[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at


class Target:
    """One object to be, and the requests about it; all of them share one patience."""

    def __init__(
        self, client: Any, url: str, settings: DownloadSettings, patience: Patience | None
    ) -> None:
        self._client = client
        self._bucket, self._key = split(url)
        self.where = where(self._bucket, self._key)
        if not self._key:
            raise SettingsError(f"{self.where}: it names a bucket, the URL of an object is wanted")
        self.turns = Turns(patience or Patience(settings, self.where))

    def once(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Make a request of boto3's name; raises Fault too."""
        method = getattr(self._client, name)
        return call(method, self.where, Bucket=self._bucket, Key=self._key, **parameters)

    def ask(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Make a request until it is answered."""
        answer = self.turns.until_answered(partial(self.once, name, **parameters))
        self.turns.progressed()
        return answer

    def send(
        self,
        name: str,
        body: Callable[[], Block | bytes],
        md5: bytes,
        *,
        stop: threading.Event | None = None,
        **parameters: Any,
    ) -> str:
        """Send bytes until they have arrived, from `body` anew each time; return their ETag."""
        in_base64 = base64.b64encode(md5).decode()
        while stop is None or not stop.is_set():
            turn, data = self.turns.began(), body()
            try:
                answer = self.once(name, Body=data, ContentMD5=in_base64, **parameters)
                _check_arrived(answer, md5)
                self.turns.progressed()
                return answer["ETag"]
            except Fault as fault:
                if isinstance(data, Block) and data.failed is not None:
                    raise data.failed from fault
                if stop is None or not stop.is_set():
                    self.turns.wait(turn, fault)
        raise Stopped

    def uploads(self) -> list[str]:
        """Return the uploads of this object that were begun, the newest first."""
        listed = self._client.list_multipart_uploads
        place: dict[str, str] = {}
        found = []
        while True:
            page = self.turns.until_answered(
                partial(call, listed, self.where, Bucket=self._bucket, Prefix=self._key, **place)
            )
            found += [u for u in page.get("Uploads", ()) if u["Key"] == self._key]
            if not page.get("IsTruncated") or not page.get("NextKeyMarker"):
                found.sort(key=lambda upload: upload["Initiated"], reverse=True)
                return [upload["UploadId"] for upload in found]
            place = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page.get("NextUploadIdMarker", ""),
            }

    def parts(self, upload: str) -> Iterator[dict[str, Any]]:
        """Yield what is there of an upload."""
        place: dict[str, int] = {}
        while True:
            page = self.ask("list_parts", UploadId=upload, **place)
            yield from page.get("Parts", ())
            if not page.get("IsTruncated") or not page.get("NextPartNumberMarker"):
                return
            place = {"PartNumberMarker": page["NextPartNumberMarker"]}

    def look(self) -> dict[str, Any] | None:
        """Return what is told of the object, None where there is none that may be seen."""
        try:
            return self.ask("head_object")
        except SourceRefused:
            return None

    def differs(self, there: dict[str, Any] | None, size: int, sha256: str) -> str | None:
        """Return in what the object is not the file, None where it is."""
        if there is None:
            return "it is not there"
        if there.get("ContentLength") != size:
            return f"it has {there.get('ContentLength')} bytes, the file {size}"
        kept = there.get("Metadata", {}).get("sha256")
        return None if kept == sha256 else f"its metadata sha256 is {kept}, the file's is {sha256}"


def _check_arrived(answer: dict[str, Any], md5: bytes) -> None:
    """Raise Fault when the server got other bytes; of encrypted ones its ETag says nothing."""
    etag = answer.get("ETag", "").strip('"')
    sealed = answer.get("SSECustomerAlgorithm") or "kms" in answer.get("ServerSideEncryption", "")
    if _MD5.fullmatch(etag) and not sealed and etag != md5.hex():
        raise Fault(f"bytes of MD5 {md5.hex()} arrived as {etag}")
