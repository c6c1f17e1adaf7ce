"""An export to a prefix of S3: each file is written on this machine, sent, and removed here.

Objects appear whole, with the sha256 of their file beside them; one that is there under that hash
is not sent again.
"""

import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any  # boto3's clients are made at run time and have no type

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import UsageError
from corpus_platform.stages.export_target import SCRATCH, STATE, ExportedFile
from corpus_platform.storage.files import text_sha256

__all__ = ["Prefix"]

_MAX_JSON_BYTES = 1 << 28  # an export.json of a million files


class Prefix:
    """A prefix of S3; `connect` makes the client when it is first needed."""

    def __init__(
        self,
        url: str,
        scratch: Path,
        *,
        settings: DownloadSettings,
        connect: Callable[[], Any],
        block_bytes: int,
    ) -> None:
        self.url = self.where = url.rstrip("/")
        self._home = scratch / f"corpus-export-{text_sha256(self.url)[:16]}"
        self.scratch, self.state_path = self._home / SCRATCH, self._home / STATE
        self._settings, self._connect, self._block = settings, connect, block_bytes

    @cached_property
    def _client(self) -> Any:
        return self._connect()

    def _url(self, name: str) -> str:
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return a small file, None where there is none."""
        from corpus_platform.storage import s3

        if self._look(name) is None:
            return None
        return s3.get_bytes(
            self._client, self._url(name), settings=self._settings, max_bytes=_MAX_JSON_BYTES
        )

    def fault(self, file: ExportedFile) -> str | None:
        """Say in words what is wrong with an object that should be there, by the hash beside it."""
        found = self._look(file.path)
        if found == (file.bytes, file.sha256):
            return None
        if found is None:
            return "is missing"
        return f"{found[0]} bytes, sha256 {found[1]}, expected {file.bytes}, {file.sha256}"

    def _look(self, name: str) -> tuple[int, str | None] | None:
        from corpus_platform.storage.s3_objects import look

        return look(self._client, self._url(name), settings=self._settings)

    def check_free(self, known: Mapping[str, ExportedFile]) -> None:
        """Say nothing: what an object replaces is looked at when it is published."""

    def publish(
        self, file: ExportedFile, known: Mapping[str, ExportedFile], sent: Callable[[int], None]
    ) -> None:
        """Send a file in the scratch folder, and remove it there.

        Raises UsageError where there is an object of that name that is none of this export.
        """
        from corpus_platform.storage.uploads import upload_file

        there = self._look(file.path)
        ours = {file.sha256, *(known[name].sha256 for name in [file.path] if name in known)}
        if there is not None and there[1] not in ours:
            raise UsageError(
                f"{self._url(file.path)}: another object has this name; export to another prefix,"
                " or delete it"
            )
        path = self.scratch / file.path
        upload_file(
            self._client,
            path,
            self._url(file.path),
            settings=self._settings,
            block_bytes=self._block,
            sha256=file.sha256,
            sent=sent,
        )
        path.unlink()

    def put(self, name: str, data: bytes) -> None:
        """Make a small object, or replace it."""
        from corpus_platform.storage.uploads import put_bytes

        put_bytes(self._client, self._url(name), data, settings=self._settings)

    def remove(self, name: str) -> None:
        """Remove a small object; none is none."""
        from corpus_platform.storage.s3_objects import delete

        delete(self._client, self._url(name), settings=self._settings)

    def close(self, *, finished: bool) -> None:
        """Remove what is left in the scratch folder; after the end also what was noted."""
        shutil.rmtree(self._home if finished else self.scratch, ignore_errors=True)
