"""Files of this machine -> objects of S3, in blocks side by side.

An object keeps the sha256 of its file as metadata; what is there under that hash and size is not sent
again. An upload that fails is ended, so that the server keeps no parts of it; one whose process was
killed is gone on with by the next, where all its parts are those of the file. Names, and that the
manifest comes last, belong to whoever calls it.
"""

import contextlib
import hashlib
import logging
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any  # boto3's clients and answers are made at run time and have no type

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import CorpusError, SettingsError, SourceRefused, StorageError
from corpus_platform.storage.connections import Fault, Tally
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.transfer import Patience, Read
from corpus_platform.storage.upload_requests import Block, Blocks, Stopped, Target, md5_of

__all__ = ["BLOCK_BYTES", "MAX_PARTS", "Uploaded", "block_for", "put_bytes", "upload_file"]

_log = logging.getLogger(__name__)
# Of S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
LEAST_BLOCK, LARGEST_BLOCK, MAX_PARTS = 5 << 20, 5 << 30, 10_000
BLOCK_BYTES = 16 << 20  # files up to 168 GB; what a connection that breaks has to send again
_MIB = 1 << 20
_ENDS_WITHIN = 5.0  # seconds; what is on its way by then may be left behind on the server


@dataclass(frozen=True)
class Uploaded:
    """An object that is there: `transferred` bytes of it were sent now, in `attempts` requests."""

    bytes: int
    sha256: str
    etag: str
    transferred: int
    attempts: int


def block_for(size: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the block to send a file in: as asked, or larger where that makes too many parts."""
    if not LEAST_BLOCK <= block_bytes <= LARGEST_BLOCK:
        raise SettingsError(
            f"upload_block_size is {block_bytes}; S3 takes {LEAST_BLOCK} to {LARGEST_BLOCK} bytes"
        )
    least = -(-size // (MAX_PARTS * _MIB)) * _MIB
    if least > LARGEST_BLOCK:
        raise StorageError(
            f"{size} bytes are more than S3 holds in {MAX_PARTS} parts of {LARGEST_BLOCK}; make"
            " smaller files"
        )
    return max(block_bytes, least)


def upload_file(
    client: Any,
    path: Path,
    url: str,
    *,
    settings: DownloadSettings,
    block_bytes: int = BLOCK_BYTES,
    sha256: str | None = None,
    sent: Read = lambda count: None,
    patience: Patience | None = None,
) -> Uploaded:
    """Make a file an object, unless it is there; another object of that name is replaced at once.

    `sha256` is the file's, where the caller knows it; `sent` hears of bytes that are there. Raises
    SourceRefused when the server does not take it, StorageError when it cannot be sent now.
    """
    target, tally = Target(client, url, settings, patience), Tally(sent)
    try:
        with path.open("rb", buffering=0) as file:
            size = file.seek(0, 2)
            blocks = Blocks(path, file.fileno(), block_for(size, block_bytes))
            sha256 = sha256 or file_sha256(path)
            there = target.look()
            if target.differs(there, size, sha256) is None:
                tally.kept(size)
            else:
                there = _sent(blocks, target, sha256, settings.connections, tally)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    return _uploaded(target, there, size, sha256, tally.transferred)


def put_bytes(
    client: Any,
    url: str,
    data: bytes,
    *,
    settings: DownloadSettings,
    only_new: bool = False,
    patience: Patience | None = None,
) -> Uploaded:
    """Make a few bytes an object; with `only_new` another one of that name is not replaced.

    Raises SourceRefused where there is another.
    """
    target = Target(client, url, settings, patience)
    size, sha256 = len(data), hashlib.sha256(data).hexdigest()
    options: dict[str, Any] = {"IfNoneMatch": "*"} if only_new else {}
    transferred = size
    try:
        target.send(
            "put_object", lambda: data, md5_of(data), Metadata={"sha256": sha256}, **options
        )
    except SourceRefused:
        # Of a request whose answer was lost, or of an earlier run: it is there.
        if target.differs(target.look(), size, sha256) is not None:
            raise
        transferred = 0
    return _uploaded(target, target.look(), size, sha256, transferred)


def _uploaded(
    target: Target, there: dict[str, Any] | None, size: int, sha256: str, transferred: int
) -> Uploaded:
    """Return what is there; raises StorageError where it is not the file."""
    fault = target.differs(there, size, sha256)
    if there is None or fault:
        raise StorageError(f"{target.where}: after its upload {fault}; upload it again")
    return Uploaded(size, sha256, there.get("ETag", ""), transferred, target.turns.attempts)


def _sent(
    blocks: Blocks, target: Target, sha256: str, connections: int, tally: Tally
) -> dict[str, Any] | None:
    """Send a file; return what is told of the object then."""
    about = {"sha256": sha256}
    if blocks.count == 1:
        target.send("put_object", partial(Block, blocks, 1), blocks.md5(1), Metadata=about)
        blocks.check_unchanged()
        tally.came(blocks.size)
        return target.look()
    found = _find_upload(blocks, target)
    if found is not None:
        there = found.run(connections, tally, sha256)
        if target.differs(there, blocks.size, sha256) is None:
            return there
        tally.lost()  # it was begun for another file that begins like this one
    begun = target.ask("create_multipart_upload", Metadata=about)
    return _Upload(blocks, target, begun["UploadId"], {}).run(connections, tally, sha256)


def _find_upload(blocks: Blocks, target: Target) -> "_Upload | None":
    """Return an upload that was begun, and all of whose parts are those of the file."""
    with contextlib.suppress(SourceRefused):  # the keys may not list, or the server cannot
        for upload in target.uploads():
            known = dict(_matching(blocks, target.parts(upload)))
            if known and None not in known.values():
                return _Upload(
                    blocks, target, upload, {n: md5 for n, md5 in known.items() if md5 is not None}
                )
    return None


def _matching(
    blocks: Blocks, parts: Iterator[dict[str, Any]]
) -> Iterator[tuple[int, bytes | None]]:
    """Yield the MD5 of each part, ending with None at the first that is not the file's."""
    for part in parts:
        number = part["PartNumber"]
        if number <= blocks.count and part["Size"] == blocks.length(number):
            md5 = blocks.md5(number)
            if md5.hex() == part["ETag"].strip('"'):
                yield number, md5
                continue
        yield number, None
        return


class _Upload:
    """One upload in parts; of those that are there it holds the MD5 and ETag."""

    def __init__(self, blocks: Blocks, target: Target, name: str, known: dict[int, bytes]) -> None:
        self._blocks, self._target, self._name = blocks, target, name
        self._md5s = known
        self._etags = {number: f'"{md5.hex()}"' for number, md5 in known.items()}
        self._waiting = deque(n for n in range(1, blocks.count + 1) if n not in known)
        self._done: queue.Queue[int | BaseException] = queue.Queue()
        self._over = threading.Event()

    def run(self, connections: int, tally: Tally, sha256: str) -> dict[str, Any] | None:
        """Send what misses; return what is told of the object. Of a failure no part is left."""
        if self._md5s:
            tally.kept(sum(map(self._blocks.length, self._md5s)))
        missing = len(self._waiting)
        threads = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(connections, missing))
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in range(missing):
                done = self._done.get()
                if isinstance(done, BaseException):
                    raise done
                tally.came(self._blocks.length(done))
            self._blocks.check_unchanged()
            self._complete(sha256)
        except BaseException:
            self._abort(threads)
            raise
        there = self._target.look()
        if there is not None:
            self._check_whole(there)
        return there

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                number = self._waiting.popleft()
                md5 = self._blocks.md5(number)
                self._etags[number] = self._target.send(
                    "upload_part",
                    partial(Block, self._blocks, number, self._over),
                    md5,
                    stop=self._over,
                    UploadId=self._name,
                    PartNumber=number,
                )
                self._md5s[number] = md5
                self._done.put(number)
        except (IndexError, Stopped):  # none is left, or another thread failed
            return
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._done.put(error)

    def _complete(self, sha256: str) -> None:
        parts = [{"PartNumber": n, "ETag": self._etags[n]} for n in sorted(self._etags)]
        whole = {"UploadId": self._name, "MultipartUpload": {"Parts": parts}}
        try:
            self._target.ask("complete_multipart_upload", **whole)
        except SourceRefused:
            # It had completed, and the answer was lost: there is no such upload any more.
            there = self._target.look()
            if self._target.differs(there, self._blocks.size, sha256) is not None:
                raise

    def _check_whole(self, there: dict[str, Any]) -> None:
        """Compare the ETag with the MD5 of all MD5s, where the server makes it so."""
        if any(self._etags[n].strip('"') != md5.hex() for n, md5 in self._md5s.items()):
            return
        joined = b"".join(self._md5s[n] for n in sorted(self._md5s))
        expected = f"{md5_of(joined).hex()}-{len(self._md5s)}"
        etag = there.get("ETag", "").strip('"')
        if re.fullmatch(r"[0-9a-f]{32}-\d+", etag) and etag != expected:
            raise StorageError(
                f"{self._target.where}: its ETag is {etag}, that of the file is {expected}; upload"
                " it again"
            )

    def _abort(self, threads: list[threading.Thread]) -> None:
        """Have the server forget the parts, after those on their way have ended."""
        self._over.set()
        deadline = time.monotonic() + _ENDS_WITHIN
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))
        try:
            self._target.once("abort_multipart_upload", UploadId=self._name)
        except (Fault, CorpusError) as error:
            words = "%s: what was uploaded of it may be left on the server (%s); run again to go on"
            _log.warning(words, self._target.where, error)
