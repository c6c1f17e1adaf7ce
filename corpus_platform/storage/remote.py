"""Whatever is not on this machine, by its location: http, https, s3 and hf.

One object serves a command or a run; its S3 client is made when it is first needed. The clients of
HTTP and S3 are loaded then too: each takes a quarter of a second, and most corpora lie on a disk.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any  # boto3's clients are made at run time and have no type
from urllib.parse import urlsplit

from corpus_platform.config import DownloadSettings, S3Settings, SourceSettings
from corpus_platform.errors import SettingsError, StorageError
from corpus_platform.storage.files import is_special
from corpus_platform.storage.globs import excluded, glob_expression, with_sidecars
from corpus_platform.storage.hub import hub_token, resolve_url
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.partial import has_checkpoint
from corpus_platform.storage.parts import has_parts
from corpus_platform.storage.registry import Member
from corpus_platform.storage.transfer import Fetched, Patience, Read, Whole, shown

if TYPE_CHECKING:
    from corpus_platform.storage.http import Answer
    from corpus_platform.storage.s3 import S3Object

__all__ = ["MAX_OBJECTS", "MAX_SIDECAR_BYTES", "Connect", "Remote"]

MAX_OBJECTS = 1_000_000  # below the fixed part of a glob over S3, as entries of a listing
MAX_SIDECAR_BYTES = 1 << 20  # a list of the hashes of 10,000 files
_MAX_ANSWER_BYTES = 64 << 20  # of one page of the hub's API

# They tell whole URLs, and where redirects lead: a query may be a signature.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

Connect = Callable[[S3Settings, DownloadSettings], Any]


class Remote:
    """Lists and fetches files from other machines; `sleep` is what it waits by between tries."""

    def __init__(
        self,
        download: DownloadSettings | None = None,
        s3_settings: S3Settings | None = None,
        *,
        connect: Connect | None = None,
    ) -> None:
        self._download = download or DownloadSettings()
        self._s3, self._connect = s3_settings or S3Settings(), connect
        self.sleep: Callable[[float], None] = time.sleep

    def hurried(self) -> "Remote":
        """Return one that gives up soon: for those that have a minute, such as ticks of a daemon.

        Its client for S3 is the one of `s3`, since others may not know `timeout_seconds`.
        """
        soon = {"tries": 2, "max_wait_seconds": 2.0, "timeout_seconds": 10.0}
        bounds = {name: min(getattr(self._download, name), most) for name, most in soon.items()}
        download = self._download.model_copy(update=bounds)
        return Remote(download, self._s3)

    def _patience(self, location: str) -> Patience:
        return Patience(self._download, shown(location), sleep=lambda s: self.sleep(s))

    @functools.cached_property
    def _client(self) -> Any:
        from corpus_platform.storage import s3

        return (self._connect or s3.connect)(self._s3, self._download)

    def get_file(
        self, member: Member, target: Path, *, read: Read, whole: Whole | None = None
    ) -> Fetched:
        """Fetch a member to a file, going on from where an earlier process ended.

        `whole` is called just before the file gets its name. Raises SourceRefused where the source
        does not give it, StorageError where it cannot be had.
        """
        from corpus_platform.storage import http, s3

        location = member.location
        if location.startswith("s3://"):
            return s3.get_file(
                self._client,
                location,
                target,
                settings=self._download,
                read=read,
                version=member.listed_version,
                expect=member.bytes,
                patience=self._patience(location),
                whole=whole,
            )
        url, token = self._address(location)
        return http.get_file(
            url,
            target,
            settings=self._download,
            read=read,
            expect=member.bytes,
            token=token,
            patience=self._patience(location),
            whole=whole,
        )

    def has_checkpoint(self, member: Member, target: Path) -> bool:
        """Tell whether a download of the member to this file was begun and can go on."""
        is_s3 = member.location.startswith("s3://")
        return has_parts(target) if is_s3 else has_checkpoint(target)

    def get_bytes(self, location: str, *, max_bytes: int) -> bytes:
        """Return a small file, of this machine too; raises StorageError when it is larger."""
        if "://" not in location:
            return _read_local(Path(location), max_bytes)
        from corpus_platform.storage import s3

        if location.startswith("s3://"):
            return s3.get_bytes(
                self._client,
                location,
                settings=self._download,
                max_bytes=max_bytes,
                patience=self._patience(location),
            )
        url, token = self._address(location)
        return self._answer(url, max_bytes=max_bytes, token=token).data

    def get_hub(self, url: str) -> "Answer":
        """Return an answer of the Hugging Face hub's API."""
        return self._answer(url, max_bytes=_MAX_ANSWER_BYTES, token=hub_token())

    def _answer(self, url: str, *, max_bytes: int, token: str | None) -> "Answer":
        from corpus_platform.storage import http

        return http.get_bytes(
            url,
            settings=self._download,
            max_bytes=max_bytes,
            token=token,
            patience=self._patience(url),
        )

    def glob(self, source: SourceSettings) -> Iterator[Listed]:
        """Yield the objects that a source's glob over s3:// matches, in the order of their keys."""
        from corpus_platform.storage import s3

        pattern = (source.glob or "").removeprefix("s3:/")
        bucket, prefix = _bucket_and_prefix(pattern)
        place = f"s3://{bucket}/{prefix}"
        found = s3.list_objects(
            self._client, place, settings=self._download, patience=self._patience(place)
        )
        objects: dict[str, S3Object] = {}
        for about in found:
            if len(objects) >= MAX_OBJECTS:
                raise SettingsError(
                    f"sources: {shown(place)}: {MAX_OBJECTS} objects or more below the fixed part of"
                    " the glob; begin it with a longer one"
                )
            objects[f"/{bucket}/{about.key}"] = about
        expression = glob_expression(pattern)
        for path, sidecar in with_sidecars(objects):
            match = expression.fullmatch(path)
            if match and not excluded(Path(path), Path("/"), source.exclude):
                about = objects[path]
                beside = f"s3:/{sidecar}" if sidecar else None
                member = Member(f"s3:/{path}", about.bytes, version=about.etag, sidecar=beside)
                yield Listed(source.crawl or match["crawl"], match["name"], member)

    def _address(self, location: str) -> tuple[str, str | None]:
        """Return the URL of a location, and the token that its host may see."""
        scheme = urlsplit(location).scheme
        if scheme == "hf":
            return resolve_url(location), hub_token()
        if scheme not in ("http", "https"):
            raise SettingsError(
                f"sources: {shown(location)}: {scheme}:// cannot be fetched; http, https, s3 and"
                " paths of this machine can"
            )
        return location, None


def _bucket_and_prefix(pattern: str) -> tuple[str, str]:
    """Split `/bucket/folder/{crawl}*` into the bucket and the part of the key before any pattern."""
    bucket, _, rest = pattern.removeprefix("/").partition("/")
    fixed = min((i for sign in "*?[{" if (i := rest.find(sign)) >= 0), default=len(rest))
    return bucket, rest[:fixed]


def _read_local(path: Path, max_bytes: int) -> bytes:
    if is_special(path):
        raise StorageError(f"{path}: cannot be read: a pipe or a device; name a file")
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise StorageError(f"{path}: it has more than the {max_bytes} bytes that are read of such")
    return data
